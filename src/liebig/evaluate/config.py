"""The recipes of `liebig evaluate`, `liebig compare` and `liebig curve`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath
from liebig.records import Title


class EvaluateConfig(Config):
    """`liebig evaluate RUN|MODEL COLLECTION…`: measures with intervals, the values of every query kept."""

    system: InputPath = Field(description="A run file, a folder with one run in it, or a model folder.")
    collections: tuple[InputPath, ...] = Field(
        description="Collections, BEIR folders or files to evaluate on; without `system`, the first is the system."
    )
    passages: InputPath | None = Field(
        None,
        description="Where the passages are, if not in the collection: questions often come in a file of their own.",
    )
    name: str | None = Field(
        None, description="What to call the system in tables; by default its file's name."
    )
    split: str | None = Field(
        None, description="The split; by default the suite's, else test, else the only one."
    )
    data: Literal["judgements", "answers", "pairs", "triplets", "candidates"] | None = Field(
        None, description="Which data of a collection to use, where it has several."
    )
    suite: str | None = Field(
        None,
        description="Conventions to follow, such as beir/arguana; by default recognised by the folder's name.",
    )
    measures: tuple[str, ...] = Field((), description="Measures, such as nDCG@10; by default the suite's.")
    exclude_self: bool | None = Field(
        None, description="Take a query's own id out of its hits; by default only where the suite says so."
    )
    patterns: bool = Field(False, description="Answers are regular expressions (CuratedTREC).")
    titles: bool = Field(False, description="An answer in the title of a passage counts too.")
    sections: int = Field(
        0,
        ge=0,
        description="Build this many section triplets from the collection's documents, and evaluate on them.",
    )
    sections_per_document: int = Field(
        10, ge=1, description="At most so many section triplets of one document."
    )
    candidates: InputPath | None = Field(
        None,
        description="A run to draw candidates from: rank one positive among 99 of its hits (the ABS paper).",
    )
    candidates_count: int = Field(99, ge=1, description="Candidates beside the positive.")
    candidates_depth: int = Field(1000, ge=1, description="Hits of the run the candidates are drawn from.")
    distance: Literal["euclidean", "cosine"] = Field("euclidean", description="Distance for triplets.")
    depth: int = Field(1000, ge=1, description="Hits to search for each query when evaluating a model.")
    title: Title | None = Field(
        None,
        description="What a model reads between title and text: a space, the separator token, or no title "
        "[default: as it was trained, else space].",
    )
    max_length: int | None = Field(
        None, ge=8, description="Tokens of a text that a model reads [default: the model's length of use]."
    )
    query_length: int | None = Field(
        None, ge=4, description="Tokens of a query [default: as the model was trained, else max_length]."
    )
    device: str = Field("auto", description="Where a model runs: auto, cpu, cuda.")
    level: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    samples: int = Field(10_000, ge=100, description="Bootstrap samples for the intervals.")
    seed: int = Field(0, description="Seed of the bootstrap and of built triplets.")

    @model_validator(mode="before")
    @classmethod
    def _first_is_the_system(cls, values: Any) -> Any:
        found = values.get("collections") if isinstance(values, dict) else None
        if (
            found is not None
            and "system" not in values
            and isinstance(found, list | tuple)
            and len(found) > 1
        ):
            return {**values, "system": found[0], "collections": found[1:]}
        return values


class CompareConfig(Config):
    """`liebig compare RUN…`: which systems differ, with paired tests and Holm's correction."""

    runs: tuple[InputPath, ...] = Field(
        description="Run files, or folders that liebig evaluate wrote; two or more."
    )
    qrels: InputPath | None = Field(None, description="A collection or judgements, to evaluate run files on.")
    names: tuple[str, ...] = Field(
        (),
        description="Names of the runs, in order; runs of one name are seeds of one system and are averaged.",
    )
    split: str | None = Field(None, description="The split of the collection.")
    measures: tuple[str, ...] = Field((), description="Measures to compare; by default the suite's.")
    baseline: str | None = Field(
        None, description="Compare every system with this one; by default all pairs."
    )
    test: Literal["randomisation", "t"] = Field("randomisation", description="The paired test.")
    alpha: float = Field(
        0.05, gt=0, lt=1, description="Differences with an adjusted p up to this are marked."
    )
    samples: int = Field(10_000, ge=100, description="Samples of the bootstrap and the randomisation test.")
    seed: int = Field(0, description="Seed of both.")


class CurveConfig(Config):
    """`liebig curve`: how a measure grows with the number of labels, from one evaluation a size."""

    results: tuple[InputPath, ...] = Field(
        description="Folders that liebig evaluate wrote, one a size and system."
    )
    sizes: tuple[str, ...] = Field(
        description="Labels each was trained on, in the same order: 1000, 10000, full."
    )
    names: tuple[str, ...] = Field(
        (), description="The system of each, in the same order; by default its own name."
    )
    measures: tuple[str, ...] = Field((), description="Measures to show; by default all.")
