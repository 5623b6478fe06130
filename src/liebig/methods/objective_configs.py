"""What a recipe says about its objective: what is asked of sequences and pairs. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from liebig.base.config import Config

Similarity = Literal["dot", "cosine"]
Pooling = Literal["cls", "mean"]


class Masking(Config):
    """What masked-LM objectives share."""

    mask_rate: float = Field(default=0.15, gt=0.0, lt=1.0, description="Share of tokens masked.")
    whole_words: bool = Field(default=True, description="Mask whole words rather than single pieces.")
    mlm_reduction: Literal["mean", "sum"] = Field(
        default="mean", description="Mean over masked tokens, or (Eq. 5 literally) sums averaged over spans."
    )


class MlmConfig(Masking):
    """Masked language modelling alone."""

    kind: Literal["mlm"] = "mlm"
    pooling: Pooling = Field(default="mean", description="Pooling written into the model folder.")


class Head(Masking):
    """What objectives with a Condenser head share."""

    skip_from: int | None = Field(
        default=None, ge=1, description="Last early layer [default: half of the layers]."
    )
    n_head_layers: int = Field(default=2, ge=1, description="Layers of the head.")
    late_mlm: bool = Field(default=True, description="Ask the late layers for the masked tokens too.")


class CondenserConfig(Head):
    """Masked language modelling through the Condenser head."""

    kind: Literal["condenser"] = "condenser"


class CocondenserConfig(Head):
    """Condenser, and the spans of a document find each other in the batch."""

    kind: Literal["cocondenser"] = "cocondenser"
    mlm: bool = Field(default=True, description="Off: the contrastive loss alone (the paper's ablation).")
    mlm_weight: float | None = Field(
        default=None, ge=0, description="Weight of the masked-LM terms [default: the preset]."
    )
    temperature: float = Field(default=1.0, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field(default="dot", description="Dot product or cosine.")
    distinct_documents: bool = Field(
        default=False, description="Texts of one document are never each other's negatives."
    )


class CotmaeConfig(Config):
    """The other side of a pair is reconstructed from one vector by a shallow decoder."""

    kind: Literal["cotmae"] = "cotmae"
    encoder_rate: float = Field(default=0.30, gt=0.0, lt=1.0, description="Share masked in the encoder.")
    decoder_rate: float = Field(default=0.45, gt=0.0, lt=1.0, description="Share masked in the decoder.")
    whole_words: bool = Field(default=True, description="Mask whole words rather than single pieces.")
    mlm_reduction: Literal["mean", "sum"] = Field(
        default="mean", description="Mean over masked tokens, or sums over spans."
    )
    decoder: Literal["mlm", "causal"] | None = Field(
        default=None, description="Bidirectional with masks, or causal with a window [default: the preset]."
    )
    n_decoder_layers: int | None = Field(
        default=None, ge=1, description="Layers of the decoder [default: mlm 2, causal 1]."
    )
    window: int = Field(default=3, ge=1, description="Positions the causal decoder sees, besides the first.")
    decoder_weight: float = Field(default=1.0, gt=0, description="Weight of the decoder's loss.")


class SimclrConfig(Config):
    """Two views of a text find each other in the batch (Contriever, in-batch)."""

    kind: Literal["simclr"] = "simclr"
    temperature: float = Field(default=0.05, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field(default="dot", description="Dot product or cosine.")
    pooling: Pooling = Field(default="mean", description="How a text becomes a vector.")
    distinct_documents: bool = Field(
        default=False, description="Texts of one document are never each other's negatives."
    )


class MocoConfig(Config):
    """Two views of a text find each other among a queue of earlier ones (Contriever)."""

    kind: Literal["moco"] = "moco"
    setting: Literal["zero-shot", "fine-tuned"] = Field(
        default="zero-shot",
        description="The paper's model for use as it is, or for fine-tuning: queue, momentum, crops.",
    )
    queue: int | None = Field(
        default=None, ge=1, description="Keys kept [default: the setting's 131,072 or 65,536]."
    )
    momentum: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="Of the key encoder [default: the setting's 0.9995 or 0.999].",
    )
    temperature: float = Field(default=0.05, gt=0, description="Scores are divided by it.")
    similarity: Similarity = Field(default="dot", description="Dot product or cosine.")
    pooling: Pooling = Field(default="mean", description="How a text becomes a vector.")
    key_dropout: bool = Field(
        default=True, description="Dropout in the key encoder, as in the released code."
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the target spread over all candidates."
    )


class VectorsConfig(Config):
    """The vectors of a teacher, which the source `texts` names, are learnt."""

    kind: Literal["vectors"] = "vectors"
    pooling: Pooling = Field(default="mean", description="How a text becomes a vector.")
    dense: bool | None = Field(
        default=None,
        description="Project to the teacher's width, saved with the model [default: where widths differ].",
    )
    similarity_weight: float = Field(
        default=0.0, ge=0, description="Weight of the texts' similarities to each other; 0 leaves them out."
    )
    temperature: float = Field(default=0.05, gt=0, description="Those similarities are divided by it.")


Objective = Annotated[
    MlmConfig
    | CondenserConfig
    | CocondenserConfig
    | CotmaeConfig
    | SimclrConfig
    | MocoConfig
    | VectorsConfig,
    Field(discriminator="kind"),
]


def is_local(objective: Objective) -> bool:
    """Whether sequences do not meet in a loss, so that a batch may be counted in tokens."""
    if isinstance(objective, VectorsConfig):
        return objective.similarity_weight == 0
    return isinstance(objective, MlmConfig | CondenserConfig | CotmaeConfig)


def needs_pairs(objective: Objective) -> bool:
    """Whether every example needs two sequences."""
    return isinstance(objective, CocondenserConfig | CotmaeConfig | SimclrConfig | MocoConfig)


class EvaluationConfig(Config):
    """Evaluation during training, on documents that are never trained on."""

    share: float = Field(default=0.01, ge=0.0, le=0.5, description="Share of the examples held out.")
    batches: int = Field(default=8, ge=1, description="Batches an evaluation reads at most.")
