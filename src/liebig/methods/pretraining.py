"""The recipe of `liebig pretrain`: a model, what it reads, where pairs come from, and which method trains it.

Sources and methods are chosen independently; combinations that make no sense are refused with a sentence. Values left
out (`None`) follow the preset: the paper, or four values of its released code. `resolve` returns the recipe with every
open value set, `describe_preset` what the preset decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.records import Title
from liebig.methods import objective_union
from liebig.methods.base import DOCUMENT, Method, Preset
from liebig.methods.mlm import MaskedLM
from liebig.methods.sources.blocks import BlockSource
from liebig.methods.sources.mixture import AnySource
from liebig.methods.sources.token_rows import SpecialTokens
from liebig.model.loading import BackboneConfig, NewBackbone
from liebig.text.layout import Layout
from liebig.text.tokenizer import Tokenizer
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    AnyObjective = Method.Config
else:
    AnyObjective = objective_union()

MIX: dict[Preset, str] = {"paper": "batch", "reference": "example"}


class StoreConfig(Config):
    """A token store, and how much of the training comes from it."""

    path: InputPath = Field(description="Token store written by liebig prepare.")
    weight: float | None = Field(
        default=None,
        gt=0,
        description="Relative share of its examples [default: its size^coefficient].",
    )


class EvaluationConfig(Config):
    """Evaluation during training, on documents that are never trained on."""

    share: float = Field(default=0.01, ge=0.0, le=0.5, description="Share of the examples held out.")
    batches: int = Field(default=8, ge=1, description="Maximum number of batches per evaluation.")


class PretrainConfig(Config):
    """Train an encoder on text without labels."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    stores: tuple[StoreConfig, ...] = Field(default=(), description="Token stores to read.")
    tokenizer: ModelPath | None = Field(
        default=None, description="Folder of the tokenizer [default: that of the stores, else of the model]."
    )
    source: AnySource = Field(default=BlockSource.Config(), description="Source of sequences and pairs.")
    objective: AnyObjective = Field(default=MaskedLM.Config(), description="Pre-training method.")
    preset: Preset = Field(
        default="paper",
        description=(
            "Defaults (weight of masked terms, decoder, deletion, mix) of the paper or of its released code."
        ),
    )
    mix: Literal["batch", "example"] | None = Field(
        default=None,
        description=(
            "Choose the store or source per batch or per example [default: the preset; for single texts, per "
            "example]."
        ),
    )
    neighbours: int = Field(
        default=1,
        ge=1,
        description=(
            "Number of neighbouring examples drawn together, so that passages of a document are negatives of "
            "each other."
        ),
    )
    coefficient: float = Field(
        default=1.0, ge=0, description="Weight of stores and sources without one: size^coefficient."
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=16,
        description=("Approximate number of tokens per update, instead of loop.batch examples."),
    )
    max_length: int = Field(
        default=128,
        ge=8,
        description=("Maximum length of a training sequence in tokens, special tokens included."),
    )
    use_length: int | None = Field(
        default=None,
        ge=8,
        description=(
            "Maximum length of a text in tokens when the model is used, stored in its folder [default: that "
            "of the starting model, at most 512, but never less than max_length; max_length for a new model]."
        ),
    )
    title: Title | None = Field(
        default=None,
        description=(
            "Put the title before the text of a collection's passages: with a space, with the separator "
            "token, or not at all [default: that of the starting model, else space]."
        ),
    )
    dropout: float | None = Field(
        default=None,
        ge=0.0,
        lt=1.0,
        description="Dropout of embeddings and layers [default: the model's own].",
    )
    optim: OptimConfig = Field(default=AdamWConfig(), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="Learning rate schedule.")
    loop: LoopConfig = Field(
        default=LoopConfig(), description=("Training length, precision, checkpoints and logs.")
    )
    evaluation: EvaluationConfig = Field(
        default=EvaluationConfig(), description="Evaluation on held-out text."
    )

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    def start_folder(self) -> Path | None:
        """Where the starting model lies; None for a new one."""
        return self.model.folder()

    def title_rule(self) -> Title:
        """What stands between title and text: as said, else as the start was trained."""
        folder = self.start_folder()
        return self.title or (Layout() if folder is None else Layout.load(folder)).title

    def room(self, tokenizer: Tokenizer) -> int:
        """Tokens of a sequence without its special ones."""
        frame = SpecialTokens.of(tokenizer)
        return self.max_length - len(frame.before) - len(frame.after)

    @model_validator(mode="after")
    def _sensible(self) -> PretrainConfig:
        for check in CHECKS:
            check(self)
        for source in self.source.members:
            source.check(self)
        self.objective.check(self)
        return self


