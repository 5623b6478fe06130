"""`liebig rerank train`: a cross-encoder learns from groups of positives and hard negatives.

Writes `model/`, which `liebig rerank score` and the other commands load. The model and its objective are in
`methods/reranker.py`, the course of a training in `train/stage.py`.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator

from liebig.base.config import Config as Recipe, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.records import Title
from liebig.base.rng import key
from liebig.base.workspace import Folder
from liebig.collection import Collection
from liebig.measures import MeasureName, parse_all
from liebig.measures.evaluator import judgements_from_mapping
from liebig.methods.labelled import LabelledData, cache_tokens, read_examples, tokenise
from liebig.methods.reranker import OBJECTIVES, GroupRanking, RerankBatches, Reranker
from liebig.methods.samplers import GroupChoice, random_batches
from liebig.model.backbone import Backbone, make_backbone
from liebig.model.cross_encoder import CrossEncoder, takes_segments
from liebig.model.loading import BackboneConfig, new_classifier
from liebig.ragged import Ragged
from liebig.text.tokenizer import Tokenizer
from liebig.train.loop import Epochs, LoopConfig
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig
from liebig.train.stage import MODEL, Data, TrainingStage


class RerankTraining(TrainingStage["RerankTraining.Config", Reranker]):
    """A cross-encoder learns to rank each query's positive above its negatives."""

    class Config(Recipe):
        """`liebig rerank train`: a cross-encoder on queries, their positives and hard negatives."""

        model: BackboneConfig = Field(description="The encoder to start from.")
        tokenizer: ModelPath | None = Field(
            default=None, description="Folder of the tokenizer; only for a new model."
        )
        collection: InputPath = Field(description="Collection with queries, passages and groups.")
        split: str = Field(default="train", description="Split to train on.")
        groups: tuple[InputPath, ...] = Field(
            default=(),
            description=("Folders written by liebig mine, concatenated [default: the collection's groups]."),
        )
        limit: int | None = Field(
            default=None, ge=1, description="Train on only this many queries, drawn at random."
        )
        negatives: int = Field(default=7, ge=1, description="Number of negatives per query in a step.")
        loss: Literal["group", "pointwise"] = Field(
            default="group",
            description="group ranks a query's passages; pointwise makes the sigmoid of a score a probability.",
        )
        length: int = Field(
            default=256, ge=16, description=("Maximum length of query and passage together, in tokens.")
        )
        title: Title = Field(
            default="space",
            description="Put the title before the text: with a space, with the separator token, or not at all.",
        )
        dropout: float | None = Field(
            default=None, ge=0, lt=1, description="Dropout [default: the model's own]."
        )
        dev: str | None = Field(default=None, description="Split with groups to evaluate on during training.")
        measures: tuple[MeasureName, ...] = Field(
            default=("RR@10", "nDCG@10"), description="Measures; the first decides which model is best."
        )
        optim: OptimConfig = Field(default=AdamWConfig(lr=2e-5), description="The optimiser.")
        schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="Learning rate schedule.")
        loop: LoopConfig = Field(
            default=LoopConfig(epochs=2, batch=16),
            description=("Training length, batch, precision, checkpoints and logs."),
        )

        @property
        def seed(self) -> int:
            return self.loop.seed

        @model_validator(mode="after")
        def _sensible(self) -> RerankTraining.Config:
            if (self.model.source is None) != (self.tokenizer is not None):
                raise ValueError(
                    "tokenizer is required for a new model, and only for that: other models have their own"
                )
            if self.loop.patience is not None and self.dev is None:
                raise ValueError("loop.patience needs an evaluation: set dev")
            return self

    label = "rerank"

    def start(self) -> Reranker:
        config, objective = self.config, OBJECTIVES[self.config.loss]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(key(config.seed, 1) >> 1))  # the fresh head is a function of the seed
            model = self._model(objective.activation)
        if config.dropout is not None:
            model.backbone.set_dropout(config.dropout)
        return objective(model)

    def _model(self, activation: str) -> CrossEncoder:
        config = self.config
        folder = config.model.folder()
        how: dict[str, Any] = {"length": config.length, "title": config.title, "activation": activation}
        if folder is not None:
            return CrossEncoder.start(folder, **how)
        assert config.tokenizer is not None, "a new model has a tokenizer"
        tokenizer = Tokenizer.from_folder(config.tokenizer)
        shape = make_backbone(config.model, tokenizer, config.seed).config
        segments = takes_segments(config.tokenizer, tokenizer)
        return CrossEncoder(Backbone(new_classifier(shape)), tokenizer, segments=segments, **how)

    def data(self, objective: Reranker) -> Data:
        config, model = self.config, objective.model
        collection = Collection(config.collection)
        labelled = read_examples(
            collection, config.split, groups=config.groups, queries=config.limit, subset_seed=config.seed
        )
        examples = labelled.examples
        if not len(examples.negatives.values):
            raise DataError(
                "no query has a negative, which training a reranker needs",
                file=config.collection,
                fix="make groups with liebig mine",
            )
        batches = RerankBatches(
            model,
            examples,
            *self._tokenise(labelled, model, "train"),
            random_batches(len(examples), config.loop.batch, config.seed, self.world.size),
            GroupChoice(config.negatives, seed=config.seed),
            self.world,
        )
        return Data(batches, Epochs(batches.sampler.steps), self._dev(collection, model))

    def _tokenise(self, labelled: LabelledData, model: CrossEncoder, name: str) -> tuple[Ragged, Ragged]:
        """The queries and the passages of examples as token ids."""
        query, passage = model.layouts()
        return (
            cache_tokens(self.cache / name / "queries", tokenise(labelled.queries, query), self.world),
            cache_tokens(self.cache / name / "passages", tokenise(labelled.passages, passage), self.world),
        )

    def _dev(self, collection: Collection, model: CrossEncoder) -> GroupRanking | None:
        if self.config.dev is None:
            return None
        labelled = read_examples(collection, self.config.dev)
        dev = labelled.examples
        grades = {
            query: {dev.passages[p]: 1 for p in dev.positives[i]} for i, query in enumerate(dev.queries)
        }
        texts = self._tokenise(labelled, model, "dev")
        return GroupRanking(dev, *texts, judgements_from_mapping(grades), parse_all(self.config.measures))

    def save(self, objective: Reranker) -> None:
        objective.model.backbone.config.reranker_loss = self.config.loss  # in config.json: what scores mean
        objective.model.save(self.folder / MODEL)


def run(config: RerankTraining.Config, folder: Folder) -> None:
    RerankTraining.launch(config, folder)


STAGE = Stage(
    "rerank train", RerankTraining.Config, run, "liebig rerank train recipe.toml --out runs/reranker"
)
