"""The summary that `liebig init` writes: counts, lengths, samples and warnings.

`Census` counts while the records are written, `summarise` turns the counts into a summary with warnings, and
show_summary.py prints it. Each check yields a few warnings at most. The checks use the hashes collected while the
records were written, plus one more pass over judgements and groups: a few seconds of sorting for 21 M passages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, islice
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.collection import Collection
from liebig.collection.census import Census, KindCensus
from liebig.collection.lookup import Hashes, hash64, hash_all
from liebig.collection.writer import SINGULAR, CollectionWriter
from liebig.formats import Match
from liebig.formats.ledger import Ledger
from liebig.formats.output import collapse

EXAMPLES = 3
CHUNK = 1 << 17
Warnings = Iterator[dict[str, Any]]


def summarise(
    folder: Path, matches: Sequence[Match], writer: CollectionWriter, census: Census
) -> dict[str, Any]:
    """The summary of a collection that was just written."""
    collection = Collection(folder)
    return {
        "sources": [{"path": f.source.label, "format": f.format.name, "because": f.why} for f in matches],
        "counts": {**writer.counts, **{name: n for name, n in census.counts.items() if n}},
        "repeated": dict(writer.repeated),
        "lengths": {name: lengths(kind) for name, kind in census.kinds.items()},
        "samples": {name: kind.shown() for name, kind in census.kinds.items()},
        "warnings": [warning for check in CHECKS for warning in check(collection, writer, census)],
    }


def lengths(kind: KindCensus) -> dict[str, Any]:
    """How long the texts of a kind are, in characters: total and quartiles."""
    lengths = np.frombuffer(kind.lengths, np.uint32)
    low, middle, high = np.quantile(lengths, (0.25, 0.5, 0.75)).tolist()
    return {
        "total": int(lengths.sum(dtype=np.int64)),
        "shortest": int(lengths.min()),
        "quarter": low,
        "median": middle,
        "three quarters": high,
        "longest": int(lengths.max()),
    }


def warning(check: str, count: int, sentence: str, examples: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "check": check,
        "count": count,
        "sentence": sentence,
        "examples": list(islice(examples, EXAMPLES)),
    }


def file_warnings(ledger: Ledger) -> list[dict[str, Any]]:
    """Files that were left out, and those whose encoding is a guess."""
    warnings: list[dict[str, Any]] = []
    if count := len(ledger.errors):
        files = "file was" if count == 1 else "files were"
        names = (f"{PurePath(e.file or '').name} ({e.what})" for e in ledger.errors)
        warnings.append(warning("skipped", count, f"{count:,} {files} skipped; skipped.txt says why", names))
    if count := len(ledger.guessed):
        files = "file is" if count == 1 else "files are"
        names = (f"{PurePath(name).name} ({encoding})" for name, encoding in ledger.guessed.items())
        warnings.append(
            warning("encoding", count, f"{count:,} {files} not UTF-8; the encoding was guessed", names)
        )
    return warnings


def _many(count: int, kind: str) -> str:
    return f"{count:,} {SINGULAR.get(kind, kind) if count == 1 else kind}"


def empties(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Records without text."""
    for name, kind in census.kinds.items():
        if kind.empty:
            yield warning("empty", kind.empty, f"{_many(kind.empty, name)} without any text")


