"""The recipe of `liebig pretrain`: a model, what it reads, where pairs come from, and what is asked of them.

Sources and objectives are chosen apart from each other; combinations that make no sense are refused with a
sentence. Values left out (`None`) follow the preset: the paper, or its released code where that differs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath
from liebig.model.config import BackboneConfig
from liebig.train.config import AdamWConfig, LoopConfig, OptimConfig, ScheduleConfig

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Preset = Literal["paper", "reference"]
Similarity = Literal["dot", "cosine"]
Pooling = Literal["cls", "mean"]


class StoreConfig(Config):
    """A token store, and how much of the training comes from it."""

    path: InputPath = Field(description="A folder that liebig prepare wrote.")
    weight: float | None = Field(
        None,
        gt=0,
        description="Its share of the examples, relative to the others [default: its size^coefficient].",
    )


class Views(Config):
    """Changes made to every view after it was drawn, word by word (Contriever 3.1.2)."""

    delete: Rate | None = Field(
        None, description="Probability that a token is left out [default: the preset]."
    )
    replace: Rate = Field(0.0, description="Probability that a token is replaced by a random one.")
    mask: Rate = Field(0.0, description="Probability that a token is replaced by the mask token.")


class BlocksConfig(Config):
    """Blocks of whole sentences, one sequence an example (Condenser's data)."""

    kind: Literal["blocks"] = "blocks"
    short: Rate = Field(0.1, description="Share of blocks with a shorter target length.")


class SpansConfig(Config):
    """Two spans of a document (coCondenser, CoT-MAE)."""

    kind: Literal["spans"] = "spans"
    choice: Literal["random", "nearby", "overlap", "mixed"] = Field(
        "random", description="Where the second span lies."
    )
    short: Rate = Field(0.1, description="Share of spans with a shorter target length.")
    single: Literal["skip", "once"] = Field(
        "skip", description="A document with one span only is skipped, or its span used alone."
    )


class CropsConfig(Views):
    """Two random crops of a window (Contriever)."""

    kind: Literal["crops"] = "crops"
    window: int = Field(256, ge=4, description="Tokens of the window both crops come from.")
    shortest: Share | None = Field(
        None, description="Smallest crop, as a share of the window [default: the preset]."
    )
    longest: Share = Field(0.5, description="Largest crop, as a share of the window.")
    across: bool = Field(False, description="Windows cross documents, as in the released code.")


class ClozeConfig(Views):
    """A sentence of a block and the rest of it (inverse cloze)."""

    kind: Literal["cloze"] = "cloze"
    keep: Rate = Field(0.1, description="How often the sentence stays in the block as well.")
    shortest: Share | None = Field(
        None, description="With `longest`: a span instead of a sentence, by its share."
    )
    longest: Share | None = Field(None, description="Largest span, as a share of the block.")
    short: Rate = Field(0.1, description="Share of blocks with a shorter target length.")


class PairsConfig(Views):
    """Labelled pairs of a collection: a query and one of its relevant passages."""

    kind: Literal["pairs"] = "pairs"
    collection: InputPath = Field(description="A collection folder with queries, passages and judgements.")
    split: str = Field("train", description="Which judgements.")


class QueriesConfig(Views):
    """A passage and one of the queries generated for it (query-as-context)."""

    kind: Literal["queries"] = "queries"
    collection: InputPath = Field(description="A collection folder with passages and generated queries.")
    split: str = Field("generated", description="Which judgements tie queries to passages.")
    per_passage: int | None = Field(
        None, ge=1, description="Use at most so many queries a passage [default: all]."
    )


Single = Annotated[
    BlocksConfig | SpansConfig | CropsConfig | ClozeConfig | PairsConfig | QueriesConfig,
    Field(discriminator="kind"),
]


class PartConfig(Config):
    """One source of a mixture."""

    source: Single = Field(description="The source.")
    weight: float | None = Field(
        None, gt=0, description="Its probability, relative to the others [default: size^coef]."
    )


class MixtureConfig(Config):
    """Several sources, each drawn with its probability."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[PartConfig, ...] = Field(description="The sources.", min_length=2)


Source = Annotated[
    BlocksConfig | SpansConfig | CropsConfig | ClozeConfig | PairsConfig | QueriesConfig | MixtureConfig,
    Field(discriminator="kind"),
]


class Masking(Config):
    """What masked-LM objectives share."""

    mask_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(0.15, description="Share of tokens masked.")
    whole_words: bool = Field(True, description="Mask whole words rather than single pieces.")
    mlm_reduction: Literal["mean", "sum"] = Field(
        "mean", description="Mean over masked tokens, or (Eq. 5 literally) sums averaged over spans."
    )


class MlmConfig(Masking):
    """Masked language modelling alone."""

    kind: Literal["mlm"] = "mlm"
    pooling: Pooling = Field("mean", description="Pooling written into the model folder.")


class CondenserConfig(Masking):
    """Masked language modelling through the Condenser head."""

    kind: Literal["condenser"] = "condenser"
    skip_from: int | None = Field(None, ge=1, description="Last early layer [default: half of the layers].")
    n_head_layers: int = Field(2, ge=1, description="Layers of the head.")
    late_mlm: bool = Field(True, description="Ask the late layers for the masked tokens too.")


class CocondenserConfig(CondenserConfig):
    """Condenser, and the spans of a document find each other in the batch."""

    kind: Literal["cocondenser"] = "cocondenser"  # type: ignore[assignment]  # a kind of its own
    mlm: bool = Field(True, description="Off: the contrastive loss alone (the paper's ablation).")
    mlm_weight: float | None = Field(
        None, ge=0, description="Weight of the masked-LM terms [default: the preset]."
    )
    temperature: float = Field(1.0, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field("dot", description="Dot product or cosine.")
    distinct_documents: bool = Field(
        False, description="Texts of one document are never each other's negatives."
    )


class CotmaeConfig(Config):
    """The other side of a pair is reconstructed from one vector by a shallow decoder."""

    kind: Literal["cotmae"] = "cotmae"
    encoder_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.30, description="Share masked in the encoder."
    )
    decoder_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.45, description="Share masked in the decoder."
    )
    whole_words: bool = Field(True, description="Mask whole words rather than single pieces.")
    mlm_reduction: Literal["mean", "sum"] = Field(
        "mean", description="Mean over masked tokens, or sums over spans."
    )
    decoder: Literal["mlm", "causal"] | None = Field(
        None, description="Bidirectional with masks, or causal with a window [default: the preset]."
    )
    n_decoder_layers: int | None = Field(
        None, ge=1, description="Layers of the decoder [default: mlm 2, causal 1]."
    )
    window: int = Field(3, ge=1, description="Positions the causal decoder sees, besides the first.")
    decoder_weight: float = Field(1.0, gt=0, description="Weight of the decoder's loss.")


class SimclrConfig(Config):
    """Two views of a text find each other in the batch (Contriever, in-batch)."""

    kind: Literal["simclr"] = "simclr"
    temperature: float = Field(0.05, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field("dot", description="Dot product or cosine.")
    pooling: Pooling = Field("mean", description="How a text becomes a vector.")
    distinct_documents: bool = Field(
        False, description="Texts of one document are never each other's negatives."
    )


class MocoConfig(Config):
    """Two views of a text find each other among a queue of earlier ones (Contriever)."""

    kind: Literal["moco"] = "moco"
    setting: Literal["zero-shot", "fine-tuned"] = Field(
        "zero-shot",
        description="The paper's model for use as it is, or for fine-tuning: queue, momentum, crops.",
    )
    queue: int | None = Field(None, ge=1, description="Keys kept [default: the setting's 131,072 or 65,536].")
    momentum: Annotated[float, Field(ge=0.0, le=1.0)] | None = Field(
        None, description="Of the key encoder [default: the setting's 0.9995 or 0.999]."
    )
    temperature: float = Field(0.05, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field("dot", description="Dot product or cosine.")
    pooling: Pooling = Field("mean", description="How a text becomes a vector.")
    key_dropout: bool = Field(True, description="Dropout in the key encoder, as in the released code.")
    label_smoothing: Rate = Field(0.0, description="Share of the target spread over all candidates.")


Objective = Annotated[
    MlmConfig | CondenserConfig | CocondenserConfig | CotmaeConfig | SimclrConfig | MocoConfig,
    Field(discriminator="kind"),
]


class EvaluationConfig(Config):
    """Evaluation during training, on documents that are never trained on."""

    share: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        0.01, description="Share of the examples held out."
    )
    batches: int = Field(8, ge=1, description="Batches an evaluation reads at most.")


class PretrainConfig(Config):
    """Train an encoder on text without labels."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    stores: tuple[StoreConfig, ...] = Field((), description="Token stores to read.")
    source: Source = Field(BlocksConfig(), description="Where sequences and pairs come from.")
    objective: Objective = Field(MlmConfig(), description="What is asked of them.")
    preset: Preset = Field("paper", description="Where paper and released code differ: which one.")
    mix: Literal["batch", "example"] | None = Field(
        None, description="Draw the store or source for each batch or each example [default: the preset]."
    )
    coefficient: float = Field(
        1.0, ge=0, description="Stores and sources without a weight count size^coefficient."
    )
    batch_tokens: int | None = Field(
        None, ge=16, description="Tokens in an update, about, instead of loop.batch examples."
    )
    max_length: int = Field(128, ge=8, description="Longest sequence in tokens, special ones included.")
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] | None = Field(
        None, description="Dropout of embeddings and layers [default: the model's own]."
    )
    optim: OptimConfig = Field(AdamWConfig(), description="The optimiser.")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(LoopConfig(), description="Steps, precision, checkpoints, logs.")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="Evaluation on held-out text.")

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @model_validator(mode="after")
    def _sensible(self) -> PretrainConfig:
        for check in (_batch_is_said_once, _sources_have_stores, _pairs_for_pairs, _once_where_it_works):
            check(self)
        return self


