"""What every pre-training method, pair source and fine-tuning objective says about itself.

A method is one class in one file: its `Config` (with presets and checks), the shape of its batches, its heads, and the
objective itself. Nothing else in Liebig knows which methods exist; the table in `__init__.py`
names them, and the questions others ask (does it need pairs? where do negatives come from?) are answered by the members
below. A member without a default here has to be written by every method.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict
from torch import nn

from liebig.base.config import Config as Recipe
from liebig.losses.contrastive import Similarity
from liebig.methods.sources.token_rows import ExampleSource, TokenRow
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.folder import read_tail
from liebig.model.settings import read_modules, read_pooling
from liebig.store import TokenStore
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch
from liebig.train.objective import Objective
from liebig.train.stage import Data, TrainingStage

if TYPE_CHECKING:
    from liebig.methods.finetuning import FinetuneConfig
    from liebig.methods.pretraining import PretrainConfig

    Run = TrainingStage[FinetuneConfig, "FinetuneObjective"]
else:
    Run = TrainingStage

Preset = Literal["paper", "reference"]
Pooling = Literal["cls", "mean"]
Shape = Callable[[TokenRow], Batch]
DOCUMENT, TEACHER = "document", "teacher"  # extras of a batch: the number of a document, a teacher's vector


@dataclass(frozen=True)
class Start:
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

        def resolve(self, recipe: PretrainConfig) -> Self:
            """The config with every open value set as the recipe's preset says."""
            return self

        def crop_defaults(self, preset: Preset) -> dict[str, float]:
            """What random crops use where the recipe is silent."""
            return {"shortest": 0.10, "delete": 0.0}

        def check(self, recipe: PretrainConfig) -> None:
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
    def build(cls, recipe: PretrainConfig, backbone: Backbone, start: Start) -> Method:
        """The objective of a resolved recipe."""
        raise NotImplementedError

    def saved(self) -> Saved:
        """How the trained model is to be used, and what is kept beside it."""
        raise NotImplementedError

    def warnings(self) -> list[str]:
        """What the user should know before the run starts."""
        return []


class SourceConfig(Recipe):
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
    def resolve(self, recipe: PretrainConfig) -> Self:
        """The config with every open value set as the recipe's preset says."""


class SingleSource(SourceConfig):
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

    def resolve(self, recipe: PretrainConfig) -> Self:
        return self

    def check(self, recipe: PretrainConfig) -> None:
        """Raise ValueError where the rest of the recipe does not fit."""

    @abstractmethod
    def open(
        self, recipe: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, ExampleSource]]:
        """The source over each store or collection that it reads, with the name of what it reads."""

    def wrap(self, source: ExampleSource, tokenizer: Tokenizer) -> ExampleSource:
        """The opened source with the changes that the recipe wants made to its sequences."""
        return source


def unset(config: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those values whose field is None."""
    return {name: value for name, value in values.items() if getattr(config, name) is None}


# What every fine-tuning objective says about itself.
#
# An objective is one class in one file: its `Config` with the checks of a recipe, what it reads, its batches, its
# loss and what is saved. The table in `finetuning.py` names the classes; nothing else in Liebig knows which ones
# exist. A member without a body here has to be written by every objective.

QUERY = "query"
"""The folder of the query encoder of an untied retriever, beside `model/`."""


class FinetuneObjective(Objective):
    """Base of every fine-tuning objective."""

    class Config(Recipe):
        """The table `[objective]` of a recipe."""

        model_config = ConfigDict(model_title_generator=lambda model: model.__qualname__)

        kind: str
        roles: ClassVar[bool]
        """Whether texts are queries and passages. If not, they are of one kind and have one encoder and one prompt."""

        @property
        @abstractmethod
        def alone(self) -> str | None:
            """The name of a loss that looks at each example alone; None if the other examples of a batch count."""

        @abstractmethod
        def compared_by(self) -> Similarity:
            """How vectors of the trained model are to be compared."""

        def check(self, recipe: FinetuneConfig) -> None:
            """Raise ValueError where the rest of the recipe does not fit."""

    @classmethod
    @abstractmethod
    def build(cls, config: Any, query: Encoder, passage: Encoder | None) -> Self:
        """The objective of this class's Config; `passage` is None where both sides have one encoder."""

    @abstractmethod
    def data(self, run: Run) -> Data:
        """Read what the recipe of the run names: batches, epochs, evaluation."""

    @property
    @abstractmethod
    def encoders(self) -> Mapping[str, Encoder]:
        """The trained encoders by the folder they are saved in."""

    def save_head(self, folder: Path) -> None:
        """Write what belongs to the objective besides its encoders."""
