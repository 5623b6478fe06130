"""What every fine-tuning objective says about itself.

An objective is one class in one file: its `Config` with the checks of a recipe, what it reads, its batches, its loss
and what is saved. The table in `finetuning.py` names the classes; nothing else in Liebig knows which ones exist. A
member without a body here has to be written by every objective.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import ConfigDict

from liebig.base.config import Config as Recipe
from liebig.losses.contrastive import Similarity
from liebig.model.encoder import Encoder
from liebig.train.objective import Objective
from liebig.train.stage import Data, TrainingStage

if TYPE_CHECKING:
    from liebig.methods.finetuning import FinetuneConfig

    Run = TrainingStage[FinetuneConfig, "FinetuneObjective"]
else:
    Run = TrainingStage

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