def duplicates(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Records with the same text under different ids."""
    for name, table in writer.tables.items():
        contents, counts = np.unique(table.contents, return_counts=True)
        repeated = contents[counts > 1]
        more = int(counts.sum()) - len(contents)
        if more:
            places = np.flatnonzero(np.isin(table.contents, repeated[:EXAMPLES]))
            sentence = f"{_many(more, name)} with the text of another one, under a different id"
            yield warning("duplicate", more, sentence, _names(collection, name, table.offsets[places]))


def _names(collection: Collection, kind: str, offsets: NDArray[np.uint64]) -> Iterator[str]:
    """The ids of the records at these places of their file."""
    with (collection.path / f"{kind}.jsonl").open("rb") as file:
        for offset in offsets.tolist():
            file.seek(offset)
            yield json.loads(file.readline())["id"]


def shared_ids(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Ids that a query and a passage or document have in common: some tools drop such hits."""
    for name in ("passages", "documents"):
        queries = writer.tables["queries"]
        common = np.flatnonzero(np.isin(queries.ids, writer.tables[name].ids))
        if len(common):
            sentence = (
                f"{_many(len(common), 'queries')} with the id of a {SINGULAR[name]}: where they are unrelated, "
                "keep tools from dropping hits that have the query's id"
            )
            yield warning(
                "shared id", len(common), sentence, _names(collection, "queries", queries.offsets[common])
            )


def dangling_judgements(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    for split in collection.splits_of("judgements"):
        yield from _dangling(writer, "judgements", split, partial(_judged, collection, split))


def dangling_groups(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Training groups of passages or queries that are not there."""
    for split in collection.splits_of("groups"):
        yield from _dangling(writer, "groups", split, partial(_grouped, collection, split))


def _judged(collection: Collection, split: str) -> Iterator[tuple[str, str]]:
    return ((judgement.query, judgement.passage) for judgement in collection.judgements(split))


def _grouped(collection: Collection, split: str) -> Iterator[tuple[str, str]]:
    for group in collection.groups(split):
        yield from ((group.query, name) for name in (*group.positives, *group.negatives))


def _dangling(
    writer: CollectionWriter, kind: str, split: str, pairs: Callable[[], Iterator[tuple[str, str]]]
) -> Warnings:
    """Both sides of (query, passage) pairs against what the collection has; ids without any text are no mistake."""
    texts = np.union1d(writer.tables["passages"].ids, writer.tables["documents"].ids)
    queries = np.sort(writer.tables["queries"].ids)
    if not len(texts) and not len(queries):
        return
    for side, what, known in ((1, "passages", texts), (0, "queries", queries)):
        count, examples = _unknown((pair[side] for pair in pairs()), known)
        if count:
            sentence = f"{count:,} {kind} of {split} name {what} that are not in the collection"
            yield warning("dangling", count, sentence, examples)


def _unknown(names: Iterator[str], known: Hashes) -> tuple[int, list[str]]:
    count, examples = 0, list[str]()
    while chunk := list(islice(names, CHUNK)):
        missing = _absent(hash_all(chunk), known)
        count += len(missing)
        examples += [chunk[n] for n in missing[: EXAMPLES - len(examples)]]
    return count, examples


def _absent(hashes: Hashes, known: Hashes) -> NDArray[np.int64]:
    """Where hashes are that a sorted array does not hold."""
    if not len(known):
        return np.arange(len(hashes))
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.flatnonzero(known[place] != hashes)


def judged_twice(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Judgements of the same query and passage, in one split."""
    for split in collection.splits_of("judgements"):
        hashes = hash_all(f"{j.query}\t{j.passage}" for j in collection.judgements(split))
        more = len(hashes) - len(np.unique(hashes))
        if more:
            yield warning("judged twice", more, f"{more:,} judgements of {split} repeat a query and passage")


def leaks(collection: Collection, writer: CollectionWriter, census: Census) -> Warnings:
    """Queries of one split whose words are those of a query of another."""
    splits = {
        split: np.unique(census.words_of(hash_all(collection.query_ids(split))))
        for split in collection.splits
        if any(split in collection.splits_of(kind) for kind in ("judgements", "groups", "splits"))
    }
    for a, b in combinations(sorted(splits), 2):
        common = np.intersect1d(splits[a], splits[b])
        if len(common) and not b.startswith(a + "."):
            sentence = f"{_many(len(common), 'queries')} of {b} asked in {a} too"
            yield warning("leak", len(common), sentence, _texts(collection, common))


def _texts(collection: Collection, words: NDArray[np.uint64]) -> Iterator[str]:
    hashes = set(words[: 10 * EXAMPLES].tolist())
    for query in collection.queries():
        key = hash64(collapse(query.text).casefold())
        if key in hashes:
            hashes.discard(key)
            yield query.text


CHECKS = (empties, duplicates, shared_ids, dangling_judgements, dangling_groups, judged_twice, leaks)
