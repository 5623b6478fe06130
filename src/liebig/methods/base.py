"""What every pre-training method and pair source says about itself, and the recipe that names them.

A method is one class in one file: its `Config` (with presets and checks), the shape of its batches, its heads, and the
objective itself. Nothing else in Liebig knows which methods exist; the table in `__init__.py`
names them, and the questions others ask (does it need pairs? where do negatives come from?) are answered by the members
below. A member without a default here has to be written by every method. `PretrainRecipe` is what they see of a recipe;
`pretraining.py` adds the tables of all methods and sources to it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field
from torch import nn

from liebig.base.config import Config as Recipe, InputPath, ModelPath
from liebig.base.records import Title
from liebig.losses.contrastive import Similarity
from liebig.methods.sources.token_rows import ExampleSource, SpecialTokens, TokenRow
from liebig.model.backbone import Backbone
from liebig.model.folder import read_tail
from liebig.model.loading import BackboneConfig
from liebig.model.settings import read_modules, read_pooling
from liebig.store import TokenStore
from liebig.text.layout import Layout
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch
from liebig.train.loop import LoopConfig
from liebig.train.objective import Objective
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig

Preset = Literal["paper", "reference"]
Pooling = Literal["cls", "mean"]
Shape = Callable[[TokenRow], Batch]
DOCUMENT, TEACHER = "document", "teacher"  # extras of a batch: the number of a document, a teacher's vector


@dataclass(frozen=True)
class MethodStart:
    """What a method is built on besides the backbone: the tokenizer, and the starting folder with its heads."""

    tokenizer: Tokenizer
    folder: Path | None = None
    heads: Mapping[str, nn.Module] = field(default_factory=dict)

    def modules(self) -> list[tuple[str, Path]]:
        """The sentence-transformers modules of the starting folder: Transformer, Pooling, and what follows."""
        listed = self.folder is not None and (self.folder / "modules.json").is_file()
        return read_modules(self.folder) if listed and self.folder is not None else []

    def tail(self, pooling: str) -> list[nn.Module]:
        """What follows the pooling in the starting folder; nothing where the method pools in another way."""
        modules = self.modules()
        if not modules or read_pooling(modules[1][1])[0] != pooling:
            return []
        return [read_tail(*entry) for entry in modules[2:]]


@dataclass(frozen=True)
class Saved:
    """How the trained model makes vectors, and the heads that are kept beside it for the next stage."""

    pooling: str
    similarity: Similarity = "dot"
    tail: Sequence[nn.Module] = ()
    heads: Mapping[str, nn.Module] = field(default_factory=dict)


class Method(Objective):
    """Base of every pre-training method: an objective that knows its config and builds itself."""

    class Config(Recipe):
        """The table `[objective]` of a recipe."""

        model_config = ConfigDict(model_title_generator=lambda model: model.__qualname__)

        kind: str
        pairs: ClassVar[bool]
        """Whether an example has to come from a source of pairs."""
        singles: ClassVar[bool]
        """Whether an example of a single sequence can be used."""

        @property
        @abstractmethod
        def negatives(self) -> Literal["none", "batch", "queue"]:
            """Where negatives come from. With "none" sequences do not meet in a loss: a batch may be any size."""

        @property
        def masks(self) -> bool:
            """Whether words are predicted through the masked-LM head, which should then be a trained one."""
            return False

        @property
        def extras(self) -> frozenset[str]:
            """What a batch carries besides its sequences: `DOCUMENT`, `TEACHER`."""
            return frozenset()

        def resolve(self, recipe: PretrainRecipe) -> Self:
            """The config with every open value set as the recipe's preset says."""
            return self

        def crop_defaults(self, preset: Preset) -> dict[str, float]:
            """What random crops use where the recipe is silent."""
            return {"shortest": 0.10, "delete": 0.0}

        def check(self, recipe: PretrainRecipe) -> None:
            """Raise ValueError where the rest of the recipe does not fit."""

        @abstractmethod
        def shape(self, tokenizer: Tokenizer) -> Shape:
            """How a drawn row becomes a batch."""

        def arrange(self, source: ExampleSource, symmetric: bool) -> ExampleSource:
            """The source with its sequences in the order that `shape` reads."""
            return source

    config: Config
    backbone: Backbone
    head_classes: ClassVar[Mapping[str, Callable[..., nn.Module]]] = {}
    """The kinds of heads in `heads.safetensors` that belong to this method."""

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> Method:
        """The method of a recipe; one with heads, or with modules behind the pooling, takes them from the start."""
        return cls(recipe.objective, backbone)

    def saved(self) -> Saved:
        """How the trained model is to be used, and what is kept beside it."""
        raise NotImplementedError

    def warnings(self) -> list[str]:
        """What the user should know before the run starts."""
        return []


