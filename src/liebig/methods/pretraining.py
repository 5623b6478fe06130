"""The recipe of `liebig pretrain`: a model, what it reads, where pairs come from, and what is asked of them.

Sources and objectives are chosen apart from each other; combinations that make no sense are refused with a
sentence. Values left out (`None`) follow the preset: the paper, or four values of its released code (`presets.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.records import Title
from liebig.methods.objective_configs import (
    CocondenserConfig,
    CotmaeConfig,
    EvaluationConfig,
    MlmConfig,
    MocoConfig,
    Objective,
    SimclrConfig,
    VectorsConfig,
    is_local,
    needs_pairs,
)
from liebig.methods.source_configs import (
    BlocksConfig,
    ClozeConfig,
    CropsConfig,
    MixtureConfig,
    PairsConfig,
    QueriesConfig,
    Single,
    SourceConfig,
    SpansConfig,
    StoreConfig,
    TextsConfig,
    Views,
    parts,
    reads_store,
)
from liebig.model.loading import BackboneConfig, NewBackbone
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig

Preset = Literal["paper", "reference"]


class PretrainConfig(Config):
    """Train an encoder on text without labels."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    stores: tuple[StoreConfig, ...] = Field(default=(), description="Token stores to read.")
    tokenizer: InputPath | None = Field(
        default=None, description="A tokenizer folder [default: that of the stores, else of the model]."
    )
    source: SourceConfig = Field(default=BlocksConfig(), description="Where sequences and pairs come from.")
    objective: Objective = Field(default=MlmConfig(), description="What is asked of them.")
    preset: Preset = Field(
        default="paper",
        description="Weight of masked terms, decoder, deletion and mix: of the paper, or of its released code.",
    )
    mix: Literal["batch", "example"] | None = Field(
        default=None,
        description="Draw the store or source for each batch or each example [default: the preset; single texts "
        "for each example].",
    )
    neighbours: int = Field(
        default=1,
        ge=1,
        description="Examples that lie next to each other and are drawn together: passages of a document then meet "
        "in a batch, as each other's negatives.",
    )
    coefficient: float = Field(
        default=1.0, ge=0, description="Stores and sources without a weight count size^coefficient."
    )
    batch_tokens: int | None = Field(
        default=None, ge=16, description="Tokens in an update, about, instead of loop.batch examples."
    )
    max_length: int = Field(
        default=128, ge=8, description="Longest training sequence in tokens, special ones included."
    )
    use_length: int | None = Field(
        default=None,
        ge=8,
        description="Tokens of a text when the model is used, kept in its folder [default: the start's own, at most "
        "512; never less than max_length, which is all that a new model learns positions for].",
    )
    title: Title | None = Field(
        default=None,
        description="What stands between title and text of a collection's passages: a space, the separator token, or "
        "no title [default: the start's own, else space].",
    )
    dropout: float | None = Field(
        default=None,
        ge=0.0,
        lt=1.0,
        description="Dropout of embeddings and layers [default: the model's own].",
    )
    optim: OptimConfig = Field(default=AdamWConfig(), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(default=LoopConfig(), description="Steps, precision, checkpoints, logs.")
    evaluation: EvaluationConfig = Field(
        default=EvaluationConfig(), description="Evaluation on held-out text."
    )

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @model_validator(mode="after")
    def _sensible(self) -> PretrainConfig:
        for check in CHECKS:
            check(self)
        return self


def _batch_is_said_once(config: PretrainConfig) -> None:
    kind = config.objective.kind
    given = config.loop.batch != LoopConfig.model_fields["batch"].default
    if config.batch_tokens is not None and given:
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


def _a_teacher_for_vectors(config: PretrainConfig) -> None:
    taught = [isinstance(source, TextsConfig) for source in parts(config.source)]
    if isinstance(config.objective, VectorsConfig) != any(taught):
        raise ValueError("a teacher's vectors are learnt from its texts: objective vectors and source texts")
    if any(taught) and (len(taught) > 1 or len(config.stores) > 1):
        raise ValueError("texts have one store and one folder of vectors, and are not mixed with others")


def _once_where_it_works(config: PretrainConfig) -> None:
    once = any(isinstance(s, SpansConfig) and s.single == "once" for s in parts(config.source))
    if once and isinstance(config.objective, CotmaeConfig | SimclrConfig | MocoConfig):
        raise ValueError(f"{config.objective.kind} needs both spans: use single = 'skip'")
    if once and getattr(config.objective, "distinct_documents", False):
        raise ValueError("spans of one document never meet as negatives: distinct_documents has no use here")


def _documents_are_of_one_source(config: PretrainConfig) -> None:
    several = len(parts(config.source)) > 1 or len(config.stores) > 1
    if several and getattr(config.objective, "distinct_documents", False):
        raise ValueError(
            "distinct_documents numbers the documents of one source over one store, and here are several: "
            "set it to false, or prepare the texts as one store and leave the mixture out"
        )


def _neighbours_may_meet(config: PretrainConfig) -> None:
    if config.neighbours == 1:
        return
    if is_local(config.objective) or isinstance(config.objective, MocoConfig):
        raise ValueError(
            "neighbours are drawn together to be each other's negatives, and those of "
            f"{config.objective.kind} are not of the batch: leave neighbours out"
        )
    if any(isinstance(source, PairsConfig) for source in parts(config.source)):
        raise ValueError(
            "queries next to each other often have one passage, which neighbours would make its own negative: "
            "leave neighbours out, or take the source queries, whose examples are passages"
        )
    if getattr(config.objective, "distinct_documents", False):
        raise ValueError(
            "neighbours are drawn together to be each other's negatives, and distinct_documents keeps them from it: "
            "give one of the two"
        )


def _shares_in_order(config: PretrainConfig) -> None:
    for source in parts(config.source):
        if not isinstance(source, CropsConfig | ClozeConfig) or source.shortest is None:
            continue
        if source.longest is None:
            raise ValueError(
                "shortest is one of two bounds: give longest too, or neither for whole sentences"
            )
        if source.shortest > source.longest:
            raise ValueError(
                f"of {source.kind}, shortest = {source.shortest:g} is more than longest = {source.longest:g}"
            )


def _a_weight_of_something(config: PretrainConfig) -> None:
    objective = config.objective
    if isinstance(objective, CocondenserConfig) and not objective.mlm and objective.mlm_weight is not None:
        raise ValueError("mlm = false leaves the masked terms out, so mlm_weight has no use: leave it out")


def _texts_fit_a_new_model(config: PretrainConfig) -> None:
    if isinstance(config.model, NewBackbone) and config.max_length > config.model.max_positions:
        raise ValueError(
            f"max_length = {config.max_length} is more than the new model's {config.model.max_positions} "
            "positions: set model.max_positions to as many"
        )


CHECKS = (
    _batch_is_said_once,
    _sources_have_stores,
    _pairs_for_pairs,
    _a_teacher_for_vectors,
    _once_where_it_works,
    _documents_are_of_one_source,
    _neighbours_may_meet,
    _shares_in_order,
    _a_weight_of_something,
    _texts_fit_a_new_model,
)


# What a recipe leaves open, filled in: from the paper, or four values of it from its released code.
#
# `resolve` returns the recipe with every open value set; `said` tells, in a line each, what the preset
# decided.

MOCO: dict[str, dict[str, Any]] = {
    "zero-shot": {"queue": 131_072, "momentum": 0.9995},
    "fine-tuned": {"queue": 65_536, "momentum": 0.999},
}
SHORTEST_CROP = {"zero-shot": 0.05, "fine-tuned": 0.10}
DELETION = {"paper": 0.2, "reference": 0.1}
MLM_WEIGHT = {"paper": 1.0, "reference": 2.0}  # the released cached step counts its MLM terms twice
MIX = {"paper": "batch", "reference": "example"}
DECODER_LAYERS = {"mlm": 2, "causal": 1}


def resolve(config: PretrainConfig) -> PretrainConfig:
    """The recipe without open values."""
    return config.model_copy(
        update={
            "mix": config.mix or (MIX[config.preset] if needs_pairs(config.objective) else "example"),
            "objective": _objective(config),
            "source": _source(config.source, config),
        }
    )


def said(config: PretrainConfig) -> list[str]:
    """What the preset set that the recipe had left open."""
    full = resolve(config)
    found = [f"preset {config.preset!r}"]
    if config.mix is None and (len(config.stores) > 1 or len(parts(config.source)) > 1):
        found.append(f"mix = {full.mix}")
    pairs: list[tuple[str, Any, Any]] = [("objective", config.objective, full.objective)]
    pairs += [("source", a, b) for a, b in zip(parts(config.source), parts(full.source))]
    for name, before, after in pairs:
        for field in type(after).model_fields:
            if getattr(before, field) is None and getattr(after, field) is not None:
                found.append(f"{name}.{field} = {getattr(after, field)}")
    return found


def _objective(config: PretrainConfig) -> Objective:
    objective = config.objective
    if isinstance(objective, MocoConfig):
        return objective.model_copy(update=_open(objective, MOCO[objective.setting]))
    if isinstance(objective, CocondenserConfig) and objective.mlm:
        return objective.model_copy(update=_open(objective, {"mlm_weight": MLM_WEIGHT[config.preset]}))
    if isinstance(objective, CotmaeConfig):
        decoder = objective.decoder or _decoder(config)
        layers = objective.n_decoder_layers or DECODER_LAYERS[decoder]
        return objective.model_copy(update={"decoder": decoder, "n_decoder_layers": layers})
    return objective


def _decoder(config: PretrainConfig) -> str:
    """The released query-as-context code decodes causally; the papers, and CoT-MAE's own code, do not."""
    queries = all(isinstance(source, QueriesConfig) for source in parts(config.source))
    return "causal" if queries and config.preset == "reference" else "mlm"


def _source(source: SourceConfig, config: PretrainConfig) -> SourceConfig:
    if isinstance(source, MixtureConfig):
        inner = tuple(p.model_copy(update={"source": _single(p.source, config)}) for p in source.parts)
        return source.model_copy(update={"parts": inner})
    return _single(source, config)


def _single(source: Single, config: PretrainConfig) -> Single:
    if isinstance(source, CropsConfig):
        setting = config.objective.setting if isinstance(config.objective, MocoConfig) else "fine-tuned"
        contrast = isinstance(config.objective, MocoConfig | SimclrConfig)
        deletion = DELETION[config.preset] if contrast else 0.0
        return source.model_copy(
            update=_open(source, {"shortest": _shortest(source, setting), "delete": deletion})
        )
    if isinstance(source, ClozeConfig) and source.longest is not None:
        return source.model_copy(
            update=_open(source, {"shortest": _shortest(source, "fine-tuned"), "delete": 0.0})
        )
    if isinstance(source, Views):
        return source.model_copy(update=_open(source, {"delete": 0.0}))
    return source


def _shortest(source: CropsConfig | ClozeConfig, setting: str) -> float:
    """The setting's smallest share, or the largest where the recipe has an even smaller one."""
    return min(SHORTEST_CROP[setting], 1.0 if source.longest is None else source.longest)


def _open(part: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those values whose field is None."""
    return {name: value for name, value in values.items() if getattr(part, name) is None}
