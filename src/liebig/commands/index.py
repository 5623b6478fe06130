"""`liebig index`: reads vectors (and an older index), writes an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.formats.inputs import DiskSource
from liebig.formats.rows import text_lines
from liebig.indexes import open_index
from liebig.indexes.base import Index, Recall
from liebig.indexes.exact import ExactIndex, convert
from liebig.indexes.faiss import FaissIndex
from liebig.indexes.recall import draw, tune
from liebig.vectors.quantise import Floats, Type
from liebig.vectors.vector_folder import Shard, Vectors

# The recipe of a vector index.


class ExactConfig(Config):
    """Every vector is scored: right up to a few million passages, and always exact."""

    kind: Literal["exact"] = "exact"
    type: Literal["fp32", "fp16", "int8", "binary"] | None = Field(
        default=None, description="How vectors are stored; as they come, if not given."
    )


class FaissConfig(Config):
    """FAISS proposes, exact scores decide; recall is measured and recorded."""

    kind: Literal["faiss"] = "faiss"
    factory: str = Field(
        "auto", description='FAISS factory string ("IVF4096,PQ48", "HNSW32"), or auto by size.'
    )
    recall: float = Field(
        0.95, gt=0, le=1, description="Recall@k wanted; nprobe or ef is raised until it is reached."
    )
    recall_at: int = Field(100, ge=1, description="The k of the recall.")
    sample: int = Field(1000, ge=1, description="Queries that recall is measured with.")
    rescore: int | None = Field(
        None, ge=1, description="Proposals scored for each hit wanted; by structure if not given."
    )
    effort: int | None = Field(None, ge=1, description="nprobe or efSearch, instead of finding it.")


class MilvusConfig(Config):
    """A Milvus collection: embedded in the index folder, or a server by its address."""

    kind: Literal["milvus"] = "milvus"
    uri: str | None = Field(
        None, description="Address of a Milvus server; embedded (milvus-lite) if not given."
    )
    collection: str = Field("passages", description="Name of the Milvus collection.")
    index: str = Field("FLAT", description="Milvus index type: FLAT (exact), HNSW, IVF_FLAT, AUTOINDEX, ...")
    parameters: dict[str, int] = Field(
        {}, description="Build parameters of the index type, such as M or nlist."
    )
    search: dict[str, int] = Field(
        {}, description="Search parameters, such as ef or nprobe, instead of finding them."
    )
    recall: float = Field(0.95, gt=0, le=1, description="Recall@k wanted of an approximate type.")
    recall_at: int = Field(100, ge=1, description="The k of the recall.")
    sample: int = Field(1000, ge=1, description="Queries that recall is measured with.")


class IndexConfig(Config):
    """`liebig index`: vectors to an index, or more of them to one there is."""

    vectors: InputPath | None = Field(
        None, description="A folder of vectors (liebig encode); none only deletes."
    )
    base: InputPath | None = Field(None, description="An index to add to; its kind is kept.")
    delete: InputPath | None = Field(None, description="A file of ids to take out of `base`, one a line.")
    queries: InputPath | None = Field(None, description="Vectors of queries to measure recall with.")
    index: Annotated[ExactConfig | FaissConfig | MilvusConfig, Field(discriminator="kind")] = Field(
        ExactConfig(), description="exact, faiss or milvus."
    )
    seed: int = Field(0, description="Draws the training and recall samples.")
    rebuild: bool = Field(
        False, description="Build from the vectors alone: `base` is neither opened nor checked."
    )

    @model_validator(mode="before")
    @classmethod
    def _forget_base(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("rebuild") is True:
            return {**values, "base": None, "delete": None}
        return values

    @model_validator(mode="after")
    def _has_something_to_do(self) -> IndexConfig:
        if self.vectors is None and (self.base is None or self.rebuild):
            raise ValueError("there is nothing to index: give vectors, or a base to change")
        if self.delete is not None and self.base is None:
            raise ValueError("delete names vectors of base, and there is no base")
        return self


BATCH = 8192  # vectors sent to Milvus at once
SAMPLE = 1000  # queries that the recall of an older index is measured with again


def run(config: IndexConfig, folder: Folder) -> None:
    """Write the index."""
    vectors = Vectors.open(config.vectors) if config.vectors is not None else None
    with Progress("index", len(vectors) if vectors is not None else None, "vectors") as bar:
        if config.base is not None:
            base = open_index(config.base)
            _refuse_another(config, base)
            index = _extended(base, vectors, config.delete, folder.path, bar)
        else:
            assert vectors is not None, "the recipe checks this"
            index = _new(config.index, vectors, folder.path, config.seed, bar)
        _measure(index, config, vectors, bar)
        index.save(folder.path)
        bar.say(", ".join(f"{name} {value}" for name, value in index.info().items() if value is not None))


def _refuse_another(config: IndexConfig, base: Index) -> None:
    """An index that is added to stays what it is."""
    asked = sorted(config.index.model_fields_set - {"kind"})
    if "index" in config.model_fields_set and (asked or config.index.kind != base.kind):
        what = asked[0] if config.index.kind == base.kind else "kind"
        raise RecipeError(
            f"index.{what} = {getattr(config.index, what)}: base is of kind {base.kind}, and its settings are kept",
            file=config.base,
            fix="leave it out, or build anew from all vectors without base",
        )


def _new(
    config: ExactConfig | FaissConfig | MilvusConfig, vectors: Vectors, path: Path, seed: int, bar: Progress
) -> Index:
    if isinstance(config, MilvusConfig):
        return _milvus(config, vectors, bar)
    kind: Type = config.type if isinstance(config, ExactConfig) and config.type is not None else vectors.type
    exact = ExactIndex(kind, vectors.width, about=vectors.about)
    exact.take(_as(vectors, kind, path, 0))
    bar.advance(len(vectors))
    if isinstance(config, ExactConfig):
        return exact
    return FaissIndex.build(exact, config.factory, rescore=config.rescore, seed=seed)


def _milvus(config: MilvusConfig, vectors: Vectors, bar: Progress) -> Index:
    from liebig.indexes.milvus import MilvusIndex

    index: Index = MilvusIndex.create(
        config.uri,
        config.collection,
        vectors.width,
        vectors.about,
        config.index,
        config.parameters,
        config.search,
    )
    _send(index, vectors, bar)
    return index


def _send(index: Index, vectors: Vectors, bar: Progress) -> None:
    for ids, rows in vectors.chunks(BATCH):
        index.add(ids, rows)
        bar.advance(len(ids))


def _as(vectors: Vectors, kind: Type, path: Path, first: int) -> list[Shard]:
    """The shards, converted where their type is another."""
    if vectors.type == kind:
        return list(vectors.shards)
    return convert(vectors.shards, path, kind, vectors.width, first)


def _extended(index: Index, vectors: Vectors | None, delete: Path | None, path: Path, bar: Progress) -> Index:
    if delete is not None:
        unknown = index.delete([line for _, line in text_lines(DiskSource(delete))])
        if unknown:
            bar.say(f"{len(unknown):,} ids to delete are not in the index, the first is {unknown[0]!r}")
    if vectors is None:
        return index
    if vectors.width != index.width:
        raise DataError(
            f"the vectors have width {vectors.width}, the index {index.width}",
            file=vectors.path,
            fix="encode them with the model of the index",
        )
    _add(index, vectors, path, bar)
    return index


def _add(index: Index, vectors: Vectors, path: Path, bar: Progress) -> None:
    if not isinstance(index, ExactIndex | FaissIndex):
        _send(index, vectors, bar)
        return
    bar.advance(len(vectors))
    if isinstance(index, ExactIndex):
        index.take(_as(vectors, index.type, path, len(index.shards)))
    else:
        shards = _as(vectors, index.exact.type, path, len(index.exact.shards))
        index.take(ExactIndex(index.exact.type, index.width, shards))


def _queries(path: Path, width: int) -> Floats:
    """All vectors of queries, in memory."""
    rows = [part for _, part in Vectors.open(path).chunks(BATCH)]
    return np.concatenate([np.zeros((0, width), np.float32), *rows])


def _measure(index: Index, config: IndexConfig, vectors: Vectors | None, bar: Progress) -> None:
    """Measure the recall of an approximate index, and tune it: a new one as the recipe says, an older one as before."""
    if index.exhaustive:
        return
    shards = index.exact.shards if isinstance(index, FaissIndex) else _source(index, config, vectors)
    if shards is None:
        index.recall = None
        bar.say("recall is not measured again: not all vectors of this Milvus collection are at hand")
        return
    before, effort, count = index.recall, None, SAMPLE
    wish = before or Recall(100, 0.95, 0.0, 0)
    if config.base is None and not isinstance(config.index, ExactConfig):
        wish = Recall(config.index.recall_at, config.index.recall, 0.0, 0)
        effort, count = _given_effort(config.index), config.index.sample
    elif before is not None and before.wanted == 0:
        effort = index.setting.effort if isinstance(index, FaissIndex) else None
    queries = _queries(config.queries, index.width) if config.queries is not None else None
    tune(index, draw(shards, wish.k, count, config.seed, queries), wish.wanted, bar.say, effort)


def _given_effort(config: FaissConfig | MilvusConfig) -> int | None:
    if isinstance(config, FaissConfig):
        return config.effort
    return next(iter(config.search.values()), None)


def _source(index: Index, config: IndexConfig, vectors: Vectors | None) -> list[Shard] | None:
    """The shards a Milvus collection was filled from, where they are all there is in it."""
    whole = vectors is not None and config.base is None and not any(len(s.deleted) for s in vectors.shards)
    return list(vectors.shards) if vectors is not None and whole else None


STAGE = Stage("index", IndexConfig, run, "liebig index runs/vectors --out runs/index", positional="vectors")