class PairSourceConfig(Recipe):
    """The table `[source]` of a recipe: one source, or a mixture of several."""

    model_config = ConfigDict(model_title_generator=lambda model: model.__qualname__)

    kind: str

    @property
    @abstractmethod
    def members(self) -> tuple[SingleSource, ...]:
        """The sources that examples are drawn from."""

    @property
    @abstractmethod
    def weights(self) -> tuple[float | None, ...]:
        """The weight of each member, where the recipe has one."""

    @abstractmethod
    def resolve(self, recipe: PretrainRecipe) -> Self:
        """The config with every open value set as the recipe's preset says."""


class SingleSource(PairSourceConfig):
    """A source that is not a mixture."""

    reads_store: ClassVar[bool]
    """Whether it reads token stores; if not, it names a collection."""
    symmetric: ClassVar[bool]
    """Whether the two sequences of a pair are of one kind, so that either can stand for the other."""

    @property
    def members(self) -> tuple[SingleSource, ...]:
        return (self,)

    @property
    def weights(self) -> tuple[float | None, ...]:
        return (None,)

    def resolve(self, recipe: PretrainRecipe) -> Self:
        return self

    def check(self, recipe: PretrainRecipe) -> None:
        """Raise ValueError where the rest of the recipe does not fit."""

    @abstractmethod
    def open(
        self, recipe: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, ExampleSource]]:
        """The source over each store or collection that it reads, with the name of what it reads."""

    def wrap(self, source: ExampleSource, tokenizer: Tokenizer) -> ExampleSource:
        """The opened source with the changes that the recipe wants made to its sequences."""
        return source


def unset(config: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those values whose field is None."""
    return {name: value for name, value in values.items() if getattr(config, name) is None}


class StoreConfig(Recipe):
    """A token store, and how much of the training comes from it."""

    path: InputPath = Field(description="Token store written by liebig prepare.")
    weight: float | None = Field(
        default=None, gt=0, description="Relative share of its examples [default: its size^coefficient]."
    )


class EvaluationConfig(Recipe):
    """Evaluation during training, on documents that are never trained on."""

    share: float = Field(default=0.01, ge=0.0, le=0.5, description="Share of the examples held out.")
    batches: int = Field(default=8, ge=1, description="Maximum number of batches per evaluation.")


class PretrainRecipe(Recipe):
    """Everything in a recipe of pre-training; the tables `[source]` and `[objective]` are of any kind here."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    stores: tuple[StoreConfig, ...] = Field(default=(), description="Token stores to read.")
    tokenizer: ModelPath | None = Field(
        default=None, description="Folder of the tokenizer [default: that of the stores, else of the model]."
    )
    source: PairSourceConfig = Field(description="Source of sequences and pairs.")
    objective: Method.Config = Field(description="Pre-training method.")
    preset: Preset = Field(
        default="paper",
        description="Defaults (weight of masked terms, decoder, deletion, mix) of the paper or of its released code.",
    )
    mix: Literal["batch", "example"] | None = Field(
        default=None,
        description="Choose the store or source per batch or per example [default: the preset; for single texts, per "
        "example].",
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
        description="Maximum length of a text in tokens when the model is used, stored in its folder [default: that of "
        "the starting model, at most 512, but never less than max_length; max_length for a new model].",
    )
    title: Title | None = Field(
        default=None,
        description="Put the title before the text of a collection's passages: with a space, with the separator token, "
        "or not at all [default: that of the starting model, else space].",
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
