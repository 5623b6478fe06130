"""The summary that `liebig init` writes and prints: counts, lengths, samples and warnings.

`Census` counts while the records are written, `summarise` turns the counts into a summary with warnings, and `show`
prints it. Samples are the records with the smallest id hashes: uniform, reproducible, and without a second pass.
Memory: 4 bytes per record for its length, 16 more per query.
"""

from __future__ import annotations

import heapq
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from liebig.base.progress import visible
from liebig.base.records import Document, Passage, Query, ScoredPair, Tuple
from liebig.collection import Collection
from liebig.collection.lookup import Hashes, hash64, hash_all
from liebig.collection.writer import SINGULAR, CollectionWriter
from liebig.formats import Match
from liebig.formats.items import Item
from liebig.formats.ledger import Ledger
from liebig.formats.output import collapse

SAMPLES = 3
SHOWN = 300
LONGEST = (1 << 32) - 1


@dataclass
class Kind:
    """What was seen of one kind of record."""

    lengths: array[int] = field(default_factory=lambda: array("I"))
    empty: int = 0
    samples: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)

    def see(self, name: str, text: str, row: dict[str, Any]) -> None:
        """One more record, its text, and what a sample of it shows."""
        self.lengths.append(min(len(text), LONGEST))
        self.empty += not text or text.isspace()
        key = -hash64(name)
        if len(self.samples) < SAMPLES:
            heapq.heappush(self.samples, (key, len(self.lengths), row))
        elif key > self.samples[0][0]:
            heapq.heapreplace(self.samples, (key, len(self.lengths), row))

    def shown(self) -> list[dict[str, Any]]:
        """The samples, in the order of the file."""
        return [row for _, _, row in sorted(self.samples, key=lambda entry: entry[1])]


@dataclass(frozen=True)
class CensusMark:
    """What a census had counted at one time."""

    kinds: dict[str, tuple[int, int, list[tuple[int, int, dict[str, Any]]]]]
    counts: Counter[str]
    queries: int


