"""`liebig search`: reads queries and indexes, writes a TREC run for each system, and one for both together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from liebig.data.collection import Collection
from liebig.data.trec import run_lines
from liebig.data.vectors import Vectors
from liebig.errors import DataError
from liebig.index.opening import open_index
from liebig.lexical.bm25 import BM25
from liebig.machine import chosen, cores
from liebig.measures import parse
from liebig.measures.blocks import from_mapping
from liebig.measures.engine import Evaluator
from liebig.measures.judgements import from_records
from liebig.progress import Progress
from liebig.records import Hit, Query
from liebig.search.config import RankFusion, ScoreFusion, SearchConfig
from liebig.search.fold import Folded, How, by_name, document_of
from liebig.search.fuse import DEPTH, WEIGHTS, Fuse, Hybrid, Tuned, best_weight, ranks_by, weighted_by
from liebig.search.systems import Dense, Found, Given, Lexical, System
from liebig.workspace import Folder

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


def _hits(queries: Sequence[Query], answers: Iterable[Found], config: SearchConfig) -> Iterator[Hit]:
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


def _tuned(systems: Sequence[System], collection: Collection, config: SearchConfig) -> Tuned:
    """The weight that does best on the dev split, asked and fused as deep as the queries will be."""
    judged = list(collection.judgements(config.dev))
    if not judged:
        raise DataError(
            f"the split {config.dev!r} has no judgements to find a weight on",
            file=config.collection,
            fix="name another with dev=, or set fusion.weight",
        )
    judgements, measure = from_records(judged), parse(config.measure)
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
            evaluator.add(from_mapping(places))  # by places, because runs keep the order of equal scores
    tuned = best_weight([(weight, found.scores().means()[str(measure)]) for weight, found in tried])
    Progress("fusion").say(
        f"weight of BM25 {tuned.weight}: {measure} {tuned.value:.4f} on {len(judgements):,} queries of {config.dev}"
    )
    return tuned
