"""The recipe of `liebig finetune`: a model, labelled data, what is learned from it, and which examples meet.

Objectives and ways of batching are told apart by `kind`; combinations that make no sense are refused with a sentence.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.records import Title
from liebig.measures.names import known
from liebig.model.loading import BackboneConfig, NewBackbone
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig


class ObjectiveConfig(Config):
    """What every objective says of itself."""

    @property
    def alone(self) -> str | None:
        """What looks at each example alone, whichever others are in its batch; none where they count."""
        return None


class ContrastiveConfig(ObjectiveConfig):
    """InfoNCE: the positive against all other passages of the batch (coCondenser, Eq. 14)."""

    kind: Literal["contrastive"] = Field(default="contrastive", description="InfoNCE over the batch")
    temperature: float = Field(default=1.0, gt=0, description="Scores are divided by it")
    similarity: Literal["dot", "cosine"] = Field(default="dot", description="How vectors are compared")
    mask: bool = Field(
        default=True, description="Passages judged relevant, or of the positive's text, are no negatives"
    )
    widths: tuple[int, ...] = Field(
        default=(), description="Matryoshka: the loss at each of these numbers of dimensions"
    )


class DistillConfig(ObjectiveConfig):
    """Learn a teacher's scores, which the groups file holds."""

    kind: Literal["distill"] = Field(default="distill", description="A teacher's scores")
    loss: Literal["kl", "margin-mse"] = Field(default="kl", description="What is compared with the teacher")
    over: Literal["batch", "group"] = Field(
        default="batch", description="The student's softmax runs over the batch or the query's own group"
    )
    temperature: float = Field(default=1.0, gt=0, description="The student's scores are divided by it")
    teacher_temperature: float = Field(
        default=1.0, gt=0, description="The teacher's scores are divided by it"
    )
    hard: float = Field(default=0.0, ge=0, description="Weight of InfoNCE on the labels beside it")
    similarity: Literal["dot", "cosine"] = Field(default="dot", description="How vectors are compared")
    mask: bool = Field(
        default=True, description="Passages judged relevant, or of the positive's text, are no negatives"
    )
    widths: tuple[int, ...] = Field(
        default=(), description="Matryoshka: the loss at each of these numbers of dimensions"
    )

    @property
    def alone(self) -> str | None:
        if self.hard or (self.loss == "kl" and self.over == "batch"):
            return None
        return self.loss if self.loss == "margin-mse" else "the KL divergence over a group"


class LtrConfig(ObjectiveConfig):
    """A head with parameters on the pair, softmax over the batch (ABS paper, Eq. 14): can rerank only."""

    kind: Literal["ltr"] = Field(default="ltr", description="A scoring head on query and passage")


class CosineConfig(ObjectiveConfig):
    """(cosine − score)² on scored pairs (STS; Condenser 4.2)."""

    kind: Literal["cosine"] = Field(default="cosine", description="Regression of the cosine on scored pairs")
    scale: float = Field(default=5.0, gt=0, description="Scores are divided by it: 5 for STS-b")

    @property
    def alone(self) -> str | None:
        return self.kind


class TripletConfig(ObjectiveConfig):
    """Triplet loss on tuples of texts (section distinction; Condenser 4.2)."""

    kind: Literal["triplet"] = Field(
        default="triplet", description="Nearer to the positive than the negative"
    )
    margin: float = Field(default=5.0, gt=0, description="By how much nearer")
    distance: Literal["euclidean", "cosine"] = Field(default="euclidean", description="How far is measured")

    @property
    def alone(self) -> str | None:
        return self.kind


Objective = Annotated[
    ContrastiveConfig | DistillConfig | LtrConfig | CosineConfig | TripletConfig, Field(discriminator="kind")
]


class RandomConfig(Config):
    """A new random order every epoch."""

    kind: Literal["random"] = Field(default="random", description="A new random order every epoch")


class SequentialConfig(Config):
    """The order of the file, every epoch."""

    kind: Literal["sequential"] = Field(default="sequential", description="The order of the file")