class Census:
    """Counts over all records of a collection."""

    def __init__(self) -> None:
        self.kinds: defaultdict[str, Kind] = defaultdict(Kind)
        self.counts: Counter[str] = Counter()
        self._queries, self._words = array("Q"), array("Q")

    def mark(self) -> CensusMark:
        """What is counted now, to come back to."""
        kinds = {
            name: (len(kind.lengths), kind.empty, list(kind.samples)) for name, kind in self.kinds.items()
        }
        return CensusMark(kinds, self.counts.copy(), len(self._queries))

    def back_to(self, mark: CensusMark) -> None:
        """Forget all that was counted since the mark."""
        for name in list(self.kinds):
            if name not in mark.kinds:
                del self.kinds[name]
                continue
            count, empty, samples = mark.kinds[name]
            kind = self.kinds[name]
            kind.empty, kind.samples = empty, list(samples)
            del kind.lengths[count:]
        self.counts = mark.counts.copy()
        del self._queries[mark.queries :], self._words[mark.queries :]

    def see(self, item: Item) -> None:
        """One more record."""
        record = item.record
        if isinstance(record, Document):
            self._see_document(record)
        elif isinstance(record, Passage):
            row = {"id": record.id, "title": record.title, "text": _short(record.text)}
            self.kinds["passages"].see(
                record.id, record.text, row | ({"doc": record.doc} if record.doc else {})
            )
            self.counts["passages with a document"] += bool(record.doc)
        elif isinstance(record, Query):
            self._see_query(record)
        elif isinstance(record, Tuple):
            row = {"anchor": _short(record.anchor), "positive": _short(record.positive)}
            row |= {"negatives": str(len(record.negatives))}
            self.kinds["tuples"].see(record.anchor + record.positive, record.anchor + record.positive, row)
        elif isinstance(record, ScoredPair):
            row = {"a": _short(record.a), "b": _short(record.b), "score": str(record.score)}
            self.kinds["pairs"].see(record.a + record.b, record.a + record.b, row)

    def _see_document(self, record: Document) -> None:
        text = record.text
        row = {"id": record.id, "title": record.title, "text": _short(text)}
        headings = [section.heading for section in record.sections if section.heading]
        self.kinds["documents"].see(record.id, text, row | ({"headings": headings[:6]} if headings else {}))
        self.counts["sections"] += len(record.sections)
        self.counts["paragraphs"] += sum(len(section.paragraphs) for section in record.sections)

    def _see_query(self, record: Query) -> None:
        row: dict[str, Any] = {"id": record.id, "text": _short(record.text)}
        self.kinds["queries"].see(
            record.id, record.text, row | ({"answers": list(record.answers[:3])} if record.answers else {})
        )
        self.counts["queries with answers"] += bool(record.answers)
        self._queries.append(hash64(record.id))
        self._words.append(hash64(collapse(record.text).casefold()))

    def words_of(self, queries: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The hashes of these queries' words; a query that is not known stands for itself."""
        known = np.frombuffer(self._queries, np.uint64) if self._queries else np.empty(0, np.uint64)
        if not len(known):
            return queries
        words = np.frombuffer(self._words, np.uint64)
        order = np.argsort(known)
        place = np.minimum(np.searchsorted(known, queries, sorter=order), len(known) - 1)
        return np.where(known[order[place]] == queries, words[order[place]], queries)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# Each check below yields a few warnings at most. The checks use the hashes collected while the records were written,
# plus one more pass over judgements and groups: a few seconds of sorting for 21 M passages.

EDGES = (0, 1, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
EXAMPLES = 3
CHUNK = 1 << 17
Warnings = Iterator[dict[str, Any]]


def summarise(
    folder: Path, found: Sequence[Match], writer: CollectionWriter, census: Census
) -> dict[str, Any]:
    """The summary of a collection that was just written."""
    collection = Collection(folder)
    return {
        "sources": [{"path": f.source.label, "format": f.format.name, "because": f.why} for f in found],
        "counts": {**writer.counts, **{name: n for name, n in census.counts.items() if n}},
        "repeated": dict(writer.repeated),
        "lengths": {name: lengths(kind) for name, kind in census.kinds.items()},
        "samples": {name: kind.shown() for name, kind in census.kinds.items()},
        "warnings": [warning for check in CHECKS for warning in check(collection, writer, census)],
    }


def lengths(kind: Kind) -> dict[str, Any]:
    """How long the texts of a kind are, in characters: total, quartiles, and a histogram."""
    found = np.frombuffer(kind.lengths, np.uint32)
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75)).tolist()
    counts = np.bincount(np.searchsorted(EDGES, found, side="right") - 1, minlength=len(EDGES))
    ends = (*(edge - 1 for edge in EDGES[1:]), int(found.max()))
    histogram = [{"from": a, "to": b, "count": int(n)} for a, b, n in zip(EDGES, ends, counts) if n]
    return {
        "total": int(found.sum(dtype=np.int64)),
        "shortest": int(found.min()),
        "quarter": low,
        "median": middle,
        "three quarters": high,
        "longest": int(found.max()),
        "histogram": histogram,
    }


def warning(check: str, count: int, sentence: str, examples: Iterable[str] = ()) -> dict[str, Any]:
    """One thing to look at."""
    return {
        "check": check,
        "count": count,
        "sentence": sentence,
        "examples": list(islice(examples, EXAMPLES)),
    }


