"""The recipe of `liebig finetune`, and the tables of objectives and ways of batching that it can name.

An objective is one file and one line of `OBJECTIVES`: a subclass of `FinetuneObjective` with its Config. A way of
batching is one line of `BATCHINGS`: a subclass of `Batching`. Another package adds either through the entry point group
`liebig.methods`: the entry's name is the kind, its value `module:Class`.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import Field, model_validator

from liebig.base import extensions
from liebig.base.config import Config, InputPath, ModelPath, tag
from liebig.base.errors import RecipeError
from liebig.base.records import Title
from liebig.methods import GROUP
from liebig.methods.base import FinetuneObjective
from liebig.methods.contrastive import Contrastive
from liebig.methods.dev_evaluation import DevConfig
from liebig.methods.lora import LoraConfig
from liebig.methods.retrieval import Choice
from liebig.methods.samplers import Batching, RandomBatching
from liebig.model.loading import BackboneConfig
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig

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


class FinetuneConfig(Config):
    """Train a retriever on labelled queries, or an encoder on scored pairs and triplets."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    tokenizer: ModelPath | None = Field(
        default=None, description="Folder of the tokenizer; only for a new model."
    )
    collection: InputPath = Field(description="Collection with queries, passages and judgements or groups.")
    split: str = Field(default="train", description="Split to train on.")
    groups: tuple[InputPath, ...] = Field(
        default=(),
        description=(
            "Folders written by liebig mine, concatenated [default: the collection's groups or judgements]."
        ),
    )
    relevant: int = Field(default=1, description="Lowest grade of a positive passage.")
    limit: int | None = Field(
        default=None, ge=1, description="Train on only this many examples, drawn at random."
    )
    limit_seed: int = Field(
        default=0, ge=0, description="Seed of `limit`; a smaller sample is part of a larger one."
    )
    objective: objective_union = Field(  # type: ignore[valid-type]
        default=Contrastive.Config(), description="Training objective."
    )
    batching: batching_union = Field(  # type: ignore[valid-type]
        default=RandomBatching(), description="How examples are grouped into batches."
    )
    negatives: int = Field(
        default=Choice.negatives, ge=0, description="Number of negatives per query in a step."
    )
    positives: int = Field(
        default=Choice.positives, ge=1, description="Maximum number of positives per query in a step."
    )
    rotate: bool = Field(
        default=Choice.rotate,
        description="Use different positives and negatives in every epoch, as Tevatron v1 does.",
    )
    hard: float = Field(
        default=Choice.hard,
        ge=0,
        le=1,
        description=(
            "Probability that a negative is a mined one; otherwise it is a random passage of the collection."
        ),
    )
    untied: bool = Field(default=False, description="Train separate encoders for queries and passages.")
    pooling: Literal["cls", "mean"] | None = Field(
        default=None, description="Pooling of token vectors [default: the model's own, else cls]."
    )
    title: Title | None = Field(
        default=None,
        description=(
            "Put the title before the text: with a space, with the separator token, or not at all [default: "
            "the model's own, else space]."
        ),
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
    lora: LoraConfig | None = Field(
        default=None, description="Train a LoRA adapter instead of the whole encoder."
    )
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