def _batch_is_said_once(config: PretrainConfig) -> None:
    kind, alone = config.objective.kind, config.objective.negatives == "none"
    given = config.loop.batch != LoopConfig.model_fields["batch"].default
    if config.batch_tokens is not None and given:
        raise ValueError("give loop.batch (examples) or batch_tokens, not both")
    if config.batch_tokens is not None and not alone:
        raise ValueError(
            f"{kind} contrasts the examples of a batch, so their number must be fixed: set loop.batch, and "
            "loop.chunk_tokens to save memory"
        )
    if config.loop.batch == 1 and not alone:
        raise ValueError(f"{kind} has nothing to contrast in a batch of 1: set loop.batch to at least 2")


def _sources_have_stores(config: PretrainConfig) -> None:
    members = config.source.members
    reading = [source.kind for source in members if source.reads_store]
    if reading and not config.stores:
        raise ValueError(f"{reading[0]} are drawn from token stores: name at least one in stores")
    if not reading and config.stores:
        raise ValueError(
            f"the source {members[0].kind} reads a collection, so stores have no effect: leave them out"
        )


def _documents_are_of_one_source(config: PretrainConfig) -> None:
    several = len(config.source.members) > 1 or len(config.stores) > 1
    if several and DOCUMENT in config.objective.extras:
        raise ValueError(
            "distinct_documents needs a single source over a single store, and there are several: set it to "
            "false, or prepare the texts as one store and use one source"
        )


def _neighbours_may_meet(config: PretrainConfig) -> None:
    if config.neighbours == 1:
        return
    if config.objective.negatives != "batch":
        raise ValueError(
            f"neighbours are drawn together to be negatives of each other, but {config.objective.kind} does "
            "not take negatives from the batch: leave neighbours out"
        )
    if DOCUMENT in config.objective.extras:
        raise ValueError(
            "neighbours are drawn together to be negatives of each other, which distinct_documents prevents: "
            "set only one of the two"
        )


def _texts_fit_a_new_model(config: PretrainConfig) -> None:
    if isinstance(config.model, NewBackbone) and config.max_length > config.model.max_positions:
        raise ValueError(
            f"max_length = {config.max_length} is more than the new model's {config.model.max_positions} "
            "positions: set model.max_positions to as many"
        )


CHECKS = (
    _batch_is_said_once,
    _sources_have_stores,
    _documents_are_of_one_source,
    _neighbours_may_meet,
    _texts_fit_a_new_model,
)


def resolve(config: PretrainConfig) -> PretrainConfig:
    """The recipe without open values."""
    return config.model_copy(
        update={
            "mix": config.mix or (MIX[config.preset] if config.objective.pairs else "example"),
            "objective": config.objective.resolve(config),
            "source": config.source.resolve(config),
        }
    )


def describe_preset(config: PretrainConfig) -> list[str]:
    """What the preset set that the recipe had left open."""
    full = resolve(config)
    lines = [f"preset {config.preset!r}"]
    if config.mix is None and (len(config.stores) > 1 or len(config.source.members) > 1):
        lines.append(f"mix = {full.mix}")
    pairs: list[tuple[str, Any, Any]] = [("objective", config.objective, full.objective)]
    pairs += [("source", a, b) for a, b in zip(config.source.members, full.source.members)]
    for name, before, after in pairs:
        for field in type(after).model_fields:
            if getattr(before, field) is None and getattr(after, field) is not None:
                lines.append(f"{name}.{field} = {getattr(after, field)}")
    return lines
