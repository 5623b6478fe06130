"""The recipes of the stages that only `liebig build` and `liebig update` have. Imports nothing heavy."""

from __future__ import annotations

from pydantic import Field

from liebig.config import Config, InputPath


class QuestionsConfig(Config):
    """Known-item questions made from the corpus itself."""

    collection: InputPath = Field(description="A collection with passages.")
    most: int = Field(400, ge=0, description="At most so many questions.")
    pool: int = Field(2000, ge=1, description="Passages they are asked against, at most.")
    seed: int = Field(0, description="Draws questions and pool.")


class CheckConfig(Config):
    """Which encoder and which system answer the known-item questions best."""

    questions: InputPath = Field(description="What the questions stage wrote.")
    bm25: InputPath = Field(description="BM25 index of the pool.")
    start: InputPath = Field(description="Vectors of the pool by the encoder as it came.")
    trained: InputPath | None = Field(
        None, description="Vectors by the encoder after training on the corpus."
    )
    seed: int = Field(0, description="Divides the questions in two halves.")


class ModelConfig(Config):
    """A model taken into the retriever's folder."""

    model: InputPath = Field(description="The model's folder.")


class MeanConfig(Config):
    """The mean of an encoder's weights before and after training."""

    start: InputPath = Field(description="The model before.")
    trained: InputPath = Field(description="The same model after.")


class ChangesConfig(Config):
    """What is new, changed and gone between two generations of a collection."""

    before: InputPath = Field(description="The collection that the indexes were made of.")
    now: InputPath = Field(description="The collection as it is now.")
    index: InputPath = Field(description="The vectors of the older one.")


class CompactConfig(Config):
    """Vectors of many updates put together again."""

    index: InputPath = Field(description="The vectors.")
