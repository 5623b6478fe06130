"""`liebig retrieve`: the queries of a collection against a retriever, or against indexes; a TREC run of each system.

A retriever's folder answers with the system its build chose, or with `system`; indexes with BM25, dense, or both fused.
What the parts of a hybrid found is written beside it, in the same search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.machine import chosen, cores
from liebig.base.parts import clear_pieces, in_pieces
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Hit, Query
from liebig.base.workspace import Folder
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.formats.trec import run_lines
from liebig.indexes import open_index
from liebig.search.fusion import Hits, weighted_by
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import SystemName
from liebig.search.systems import (
    DenseSystem,
    Folded,
    Hybrid,
    Lexical,
    QueryEncoder,
    StoredVectors,
    System,
    by_name,
    of_texts,
)
from liebig.vectors import Vectors, document_of


class RetrieveConfig(Config):
    """`liebig retrieve`: the queries of a collection against a retriever, or against indexes, to TREC runs."""

    collection: InputPath = Field(description="Collection with queries.")
    split: str | None = Field(None, description="Split whose queries are searched [default: all queries].")
    retriever: InputPath | None = Field(
        None, description="A retriever's folder, made by liebig build, instead of indexes."
    )
    system: SystemName | None = Field(
        None,
        description="Of a retriever: the system that answers [default: the one its build chose; reranked with a "
        "reranker].",
    )
    reranker: ModelPath | None = Field(
        None, description="Of a retriever: a cross-encoder for reranked [default: the folder's own]."
    )
    filters: dict[str, str | list[str]] = Field(
        {}, description="Of a retriever: metadata fields, each with its value or a list of accepted values."
    )
    bm25: InputPath | None = Field(None, description="BM25 index.")
    dense: InputPath | None = Field(None, description="Vector index, or folder of vectors.")
    model: ModelPath | None = Field(
        None, description=("Model that encodes the queries [default: the index's own].")
    )
    vectors: InputPath | None = Field(None, description="Vectors of the queries, instead of a model.")
    query_length: int | None = Field(
        None,
        ge=4,
        description="Maximum length of a query in tokens [default: as in training, else the model's maximum].",
    )
    k: int = Field(1000, ge=1, description="Number of passages per query.")
    k1: float | None = Field(None, ge=0, description="k1 of BM25 [default: the index's].")
    b: float | None = Field(None, ge=0, le=1, description="b of BM25 [default: the index's].")
    weight: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Weight of BM25 beside dense, where both are given; scores are brought to [0, 1].",
    )
    fold: bool = Field(False, description="Fold passages into documents, scored by the best passage.")
    exclude_self: bool = Field(False, description="Remove a query's own id from its hits (ArguAna, Quora).")
    threads: int | None = Field(None, ge=1, description="Number of threads [default: all cores].")
    device: str | None = Field(
        None, description=("Device of the model and of exact search [default: the GPU if there is one].")
    )
    tag: str = Field("liebig", description="Last column of the runs.")

    @model_validator(mode="after")
    def _searches_something(self) -> RetrieveConfig:
        given = {name for name, value in self if value != type(self).model_fields[name].default}
        if self.retriever is not None and (extra := sorted(given & INDEX_OPTIONS)):
            raise ValueError(f"a retriever has indexes and a weight of its own: leave out {', '.join(extra)}")
        if self.retriever is None and (extra := sorted(given & {"system", "filters", "reranker"})):
            raise ValueError(f"only a retriever has {' and '.join(extra)}: name one with retriever")
        if self.retriever is None and self.bm25 is None and self.dense is None:
            raise ValueError("there is nothing to search: give retriever, bm25, dense, or bm25 and dense")
        return self


INDEX_OPTIONS = {"bm25", "dense", "model", "vectors", "query_length", "k1", "b", "weight"}
BATCH = 1024  # queries asked at once


def run(config: RetrieveConfig, folder: Folder) -> None:
    """Write the runs, and `search.json` with the settings."""
    collection = Collection(config.collection)
    summary: dict[str, object] = {"queries": config.split or "all", "k": config.k}
    if config.retriever is not None:
        system = _of_retriever(config, config.retriever, summary)
    else:
        system = _of_indexes(config, collection, summary)
    if _write(folder, system, collection, config):
        folder.write_json("search.json", summary)
        clear_pieces(folder)


def _of_retriever(config: RetrieveConfig, path: Path, summary: dict[str, object]) -> System:
    """The system of a retriever's folder, as `Retriever.search` composes it."""
    device = chosen(config.device)
    generation = Retriever.from_folder(path, device=device, reranker=config.reranker).current
    name = summary["system"] = generation.name_of(config.system, config.reranker)
    passing = generation.passing(config.filters) if config.filters else None
    system = generation.systems(passing, config.threads or cores())[name]
    if not config.fold:
        return system
    return Folded(system, partial(_owners, generation.collection, pieces=False))


