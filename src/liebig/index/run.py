"""`liebig index`: reads vectors (and an older index), writes an index."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from liebig.data.lines import text_lines
from liebig.data.quantise import Floats, Type
from liebig.data.sources import DiskSource
from liebig.data.vectors import Shard, Vectors
from liebig.errors import DataError, RecipeError
from liebig.index.approximate import FaissIndex
from liebig.index.base import Index, Recall
from liebig.index.config import ExactConfig, FaissConfig, IndexConfig, MilvusConfig
from liebig.index.exact_index import ExactIndex, convert
from liebig.index.opening import open_index
from liebig.index.recall import draw, tune
from liebig.progress import Progress
from liebig.workspace import Folder

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
    from liebig.index.milvus import MilvusIndex

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
