"""The recipe of `liebig finetune`, and the tables of objectives and ways of batching that it can name.

An objective is one file and one line of `OBJECTIVES`: a subclass of `FinetuneObjective` with its Config. A way of
batching is one line of `BATCHINGS`: a subclass of `Batching`. Another package adds either through the entry point group
`liebig.methods`: the entry's name is the kind, its value `module:Class`.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Union

from pydantic import Field, model_validator

from liebig.base import extensions
from liebig.base.errors import RecipeError
from liebig.base.mistakes import tag
from liebig.methods import GROUP
from liebig.methods.contrastive import Contrastive
from liebig.methods.finetune_base import FinetuneObjective, FinetuneRecipe
from liebig.methods.samplers import Batching, RandomBatching

OBJECTIVES = {
    "contrastive": "liebig.methods.contrastive:Contrastive",
    "distill": "liebig.methods.distill:Distill",
    "ltr": "liebig.methods.ltr:Ltr",
    "cosine": "liebig.methods.text_similarity:CosineRegression",
    "triplet": "liebig.methods.text_similarity:TripletMargin",
}
BATCHINGS = {
    "random": "liebig.methods.samplers:RandomBatching",
    "sequential": "liebig.methods.samplers:SequentialBatching",
    "adaptive": "liebig.methods.abs.sampler:AdaptiveBatching",
}


def _load(built_in: dict[str, str], base: Any) -> dict[str, Any]:
    """The classes of a table by kind. Packages add classes of several bases to the group; the others are left out."""
    table = extensions.extended(built_in, GROUP)
    classes = {kind: extensions.load(table, kind) for kind in table}
    classes = {kind: c for kind, c in classes.items() if isinstance(c, type) and issubclass(c, base)}
    for kind, c in classes.items():
        if tag(getattr(c, "Config", c)) != kind:
            raise RecipeError(
                f"{table[kind]} is installed as {kind!r}, but its Config has another kind",
                fix=f"in {table[kind]}, write: kind: Literal[{kind!r}] = {kind!r}",
            )
    return classes


@cache
def objectives() -> dict[str, type[FinetuneObjective]]:
    """Every fine-tuning objective by its kind, those of other packages included."""
    return _load(OBJECTIVES, FinetuneObjective)


@cache
def batchings() -> dict[str, type[Batching]]:
    """Every way of batching by its kind, those of other packages included."""
    return _load(BATCHINGS, Batching)


# The types of two tables of a recipe: one of these configs, told apart by `kind`. They are put together at run time.
_configs = tuple(objective.Config for objective in objectives().values())
objective_union: Any = Annotated[Union[_configs], Field(discriminator="kind")]  # noqa: UP007
batching_union: Any = Annotated[Union[tuple(batchings().values())], Field(discriminator="kind")]  # noqa: UP007


class FinetuneConfig(FinetuneRecipe):
    """Train a retriever on labelled queries, or an encoder on scored pairs and triplets."""

    objective: objective_union = Field(  # type: ignore[valid-type]
        default=Contrastive.Config(), description="Training objective."
    )
    batching: batching_union = Field(  # type: ignore[valid-type]
        default=RandomBatching(), description="How examples are grouped into batches."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> FinetuneConfig:
        if (self.model.source is None) != (self.tokenizer is not None):
            raise ValueError(
                "tokenizer is required for a new model, and only for that: other models have their own"
            )
        if self.objective.alone and self.batching.compares:
            raise ValueError(
                f"{self.objective.alone} looks at each example alone, so adaptive batching has no effect: "
                'set batching.kind = "random"'
            )
        if self.loop.patience is not None and self.evaluation.split is None:
            raise ValueError("loop.patience needs an evaluation: set evaluation.split")
        self.objective.check(self)
        return self