def _of_indexes(config: RetrieveConfig, collection: Collection, summary: dict[str, object]) -> System:
    """BM25, dense, or both fused."""
    systems = _systems(config, collection)
    if len(systems) == 1:
        return systems[0]
    summary["weight"] = config.weight
    return Hybrid(systems, lambda _: weighted_by(config.weight, "minmax"))


def _write(folder: Folder, system: System, collection: Collection, config: RetrieveConfig) -> bool:
    """Ask all queries once; what the parts of a hybrid found is written beside it."""

    def ask(batch: list[Query]) -> dict[str, Iterable[str]]:
        answer = system.answer(batch, config.k + config.exclude_self)
        lists = {**answer.parts, system.name: answer.hits}
        return {
            f"{name}.trec": run_lines(_hits(batch, hits, config), config.tag) for name, hits in lists.items()
        }

    with Progress("retrieve", unit="queries") as bar:
        whole = in_pieces(folder, collection.queries(config.split), BATCH, ask, bar.advance)
    if whole:
        (folder.path / f"{system.name}.trec").touch()  # there is a run even if there is no query
    return whole


def _hits(queries: Sequence[Query], lists: Iterable[Hits], config: RetrieveConfig) -> Iterator[Hit]:
    for query, hits in zip(queries, lists):
        kept = [pair for pair in hits if not (config.exclude_self and pair[0] == query.id)][: config.k]
        yield from (Hit(query.id, id, score, rank) for rank, (id, score) in enumerate(kept, 1))


def _systems(config: RetrieveConfig, collection: Collection) -> list[System]:
    """BM25 first, then dense, as far as they are given."""
    systems: list[System] = []
    if config.bm25 is not None:
        lexical = Lexical(BM25.open(config.bm25, k1=config.k1, b=config.b), config.threads or cores())
        systems.append(_folded(lexical, config.fold, collection))
    if config.dense is not None:
        device = chosen(config.device)
        index = open_index(config.dense, threads=config.threads, device=device)
        vectors = (
            QueryEncoder(index, config.model, device, config.query_length)
            if config.vectors is None
            else StoredVectors(Vectors.open(config.vectors))
        )
        pieces = bool(index.about.get("pieces"))
        dense = DenseSystem(index, vectors) if config.fold else of_texts(index, vectors)
        systems.append(_folded(dense, config.fold, collection, pieces=pieces))
    return systems


def _folded(system: System, fold: bool, collection: Collection, *, pieces: bool = False) -> System:
    """Documents in the place of passages, or of pieces of them, where that is wanted."""
    if not fold:
        return system
    if not collection.has("passages"):
        return Folded(system)
    return Folded(system, partial(_owners, collection, pieces=pieces))


def _owners(collection: Collection, ids: Iterable[str], *, pieces: bool) -> dict[str, str]:
    """From passages, or pieces of them, to their documents: what a passage says, else what its id does."""
    passages = by_name(ids) if pieces else {id: id for id in ids}
    named = set(passages.values())
    said = {passage.id: passage.doc for passage in collection.some_passages(named)}
    unknown = [id for id in named - said.keys() if document_of(id) == id]
    if unknown and not pieces:
        raise DataError(
            f"{len(unknown)} passages that were found are not in the collection, such as {min(unknown)!r}",
            file=collection.path,
            fix="name the collection that the index was made of, or leave out fold",
        )
    return {id: said.get(passage) or document_of(passage) for id, passage in passages.items()}


STAGE = Stage(
    "retrieve",
    RetrieveConfig,
    run,
    "liebig retrieve runs/collection --retriever runs/articles --split test --out runs/retrieved",
    positional="collection",
    in_parts=True,
)
