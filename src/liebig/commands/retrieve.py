"""`liebig search`: reads queries and indexes, writes a TREC run for each system, and one for both together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.machine import chosen, cores
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Hit, Query
from liebig.base.workspace import Folder
from liebig.bm25.search import BM25
from liebig.collection.collection import Collection
from liebig.formats.trec import run_lines
from liebig.indexes import open_index
from liebig.measures import parse
from liebig.measures.evaluator import Evaluator, block_from_mapping, judgements_from_records
from liebig.search.systems import (
    DEPTH,
    WEIGHTS,
    Dense,
    Folded,
    Fuse,
    FusionWeight,
    Given,
    Hits,
    How,
    Hybrid,
    Lexical,
    System,
    best_weight,
    by_name,
    document_of,
    ranks_by,
    weighted_by,
)
from liebig.vectors.vector_folder import Vectors

# Recipes of searching and of mining.


class RankFusion(Config):
    """Reciprocal rank fusion."""

    kind: Literal["rrf"] = "rrf"
    damping: float = Field(default=60, gt=0, description="The constant added to every rank.")
    weight: float | None = Field(
        default=0.5, ge=0, le=1, description="Weight of BM25; none finds it on `dev`."
    )


class ScoreFusion(Config):
    """Weighted sum of normalised scores."""

    kind: Literal["weighted"] = "weighted"
    norm: Literal["minmax", "zscore"] = Field(default="minmax", description="How scores are made comparable.")
    weight: float | None = Field(
        default=None, ge=0, le=1, description="Weight of BM25; found on `dev` if not given."
    )


class SearchConfig(Config):
    """`liebig search`: the queries of a collection against BM25, a vector index, or both, to TREC runs."""

    collection: InputPath = Field(description="A collection with queries.")
    split: str | None = Field(
        None, description="The split whose queries are asked; all queries if not given."
    )
    bm25: InputPath | None = Field(None, description="A BM25 index.")
    dense: InputPath | None = Field(None, description="A vector index, or a folder of vectors.")
    model: InputPath | None = Field(None, description="Model of the queries; the index's own if not given.")
    vectors: InputPath | None = Field(None, description="Vectors of the queries, instead of a model.")
    query_length: int | None = Field(
        None, ge=4, description="Tokens of a query [default: as the model was trained, else its longest]."
    )
    k: int = Field(1000, ge=1, description="Passages of a query.")
    k1: float | None = Field(None, ge=0, description="BM25's k1, instead of the index's.")
    b: float | None = Field(None, ge=0, le=1, description="BM25's b, instead of the index's.")
    fusion: Annotated[RankFusion | ScoreFusion, Field(discriminator="kind")] = Field(
        RankFusion(), description="How BM25 and dense become one ranking: rrf or weighted."
    )
    dev: str = Field("dev", description="The split on which a fusion weight is found.")
    measure: str = Field("nDCG@10", description="The measure a fusion weight is chosen by.")
    fold: Literal["no", "max", "first", "mean"] = Field(
        "no", description="Fold passages to documents: best passage, first passage, mean."
    )
    exclude_self: bool = Field(
        False, description="Leave out the hit whose id is the query's own (ArguAna, Quora)."
    )
    threads: int | None = Field(None, ge=1, description="Threads; all cores if not given.")
    device: str | None = Field(None, description="Device of model and exact search; the GPU if there is one.")
    tag: str = Field("liebig", description="The last column of the runs.")

    @model_validator(mode="after")
    def _asks_something(self) -> SearchConfig:
        if self.bm25 is None and self.dense is None:
            raise ValueError("there is nothing to search: give bm25, dense, or both")
        return self


BATCH = 1024  # queries asked at once
T = TypeVar("T")


def run(config: SearchConfig, folder: Folder) -> None:
    """Write the runs."""
    collection = Collection(config.collection)
    systems = _systems(config, collection)
    summary: dict[str, object] = {"queries": config.split or "all", "k": config.k}
    asked = systems[0]
    if len(systems) == 2:
        weight = config.fusion.weight
        if weight is None:
            tuned = _tuned(systems, collection, config)
            weight, summary["tuned"] = tuned.weight, asdict(tuned)
        summary["weight"] = weight
        asked = Hybrid(systems, _fuse(config.fusion, weight))
    _write(folder, asked, collection, config)
    folder.write_json("search.json", summary)


def _write(folder: Folder, system: System, collection: Collection, config: SearchConfig) -> None:
    """Ask all queries once; what the parts of a hybrid found is written beside it."""
    parts = list(system.systems) if isinstance(system, Hybrid) else []
    names = [part.name for part in (*parts, system)]
    with ExitStack() as stack:
        bar = stack.enter_context(Progress("search", unit="queries"))
        files = [
            stack.enter_context((folder.path / f"{name}.trec").open("w", encoding="utf-8")) for name in names
        ]
        for batch in batches(collection.queries(config.split), BATCH):
            k = config.k + config.exclude_self
            answers = system.search_all(batch, k) if isinstance(system, Hybrid) else [system.search(batch, k)]
            for file, found in zip(files, answers):
                file.writelines(line + "\n" for line in run_lines(_hits(batch, found, config), config.tag))
            bar.advance(len(batch))


def _hits(queries: Sequence[Query], answers: Iterable[Hits], config: SearchConfig) -> Iterator[Hit]:
    for query, found in zip(queries, answers):
        kept = [pair for pair in found if not (config.exclude_self and pair[0] == query.id)][: config.k]
        yield from (Hit(query.id, id, score, rank) for rank, (id, score) in enumerate(kept, 1))


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, `size` at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _systems(config: SearchConfig, collection: Collection) -> list[System]:
    """BM25 first, then dense, as far as they are given."""
    systems: list[System] = []
    if config.bm25 is not None:
        lexical = Lexical(BM25.open(config.bm25, k1=config.k1, b=config.b), config.threads or cores())
        systems.append(_folded(lexical, config.fold, collection))
    if config.dense is not None:
        device = chosen(config.device)
        index = open_index(config.dense, threads=config.threads, device=device)
        given = Vectors.open(config.vectors) if config.vectors is not None else None
        dense = (
            Dense(index, config.model, device, config.query_length) if given is None else Given(index, given)
        )
        systems.append(_folded(dense, config.fold, collection, pieces=bool(index.about.get("pieces"))))
    return systems


def _folded(
    system: System, fold: How | Literal["no"], collection: Collection, *, pieces: bool = False
) -> System:
    """Documents in the place of passages where that is asked; passages in the place of pieces in any case."""
    if fold == "no":
        return Folded(system, "max") if pieces else system
    if not collection.has("passages"):
        return Folded(system, fold)
    return Folded(system, fold, partial(_owners, collection, pieces=pieces))


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
            fix="name the collection that the index was made of, or fold=no",
        )
    return {id: said.get(passage) or document_of(passage) for id, passage in passages.items()}


def _fuse(config: RankFusion | ScoreFusion, weight: float) -> Fuse:
    if isinstance(config, RankFusion):
        return ranks_by(weight, config.damping)
    return weighted_by(weight, config.norm)


def _tuned(systems: Sequence[System], collection: Collection, config: SearchConfig) -> FusionWeight:
    """The weight that does best on the dev split, asked and fused as deep as the queries will be."""
    judged = list(collection.judgements(config.dev))
    if not judged:
        raise DataError(
            f"the split {config.dev!r} has no judgements to find a weight on",
            file=config.collection,
            fix="name another with dev=, or set fusion.weight",
        )
    judgements, measure = judgements_from_records(judged), parse(config.measure)
    tried = [
        (weight, Evaluator(judgements, [measure], exclude_self=config.exclude_self)) for weight in WEIGHTS
    ]
    k = config.k + config.exclude_self
    for batch in batches(collection.queries(config.dev), BATCH):
        asked = [system.search(batch, max(k, DEPTH)) for system in systems]
        for weight, evaluator in tried:
            fuse = _fuse(config.fusion, weight)
            fused = {query.id: fuse(lists)[:k] for query, *lists in zip(batch, *asked)}
            places = {id: {hit[0]: -place for place, hit in enumerate(hits)} for id, hits in fused.items()}
            evaluator.add(
                block_from_mapping(places)
            )  # by places, because runs keep the order of equal scores
    tuned = best_weight([(weight, found.scores().means()[str(measure)]) for weight, found in tried])
    Progress("fusion").say(
        f"weight of BM25 {tuned.weight}: {measure} {tuned.value:.4f} on {len(judgements):,} queries of {config.dev}"
    )
    return tuned


STAGE = Stage(
    "retrieve",
    SearchConfig,
    run,
    "liebig retrieve runs/collection --bm25 runs/bm25 --dense runs/index --split test --out runs/retrieved",
    positional="collection",
)
