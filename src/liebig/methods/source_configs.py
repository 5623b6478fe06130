"""What a recipe says about its stores and sources: where sequences and pairs come from. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from liebig.base.config import Config, InputPath


class StoreConfig(Config):
    """A token store, and how much of the training comes from it."""

    path: InputPath = Field(description="A folder that liebig prepare wrote.")
    weight: float | None = Field(
        default=None,
        gt=0,
        description="Its share of the examples, relative to the others [default: its size^coefficient].",
    )


class Views(Config):
    """Changes made to every view after it was drawn, word by word (Contriever 3.1.2)."""

    delete: float | None = Field(
        default=None, ge=0, lt=1, description="Probability that a token is left out [default: the preset]."
    )
    replace: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by a random one."
    )
    mask: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by the mask token."
    )


class BlocksConfig(Config):
    """Blocks of whole sentences, one sequence an example (Condenser's data)."""

    kind: Literal["blocks"] = "blocks"
    short: float = Field(default=0.1, ge=0, lt=1, description="Share of blocks with a shorter target length.")


class SpansConfig(Config):
    """Two spans of a document (coCondenser, CoT-MAE)."""

    kind: Literal["spans"] = "spans"
    choice: Literal["random", "nearby", "overlap", "window", "mixed"] = Field(
        default="random",
        description="Where the second span lies; mixed is one of nearby, overlap and window.",
    )
    short: float = Field(default=0.1, ge=0, lt=1, description="Share of spans with a shorter target length.")
    single: Literal["skip", "once"] = Field(
        default="skip", description="A document with one span only is skipped, or its span used alone."
    )


class CropsConfig(Views):
    """Two random crops of a window (Contriever)."""

    kind: Literal["crops"] = "crops"
    window: int = Field(default=256, ge=4, description="Tokens of the window both crops come from.")
    shortest: float | None = Field(
        default=None, gt=0, le=1, description="Smallest crop, as a share of the window [default: the preset]."
    )
    longest: float = Field(default=0.5, gt=0, le=1, description="Largest crop, as a share of the window.")
    across: bool = Field(default=False, description="Windows cross documents, as in the released code.")


class ClozeConfig(Views):
    """A sentence of a block and the rest of it (inverse cloze)."""

    kind: Literal["cloze"] = "cloze"
    keep: float = Field(
        default=0.1, ge=0, le=1, description="How often the sentence stays in the block as well."
    )
    shortest: float | None = Field(
        default=None, gt=0, le=1, description="With `longest`: a span instead of a sentence, by its share."
    )
    longest: float | None = Field(
        default=None, gt=0, le=1, description="Largest span, as a share of the block."
    )
    short: float = Field(default=0.1, ge=0, lt=1, description="Share of blocks with a shorter target length.")


class PairsConfig(Views):
    """Labelled pairs of a collection: a query and one of its relevant passages."""

    kind: Literal["pairs"] = "pairs"
    collection: InputPath = Field(description="A collection folder with queries, passages and judgements.")
    split: str = Field(default="train", description="Which judgements.")


class QueriesConfig(Views):
    """A passage and one of the queries generated for it (query-as-context)."""

    kind: Literal["queries"] = "queries"
    collection: InputPath = Field(description="A collection folder with passages and generated queries.")
    split: str = Field(default="generated", description="Which judgements tie queries to passages.")
    per_passage: int | None = Field(
        default=None, ge=1, description="Use at most so many queries a passage [default: all]."
    )


class TextsConfig(Config):
    """Whole texts of a store, one sequence an example, each with the vector a teacher gave it."""

    kind: Literal["texts"] = "texts"
    vectors: InputPath = Field(
        description="What liebig encode wrote for the store's collection, by the teacher."
    )
    group: int = Field(
        default=1, ge=1, description="Neighbouring texts of an example: related ones then meet in a batch."
    )


Single = Annotated[
    BlocksConfig | SpansConfig | CropsConfig | ClozeConfig | PairsConfig | QueriesConfig | TextsConfig,
    Field(discriminator="kind"),
]


class PartConfig(Config):
    """One source of a mixture."""

    source: Single = Field(description="The source.")
    weight: float | None = Field(
        default=None, gt=0, description="Its probability, relative to the others [default: size^coef]."
    )


class MixtureConfig(Config):
    """Several sources, each drawn with its probability."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[PartConfig, ...] = Field(description="The sources.", min_length=2)


SourceConfig = Annotated[
    BlocksConfig
    | SpansConfig
    | CropsConfig
    | ClozeConfig
    | PairsConfig
    | QueriesConfig
    | TextsConfig
    | MixtureConfig,
    Field(discriminator="kind"),
]


def parts(source: SourceConfig) -> tuple[Single, ...]:
    """The sources of a mixture, or the one source."""
    return tuple(part.source for part in source.parts) if isinstance(source, MixtureConfig) else (source,)


def reads_store(source: Single) -> bool:
    """Whether the source reads token stores (the others read a collection)."""
    return not isinstance(source, PairsConfig | QueriesConfig)
