"""`liebig search`: reads queries and indexes, writes a TREC run for each system, and one for both together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from typing import TypeVar

from liebig.data.collection import Collection
from liebig.data.trec import run_lines
from liebig.data.vectors import Vectors
from liebig.errors import DataError
from liebig.index.opening import open_index
from liebig.lexical.bm25 import BM25
from liebig.machine import checked, cores
from liebig.measures import parse
from liebig.measures.blocks import from_mapping
from liebig.measures.engine import evaluate
from liebig.measures.judgements import from_records
from liebig.progress import Progress
from liebig.records import Hit, Query
from liebig.search.config import RankFusion, ScoreFusion, SearchConfig
from liebig.search.fold import Folded, How, document_of
from liebig.search.fuse import Fuse, Hybrid, Tuned, ranks_by, tune, weighted_by
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
    """BM25 first, then dense, as far as they are given; vectors of pieces are folded whether asked for or not."""
    systems: list[System] = []
    how: How | None = None if config.fold == "no" else config.fold
    owner = _owners(collection)
    if config.bm25 is not None:
        lexical = Lexical(BM25.open(config.bm25, k1=config.k1, b=config.b), config.threads or cores())
        systems.append(lexical if how is None else Folded(lexical, how, owner))
    if config.dense is not None:
        index = open_index(config.dense, threads=config.threads, device=checked(config.device))
        given = Vectors.open(config.vectors) if config.vectors is not None else None
        dense = Dense(index, config.model, config.device) if given is None else Given(index, given)
        how = "max" if how is None and index.about.get("pieces") else how
        systems.append(dense if how is None else Folded(dense, how, owner))
    return systems


def _owners(collection: Collection) -> Callable[[str], str]:
    """From a passage to its document: what the passage says, else what stands before `#`."""
    has = collection.has("passages")

    def owner(id: str) -> str:
        if has and "#" not in id:
            return collection.passage(id).doc or id
        return document_of(id)

    return owner


def _fuse(config: RankFusion | ScoreFusion, weight: float) -> Fuse:
    if isinstance(config, RankFusion):
        return ranks_by(weight, config.damping)
    return weighted_by(weight, config.norm)


def _tuned(systems: Sequence[System], collection: Collection, config: SearchConfig) -> Tuned:
    """The weight that does best on the dev split."""
    queries = list(collection.queries(config.dev))
    judged = list(collection.judgements(config.dev))
    if not judged:
        raise DataError(
            f"the split {config.dev!r} has no judgements to find a weight on",
            file=config.collection,
            fix="name another with dev=, or set fusion.weight",
        )
    judgements = from_records(judged)
    measure = parse(config.measure)
    first, second = (system.search(queries, max(100, measure.cut or 100)) for system in systems)

    def value(answers: Iterable[Found]) -> float:
        found = {query.id: dict(hits) for query, hits in zip(queries, answers)}
        return evaluate([from_mapping(found)], judgements, [measure]).means()[str(measure)]

    tuned = tune(list(zip(first, second)), value, lambda weight: _fuse(config.fusion, weight))
    Progress("fusion").say(
        f"weight of BM25 {tuned.weight}: {measure} {tuned.value:.4f} on {len(queries):,} queries of {config.dev}"
    )
    return tuned