class AdaptiveConfig(Config):
    """Adaptive batch scheduling: examples whose passages are hard for each other's queries meet."""

    kind: Literal["adaptive"] = Field(default="adaptive", description="Adaptive batch scheduling")
    preset: Literal["liebig", "paper"] = Field(
        default="liebig",
        description="Our algorithm, or the paper's as written: one random start, then one state of swaps",
    )
    search: Literal["greedy", "beam"] = Field(default="greedy", description="How batches are improved")
    beam: int = Field(
        default=3, ge=1, description="Beam search: removals, additions and, but for the paper's, states kept"
    )
    candidates: int | Literal["auto", "all"] = Field(
        default="auto",
        description="Pairs nearest to a batch that may join it, both ways; all; or auto by its size",
    )
    lists: int = Field(
        default=100,
        ge=1,
        description="The paper's beam search: nearest passages and queries of each member that may join",
    )
    start: Literal["near", "random"] | None = Field(
        default=None,
        description="Batches start where pairs are hard for each other, or at random [default: the preset]",
    )
    parts: int = Field(
        default=1,
        ge=1,
        description="Divide the pairs at random every epoch; only those of a part meet: epochs differ more",
    )
    order: Literal["shuffled", "hard-first", "made"] | None = Field(
        default=None,
        description="Order of the batches within an epoch [default: shuffled, and as made for the paper's]",
    )
    run: InputPath | None = Field(
        default=None,
        description="A TREC run of the training queries (BM25), the similarity of the first epoch",
    )
    run_always: bool = Field(default=False, description="The run is the similarity of every epoch")
    ahead: bool = Field(
        default=False,
        description="Schedule the next epoch while this one trains, from the vectors at this one's start",
    )

    @model_validator(mode="after")
    def _has_a_run(self) -> AdaptiveConfig:
        if self.run_always and self.run is None:
            raise ValueError("run_always needs a run")
        if isinstance(self.candidates, int) and self.candidates < 1:
            raise ValueError("candidates is at least 1")
        if self.preset == "paper" and (self.candidates != "auto" or self.start == "near"):
            raise ValueError(
                "the paper's batches start at random and have lists: leave candidates and start out"
            )
        return self


Batching = Annotated[RandomConfig | SequentialConfig | AdaptiveConfig, Field(discriminator="kind")]


class LoraConfig(Config):
    """Small trained matrices beside the frozen ones of a large encoder; needs the extra `lora`."""

    rank: int = Field(default=16, ge=1, description="Inner width of the matrices")
    alpha: float = Field(default=32.0, gt=0, description="Their product counts alpha / rank times")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout before them")
    targets: tuple[str, ...] = Field(
        default=(), description="Last names of linear parts, as query or value [default: all of a layer]"
    )
    adapter: bool = Field(
        default=False, description="Keep them as adapter/ too, in peft's form; model/ is merged always"
    )


class DevConfig(Config):
    """Evaluation while training, by exact search or on each query's own candidates."""

    split: str | None = Field(default=None, description="The split to evaluate on; none if not given")
    collection: InputPath | None = Field(
        default=None, description="Its collection, if it is not that of the training data"
    )
    over: Literal["all", "candidates"] = Field(
        default="all", description="Rank all passages, or each query's positives among its group's negatives"
    )
    groups: tuple[InputPath, ...] = Field(
        default=(), description="Folders of liebig mine with the split's candidates [default: the collection]"
    )
    candidates: int = Field(default=99, ge=1, description="Negatives drawn for each query")
    passages: int | None = Field(
        default=None, ge=1, description="Search the judged passages and so many others, drawn at random"
    )
    measures: tuple[str, ...] = Field(
        default=("RR@10", "nDCG@10", "R@100"), description="Measures; the first decides which model is best"
    )

    @field_validator("measures")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known(names)
        return names