def parts(source: Source) -> tuple[Single, ...]:
    """The sources of a mixture, or the one source."""
    return tuple(part.source for part in source.parts) if isinstance(source, MixtureConfig) else (source,)


def is_local(objective: Objective) -> bool:
    """Whether sequences do not meet in a loss, so that a batch may be counted in tokens."""
    return isinstance(objective, MlmConfig | CotmaeConfig) or type(objective) is CondenserConfig


def needs_pairs(objective: Objective) -> bool:
    """Whether every example needs two sequences."""
    return isinstance(objective, CocondenserConfig | CotmaeConfig | SimclrConfig | MocoConfig)


def reads_store(source: Single) -> bool:
    """Whether the source reads token stores (the others read a collection)."""
    return not isinstance(source, PairsConfig | QueriesConfig)


def _batch_is_said_once(config: PretrainConfig) -> None:
    kind = config.objective.kind
    if config.batch_tokens is not None and "batch" in config.loop.model_fields_set:
        raise ValueError("give loop.batch (examples) or batch_tokens, not both")
    if config.batch_tokens is not None and not is_local(config.objective):
        raise ValueError(
            f"{kind} contrasts the examples of a batch, so their number is fixed: give loop.batch, and "
            "loop.chunk_tokens for memory"
        )
    if config.loop.batch == 1 and not is_local(config.objective):
        raise ValueError(f"{kind} has nothing to contrast in a batch of 1: give loop.batch = 2 at least")


def _sources_have_stores(config: PretrainConfig) -> None:
    reading = [source.kind for source in parts(config.source) if reads_store(source)]
    if reading and not config.stores:
        raise ValueError(f"{reading[0]} are drawn from token stores: name at least one in stores")
    if not reading and config.stores:
        kind = parts(config.source)[0].kind
        raise ValueError(f"the source {kind} reads its collection, so stores have no use: leave them out")


def _pairs_for_pairs(config: PretrainConfig) -> None:
    kinds = [source.kind for source in parts(config.source)]
    if needs_pairs(config.objective) and "blocks" in kinds:
        raise ValueError(
            f"{config.objective.kind} asks something of a pair, and a block is one text: "
            "use spans, crops, cloze, pairs or queries"
        )


def _once_where_it_works(config: PretrainConfig) -> None:
    once = any(isinstance(s, SpansConfig) and s.single == "once" for s in parts(config.source))
    if once and isinstance(config.objective, CotmaeConfig | SimclrConfig | MocoConfig):
        raise ValueError(f"{config.objective.kind} needs both spans: use single = 'skip'")
