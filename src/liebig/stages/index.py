"""`liebig index`: reads vectors (and perhaps an older index), writes an index.

What differs between back ends is in their classes (`liebig.indexes`); this command builds, or extends and deletes,
then measures the recall of an approximate index and tunes it, and saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, model_validator

from liebig.base.config import InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.indexes import back_ends, config_choice, open_index
from liebig.indexes.base import CHUNK, ChangeConfig, Index
from liebig.indexes.exact import ExactIndex
from liebig.indexes.recall import draw, tune
from liebig.vectors import Shard, Vectors

if TYPE_CHECKING:
    BackEndConfig = Index.Config
else:
    BackEndConfig = config_choice()  # back ends of other packages included


class IndexConfig(ChangeConfig):
    """`liebig index`: an index of vectors, or more of them added to an index."""

    vectors: InputPath | None = Field(
        None, description="Folder of vectors written by liebig encode; leave it out to only delete."
    )
    queries: InputPath | None = Field(None, description="Query vectors to measure recall with.")
    index: Annotated[BackEndConfig, Field(discriminator="kind")] = Field(
        ExactIndex.Config(), description="Kind of the back end, and its options."
    )
    seed: int = Field(0, ge=0, description="Seed of the training and recall samples.")

    @model_validator(mode="after")
    def _has_something_to_do(self) -> IndexConfig:
        if self.vectors is None and self.base is None:
            raise ValueError("nothing to index: give vectors, or a base to change")
        return self


def run(config: IndexConfig, folder: Folder) -> None:
    vectors = Vectors.open(config.vectors) if config.vectors is not None else None
    with Progress("index", len(vectors) if vectors is not None else None, "vectors") as bar:
        if config.base is not None:
            index = _changed(config, vectors, folder, bar)
        else:
            assert vectors is not None, "the config checks this"
            back_end = back_ends()[config.index.kind]
            index = back_end.build(config.index, vectors, folder.path, seed=config.seed, done=bar.advance)
        if not index.exhaustive:
            _reach_recall(index, config, vectors, bar)
        index.save(folder.path)
        bar.say(", ".join(f"{name} {value}" for name, value in index.info().items() if value is not None))


def _changed(config: IndexConfig, vectors: Vectors | None, folder: Folder, bar: Progress) -> Index:
    """The base without what is deleted and with what is added; its kind and settings are kept."""
    assert config.base is not None, "there is a base to change"
    index = open_index(config.base)
    given = sorted(config.index.model_fields_set - {"kind"})
    if "index" in config.model_fields_set and (given or config.index.kind != index.kind):
        name = given[0] if config.index.kind == index.kind else "kind"
        raise RecipeError(
            f"index.{name} = {getattr(config.index, name)}: base is of kind {index.kind}, and its settings are kept",
            file=config.base,
            fix="leave it out, or build a new index from all vectors without base",
        )
    if vectors is not None and vectors.width != index.width:
        raise DataError(
            f"the vectors have width {vectors.width}, the index {index.width}",
            file=vectors.path,
            fix="encode them with the model of the index",
        )
    if config.delete is not None:
        unknown = index.delete(config.ids_to_delete())
        if unknown:
            bar.say(f"{len(unknown):,} ids to delete are not in the index, the first is {unknown[0]!r}")
    if vectors is not None:
        index.extend(vectors, folder.path, done=bar.advance)
    return index


def _reach_recall(index: Index, config: IndexConfig, vectors: Vectors | None, bar: Progress) -> None:
    """Measure the recall of an approximate index and tune it: a new one as configured, an older one as before."""
    shards: Sequence[Shard] | None = index.stored()
    if shards is None and vectors is not None and config.base is None:
        # The folder that a new index was filled from will do, unless a deleted vector would be found in it.
        shards = None if any(len(shard.deleted) for shard in vectors.shards) else vectors.shards
    if shards is None:
        index.recall = None
        bar.say(f"recall is not measured again: not all vectors of this {index.kind} index are on disk")
        return
    goal = config.index.goal if config.base is None else index.goal
    queries = None
    if config.queries is not None:
        rows = [part for _, part in Vectors.open(config.queries).chunks(CHUNK)]
        queries = np.concatenate([np.zeros((0, index.width), np.float32), *rows])
    tune(index, draw(shards, goal.k, goal.sample, config.seed, queries), goal, bar.say)


STAGE = Stage("index", IndexConfig, run, "liebig index runs/vectors --out runs/index", positional="vectors")