class FinetuneConfig(Config):
    """Train a retriever on labelled queries, or an encoder on scored pairs and triplets."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    tokenizer: InputPath | None = Field(default=None, description="Tokenizer folder, for a new model only.")
    collection: InputPath = Field(description="A collection with queries, passages and judgements or groups.")
    split: str = Field(default="train", description="The split to train on.")
    groups: tuple[InputPath, ...] = Field(
        default=(),
        description="Folders of liebig mine, joined [default: groups or judgements of the collection].",
    )
    relevant: int = Field(default=1, description="The least grade that makes a passage a positive.")
    limit: int | None = Field(
        default=None, ge=1, description="Train on so many examples only, drawn by seed."
    )
    limit_seed: int = Field(
        default=0, ge=0, description="Seed of that draw; smaller draws lie in larger ones."
    )
    objective: Objective = Field(default=ContrastiveConfig(), description="What is learned.")
    batching: Batching = Field(default=RandomConfig(), description="Which examples meet in a batch.")
    negatives: int = Field(default=7, ge=0, description="Negatives of a query in a step.")
    positives: int = Field(default=1, ge=1, description="Positives of a query in a step, at the most.")
    rotate: bool = Field(
        default=True, description="Other positives and negatives every epoch, as Tevatron v1."
    )
    hard: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Chance that a negative is a mined one, else a random passage of the collection.",
    )
    untied: bool = Field(default=False, description="Queries and passages have encoders of their own.")
    pooling: Literal["cls", "mean"] | None = Field(
        default=None, description="How vectors are made [default: as the model's folder says, else cls]."
    )
    title: Title | None = Field(
        default=None,
        description="What stands between title and text: a space, the separator token, or no title at all "
        "[default: the model's own, else space].",
    )
    query_length: int = Field(default=32, ge=4, description="Tokens of a query, special ones included.")
    passage_length: int = Field(default=128, ge=4, description="Tokens of a passage, special ones included.")
    query_prompt: str = Field(default="", description="Text before every query; the model's own if empty.")
    passage_prompt: str = Field(
        default="", description="Text before every passage; the model's own if empty."
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="Dropout [default: the model's own].")
    lora: LoraConfig | None = Field(
        default=None, description="Train an adapter and not the whole encoder, by peft."
    )
    optim: OptimConfig = Field(
        default=AdamWConfig(lr=5e-6), description="The optimiser; asam for few labels."
    )
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=3, batch=8), description="Length, batch, precision, checkpoints, logs."
    )
    evaluation: DevConfig = Field(default=DevConfig(), description="Evaluation while training.")

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @model_validator(mode="after")
    def _sensible(self) -> FinetuneConfig:
        for check in (
            _tokenizer_of_a_new_model,
            _scheduling_counts,
            _pairs_are_of_one_kind,
            _something_to_contrast,
            _ltr_reranks,
            _teachers_score_what_is_mined,
            _patience_watches_dev,
        ):
            check(self)
        return self


def _tokenizer_of_a_new_model(config: FinetuneConfig) -> None:
    if isinstance(config.model, NewBackbone) != (config.tokenizer is not None):
        raise ValueError("tokenizer is for a new model, which needs one; other models bring their own")


def _scheduling_counts(config: FinetuneConfig) -> None:
    alone = config.objective.alone
    if alone and isinstance(config.batching, AdaptiveConfig):
        raise ValueError(
            f"{alone} looks at each example alone, so adaptive batching changes nothing: "
            'set batching.kind = "random"'
        )


def _pairs_are_of_one_kind(config: FinetuneConfig) -> None:
    if config.objective.kind in ("cosine", "triplet") and config.untied:
        raise ValueError(f"{config.objective.kind} compares texts of one kind: leave untied out")


def _something_to_contrast(config: FinetuneConfig) -> None:
    if (
        config.loop.batch == 1
        and config.negatives == 0
        and config.objective.kind in ("contrastive", "distill", "ltr")
    ):
        raise ValueError(
            "a batch of one query without negatives has nothing to contrast: give loop.batch = 2"
        )


def _ltr_reranks(config: FinetuneConfig) -> None:
    dev = config.evaluation
    if config.objective.kind == "ltr" and dev.split is not None and dev.over == "all":
        raise ValueError("ltr scores pairs and cannot search: evaluate over candidates")


def _teachers_score_what_is_mined(config: FinetuneConfig) -> None:
    if config.objective.kind == "distill" and config.hard < 1.0:
        raise ValueError("random negatives have no teacher's score: set hard = 1")


def _patience_watches_dev(config: FinetuneConfig) -> None:
    if config.loop.patience is not None and config.evaluation.split is None:
        raise ValueError("loop.patience stops by dev, and nothing is evaluated: give evaluation.split")
