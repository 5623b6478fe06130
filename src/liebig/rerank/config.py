"""The recipes of `liebig rerank train` and `liebig rerank score`."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from liebig.config import Config, InputPath
from liebig.measures.names import known
from liebig.model.config import BackboneConfig, NewBackbone
from liebig.records import Title
from liebig.train.config import AdamWConfig, LoopConfig, OptimConfig, ScheduleConfig


class RerankTrainConfig(Config):
    """`liebig rerank train`: a cross-encoder on queries, their positives and hard negatives."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    tokenizer: InputPath | None = Field(default=None, description="Tokenizer folder, for a new model only.")
    collection: InputPath = Field(description="A collection with queries, passages and groups.")
    split: str = Field(default="train", description="The split to train on.")
    groups: tuple[InputPath, ...] = Field(
        default=(), description="Folders of liebig mine, joined [default: the collection's groups]."
    )
    limit: int | None = Field(default=None, ge=1, description="Train on so many queries only, drawn by seed.")
    negatives: int = Field(default=7, ge=1, description="Negatives of a query in a step.")
    query_length: int = Field(default=64, ge=4, description="Tokens of a query.")
    length: int = Field(default=256, ge=16, description="Tokens of query and passage together.")
    title: Title = Field(
        default="space", description="What stands between title and text: space, separator, or no title."
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="Dropout [default: the model's own].")
    dev: str | None = Field(default=None, description="A split with groups to evaluate on while training.")
    dev_groups: tuple[InputPath, ...] = Field(
        default=(), description="Folders with its groups, if elsewhere."
    )
    measures: tuple[str, ...] = Field(
        default=("RR@10", "nDCG@10"), description="Measures; the first decides which model is best."
    )
    optim: OptimConfig = Field(default=AdamWConfig(lr=2e-5), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=2, batch=16), description="Length, batch, precision, checkpoints, logs."
    )

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @field_validator("measures")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known(names)
        return names

    @model_validator(mode="after")
    def _sensible(self) -> RerankTrainConfig:
        if isinstance(self.model, NewBackbone) != (self.tokenizer is not None):
            raise ValueError("tokenizer is for a new model, which needs one; other models bring their own")
        if self.query_length + 8 > self.length:
            raise ValueError("length leaves no room for a passage: make it larger than query_length")
        if self.loop.patience is not None and self.dev is None:
            raise ValueError("loop.patience stops by dev, and nothing is evaluated: give dev")
        return self


class RerankScoreConfig(Config):
    """`liebig rerank score`: rerank a run, or score groups for soft labels."""

    models: tuple[InputPath, ...] = Field(
        min_length=1, description="Cross-encoders; the scores of several are averaged."
    )
    collection: InputPath = Field(description="The collection with the texts.")
    run: InputPath | None = Field(default=None, description="A TREC run to rerank.")
    depth: int = Field(
        default=100, ge=1, description="Hits of a query that are scored; the others follow them."
    )
    groups: InputPath | None = Field(
        default=None, description="A folder with groups to score, of liebig mine."
    )
    split: str = Field(default="train", description="The split of those groups.")
    title: Title | None = Field(
        default=None, description="What stands between title and text [default: as each model was trained]."
    )
    device: str | None = Field(default=None, description="cpu or cuda; the GPU if there is one.")
    tag: str = Field(default="rerank", description="The last column of the run.")

    @model_validator(mode="after")
    def _one_thing(self) -> RerankScoreConfig:
        if (self.run is None) == (self.groups is None):
            raise ValueError("give a run to rerank, or groups to score")
        return self
