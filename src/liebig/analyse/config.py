"""The recipes of `liebig analyse attention`, `neighbours`, `space`, `errors` and `leakage`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from liebig.config import Config, InputPath

Depth = Annotated[int, Field(ge=1)]


class AttentionConfig(Config):
    """`liebig analyse attention MODEL…`: entropy of CLS attention per layer, several models in one plot."""

    models: tuple[InputPath, ...] = Field(description="Model folders.")
    texts: InputPath = Field(description="A collection whose sections (or passages) are read.")
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    origins: tuple[str, ...] = Field(
        (),
        description="For each model, the name of the model it was fine-tuned from, or - for none: "
        "both get one colour, the fine-tuned one dashed, and how far its attention moved is said.",
    )
    count: int = Field(1000, ge=1, description="Texts, drawn at random.")
    max_length: int = Field(128, ge=4, description="Tokens of a text that are read.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, description="Seed of the draw.")


class NeighboursConfig(Config):
    """`liebig analyse neighbours`: nb-recall^n@k between the retrievers of two training stages."""

    first: tuple[InputPath, ...] = Field(min_length=1, description="Runs of the first stage, one a system.")
    second: tuple[InputPath, ...] = Field(
        min_length=1, description="Runs of the second stage, in the same order."
    )
    names: tuple[str, ...] = Field((), description="Names of the systems, in order.")
    n: tuple[Depth, ...] = Field(
        (50, 100), min_length=1, description="How many hits of the second stage should be covered."
    )
    k: tuple[Depth, ...] = Field(
        (10, 20, 50, 100, 200, 500, 1000), min_length=1, description="Depths of the first stage."
    )


class SpaceConfig(Config):
    """`liebig analyse space MODEL…`: alignment, uniformity, isotropy, hubness, effective dimension."""

    models: tuple[InputPath, ...] = Field(description="Model folders.")
    collection: InputPath = Field(
        description="A collection with passages, and with judgements, which give the pairs of the alignment."
    )
    split: str | None = Field(
        None, description="The split whose queries and relevant passages are the pairs."
    )
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    count: int = Field(10_000, ge=10, description="Passages, drawn at random.")
    k: int = Field(10, ge=1, description="Neighbours that count for hubness.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, description="Seed of the draw.")


class ErrorsConfig(Config):
    """`liebig analyse errors A B`: which queries A wins and loses against B, with the texts, by kind of query."""

    runs: tuple[InputPath, InputPath] = Field(description="The runs of A and of B.")
    collection: InputPath = Field(description="The collection they were searched in.")
    split: str | None = Field(None, description="The split.")
    measure: str = Field("nDCG@10", description="The measure that decides who wins.")
    names: tuple[str, ...] = Field((), description="Names of A and B.")
    examples: int = Field(20, ge=0, description="Wins and losses to show, each.")


class LeakageConfig(Config):
    """`liebig analyse leakage`: evaluation texts that stand in pre-training text."""

    evaluation: InputPath = Field(description="The collection, or file of questions, that is evaluated on.")
    corpus: tuple[InputPath, ...] = Field(description="Collections or files that were trained on.")
    split: str | None = Field(
        None, description="The split whose queries are checked; by default all queries."
    )
    length: int = Field(13, ge=2, description="Words in a run; shorter texts count as one run.")
    shortest: int = Field(5, ge=1, description="Texts with fewer words are not checked.")
    examples: int = Field(50, ge=0, description="Leaks to list.")
