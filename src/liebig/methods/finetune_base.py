"""What every fine-tuning objective says about itself, and the recipe that names it.

An objective is one class in one file: its `Config` with the checks of a recipe, what it reads, its batches, its loss
and what is saved. The table in `finetuning.py` names the classes; nothing else in Liebig knows which ones exist. A
member without a body here has to be written by every objective.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from liebig.base.config import Config as Recipe, InputPath, ModelPath
from liebig.base.records import Title
from liebig.losses.contrastive import Similarity
from liebig.methods.dev_evaluation import DevConfig
from liebig.methods.samplers import Batching, GroupChoice
from liebig.model.encoder import Encoder
from liebig.model.loading import BackboneConfig
from liebig.train.loop import LoopConfig
from liebig.train.objective import Objective
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig
from liebig.train.stage import Data, TrainingStage

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

        def check(self, recipe: FinetuneRecipe) -> None:
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


class FinetuneRecipe(Recipe):
    """Everything in a recipe of fine-tuning; the tables `[objective]` and `[batching]` are of any kind here."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    tokenizer: ModelPath | None = Field(
        default=None, description="Folder of the tokenizer; only for a new model."
    )
    collection: InputPath = Field(description="Collection with queries, passages and judgements or groups.")
    split: str = Field(default="train", description="Split to train on.")
    groups: tuple[InputPath, ...] = Field(
        default=(),
        description="Folders written by liebig mine, concatenated [default: the collection's groups or judgements].",
    )
    relevant: int = Field(default=1, description="Lowest grade of a positive passage.")
    limit: int | None = Field(
        default=None, ge=1, description="Train on only this many examples, drawn at random."
    )
    limit_seed: int = Field(
        default=0, ge=0, description="Seed of `limit`; a smaller sample is part of a larger one."
    )
    objective: FinetuneObjective.Config = Field(description="Training objective.")
    batching: Batching = Field(description="How examples are grouped into batches.")
    negatives: int = Field(
        default=GroupChoice.negatives, ge=0, description="Number of negatives per query in a step."
    )
    positives: int = Field(
        default=GroupChoice.positives, ge=1, description="Maximum number of positives per query in a step."
    )
    rotate: bool = Field(
        default=GroupChoice.rotate,
        description="Use different positives and negatives in every epoch, as Tevatron v1 does.",
    )
    hard: float = Field(
        default=GroupChoice.hard,
        ge=0,
        le=1,
        description="Probability that a negative is a mined one; otherwise it is a random passage of the collection.",
    )
    untied: bool = Field(default=False, description="Train separate encoders for queries and passages.")
    pooling: Literal["cls", "mean"] | None = Field(
        default=None, description="Pooling of token vectors [default: the model's own, else cls]."
    )
    title: Title | None = Field(
        default=None,
        description="Put the title before the text: with a space, with the separator token, or not at all [default: "
        "the model's own, else space].",
    )
    query_length: int = Field(
        default=32, ge=4, description="Maximum length of a query in tokens, special tokens included."
    )
    passage_length: int = Field(
        default=128, ge=4, description="Maximum length of a passage in tokens, special tokens included."
    )
    query_prompt: str = Field(default="", description="Prompt before every query [default: the model's own].")
    passage_prompt: str = Field(
        default="", description="Prompt before every passage [default: the model's own]."
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="Dropout [default: the model's own].")
    optim: OptimConfig = Field(
        default=AdamWConfig(lr=5e-6), description="The optimiser; asam for few labels."
    )
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="Learning rate schedule.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=3, batch=8),
        description="Training length, batch, precision, checkpoints and logs.",
    )
    evaluation: DevConfig = Field(default=DevConfig(), description="Evaluation during training.")

    @property
    def seed(self) -> int:
        """Every random number follows from it."""
        return self.loop.seed


Run = TrainingStage[FinetuneRecipe, FinetuneObjective]
"""The training that an objective reads its data for."""