def file_warnings(ledger: Ledger) -> list[dict[str, Any]]:
    """Files that were left out, and those whose encoding is a guess."""
    found: list[dict[str, Any]] = []
    if count := len(ledger.errors):
        files = "file was" if count == 1 else "files were"
        names = (f"{PurePath(e.file or '').name} ({e.what})" for e in ledger.errors)
        found.append(warning("skipped", count, f"{count:,} {files} skipped; skipped.txt says why", names))
    if count := len(ledger.guessed):
        files = "file is" if count == 1 else "files are"
        names = (f"{PurePath(name).name} ({encoding})" for name, encoding in ledger.guessed.items())
        found.append(
            warning("encoding", count, f"{count:,} {files} not UTF-8; the encoding was guessed", names)
        )
    return found


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
    """Judgements of passages or queries that are not there."""
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
    """How many names are not known, and the first of them."""
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
    """Queries with these words."""
    wanted = set(words[: 10 * EXAMPLES].tolist())
    for query in collection.queries():
        key = hash64(collapse(query.text).casefold())
        if key in wanted:
            wanted.discard(key)
            yield query.text


CHECKS = (empties, duplicates, shared_ids, dangling_judgements, dangling_groups, judged_twice, leaks)


# Printing the summary. Texts of the collection are escaped: their brackets and colons are not rich mark-up.

BAR = 40
BLOCKS = " ▏▎▍▌▋▊▉█"
MANY = 6


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print a summary."""
    _sources(summary["sources"], console)
    for name, columns in list(summary.get("tables", {}).items())[:MANY]:
        console.print(f"[bold]{escape(name)}[/bold]: {escape(columns)}")
    _counts(summary, console)
    for kind, found in summary["lengths"].items():
        _histogram(kind, found, console)
    for kind, samples in summary["samples"].items():
        _samples(kind, samples, console)
    _warnings(summary["warnings"], console)


def _sources(sources: list[dict[str, str]], console: Console) -> None:
    for source in sources[:MANY]:
        line = f"[bold]{escape(source['path'])}[/bold]: {source['format']} [dim]({escape(source['because'])})[/dim]"
        console.print(line)
    if len(sources) > MANY:
        console.print(f"and {len(sources) - MANY:,} more files")


def _counts(summary: Mapping[str, Any], console: Console) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, count in summary["counts"].items():
        table.add_row(escape(name), f"{count:,}")
    for name, count in summary["repeated"].items():
        table.add_row(f"{name} that came again, kept once", f"{count:,}")
    for name, found in summary["lengths"].items():
        table.add_row(f"characters of {name}", f"{found['total']:,}")
    console.print(table)


def _histogram(kind: str, found: Mapping[str, Any], console: Console) -> None:
    """Bars of how many texts are how long."""
    most = max((entry["count"] for entry in found["histogram"]), default=1)
    median = f"median {found['median']:,.0f}, longest {found['longest']:,}"
    console.print(f"[bold]Length of {kind}[/bold], characters: {median}")
    for entry in found["histogram"]:
        console.print(f"{entry['from']:>10,} + {bar(entry['count'] / most)} {entry['count']:,}")
    console.print()


def bar(share: float) -> str:
    """A bar of a share of the width, to an eighth of a character; never nothing."""
    eighths = max(1, round(share * BAR * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (BLOCKS[rest] if rest else "")


def _samples(kind: str, samples: list[dict[str, Any]], console: Console) -> None:
    console.print(f"[bold]Samples of {kind}[/bold]")
    for sample in samples:
        parts = [
            f"[dim]{name}[/dim] {escape(visible(_plain(value)))}" for name, value in sample.items() if value
        ]
        console.print("  " + "\n  ".join(parts))
        console.print()


def _plain(value: Any) -> str:
    text = " | ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(c if c.isprintable() else " " for c in text)


def _warnings(warnings: list[dict[str, Any]], console: Console) -> None:
    if not warnings:
        console.print("[green]Nothing suspicious.[/green]")
    for found in warnings:
        examples = ", ".join(_plain(name)[:60] for name in found["examples"])
        rest = f" [dim](e.g. {escape(examples)})[/dim]" if examples else ""
        console.print(f"[yellow]look at:[/yellow] {escape(found['sentence'])}{rest}")
