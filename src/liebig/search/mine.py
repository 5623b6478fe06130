"""Hard negatives: passages that a run ranks high and that are no positives, for fine-tuning.

Candidates of a query come from a range of ranks, are drawn or taken from the top, and go through the filters one by
one until enough are kept, so texts are looked up only for those drawn. Every passage dropped is counted with its
reason. Memory: 16 bytes per query and run; a million queries stream through. A draw depends on seed, query and source.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.records import Group, Passage
from liebig.collection.lookup import hash64
from liebig.collection.offset_index import OffsetIndex


class QueryLines:
    """A file whose first column is the id of a query, read query by query: a run or judgements of millions of queries.

    Columns end at white space, or at the separator. Lines of a query may stand in several places. 16 bytes per query in
    memory, one read each.
    """

    def __init__(self, path: Path, separator: bytes | None = None) -> None:
        self._path, self._separator = path, separator
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=path, fix="check the path") from None
        hashes, starts, last, at = array("Q"), array("Q"), b"", 0
        for line in self._file:
            query = line.split(separator, 1)[0] if line.strip() else last
            if query != last:
                hashes.append(hash64(query.decode("utf-8", "replace")))
                starts.append(at)
                last = query
            at += len(line)
        self._index = OffsetIndex.build(np.asarray(hashes), np.asarray(starts))

    def lines(self, query: str) -> list[list[str]]:
        """The columns of every line of a query, in the order of the file."""
        rows, key = [], query.encode()
        for start in self._index.candidates(query):
            self._file.seek(start)
            for line in self._file:
                columns = line.rstrip(b"\r\n").split(self._separator)
                if line.strip() and columns[0] != key:
                    break
                if line.strip():
                    rows.append([column.decode("utf-8", "replace") for column in columns])
        return rows

    def hits(self, query: str) -> list[tuple[str, float]]:
        """Passages and scores of a TREC run, best first; of equal scores the one that stands first."""
        hits = []
        for columns in self.lines(query):
            if len(columns) != 6:
                raise DataError(
                    f"a line of query {query!r} has {len(columns)} columns instead of 6",
                    file=self._path,
                    fix="give a TREC run",
                )
            hits.append((columns[2], self._score(columns[4], query)))
        return sorted(hits, key=lambda pair: -pair[1])

    def _score(self, text: str, query: str) -> float:
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise DataError(
                f"the score {text!r} of query {query!r} is not a number",
                file=self._path,
                fix="give a TREC run",
            )
        return score


# Texts equal to a positive's, or nearly: false negatives that judgements do not know of. Nearly equal is told by word
# triples, because that also finds a passage that was cut a little differently.

WORD = re.compile(r"\w+")
Triples = frozenset[tuple[str, ...]]


def words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def triples(words: Sequence[str]) -> Triples:
    """Three words in a row, all of them; of fewer words those there are."""
    if len(words) < 3:
        return frozenset([tuple(words)]) if words else frozenset()
    return frozenset(zip(words, words[1:], words[2:]))


def shared(a: Triples, b: Triples) -> float:
    """The share of the smaller set that is in the other; 0 where one is empty."""
    smaller = min(len(a), len(b))
    return len(a & b) / smaller if smaller else 0.0


def nearly(words: Sequence[str], other: Triples, share: float) -> bool:
    """Whether the triples of these words and the others share so much; most share so few that a count says no."""
    most = sum(map(other.__contains__, zip(words, words[1:], words[2:])))
    least = min(len(set(words)) - 2, len(other))  # every word but the last two begins a triple of its own
    if most < share * least - 1e-9:
        return False
    return shared(triples(words), other) >= share


Lookup = Callable[[str], Passage]
Hit = tuple[str, float]


@dataclass(frozen=True)
class Take:
    """What is taken from one run: ranks from `first` to `depth`, `keep` of them, at random or from the top."""

    run: QueryLines
    first: int = 1
    depth: int = 200
    keep: int = 30
    random: bool = True


@dataclass
class Miner:
    """Groups of queries and their negatives; `counts` says what happened to every candidate looked at."""

    sources: Sequence[Take]
    lookup: Lookup
    duplicates: float | None = 0.8
    seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def mine(self, queries: Iterable[str], positives: Callable[[str], Sequence[str]]) -> Iterator[Group]:
        for query in queries:
            judged = tuple(dict.fromkeys(positives(query)))
            if not judged:
                self.counts["queries without a positive"] += 1
                continue
            yield self._group(query, judged)

    def _group(self, query: str, judged: tuple[str, ...]) -> Group:
        check = _Check(self, judged)
        negatives: dict[str, None] = {}
        for place, source in enumerate(self.sources):
            negatives |= dict.fromkeys(self._from(query, place, source, check, set(negatives)))
        self.counts["queries"] += 1
        self.counts["negatives"] += len(negatives)
        self.counts["queries without a negative"] += not negatives
        return Group(query, judged, tuple(negatives))

    def _from(self, query: str, place: int, source: Take, check: _Check, taken: set[str]) -> list[str]:
        hits = source.run.hits(query)
        if not hits:
            self.counts["queries that a run does not have"] += 1
        candidates = hits[source.first - 1 : source.depth]
        if source.random:
            draws = rng.uniform(rng.key(self.seed, hash64(query), place), np.arange(len(candidates)))
            candidates = [candidates[i] for i in np.argsort(draws, kind="stable")]
        kept: list[str] = []
        for id, _ in candidates:
            if len(kept) == source.keep:
                break
            if id not in taken and check.passes(id):
                kept.append(id)
        self.counts["queries with fewer negatives than wanted"] += len(kept) < source.keep
        return kept


class _Check:
    """The filters of one query, in the order of their cost."""

    def __init__(self, miner: Miner, judged: Sequence[str]) -> None:
        self._miner, self._own = miner, frozenset(judged)
        texts = [self._text(id) for id in judged] if miner.duplicates is not None else []
        texts_words = [words(text) for text in texts]
        self._words = set(map(tuple, texts_words))
        self._triples = [triples(own) for own in texts_words]

    def passes(self, id: str) -> bool:
        """Whether a candidate is a negative; if not, why is counted."""
        reason = "judged positive" if id in self._own else self._same_text(id)
        if reason:
            self._miner.counts[f"dropped: {reason}"] += 1
        return not reason

    def _same_text(self, id: str) -> str:
        if self._miner.duplicates is None:
            return ""
        try:
            text = self._text(id)
        except DataError:
            return "not in the collection"
        own = words(text)
        if tuple(own) in self._words:
            return "the text of a positive"
        near = any(nearly(own, other, self._miner.duplicates) for other in self._triples)
        return "nearly the text of a positive" if near else ""

    def _text(self, id: str) -> str:
        return self._miner.lookup(id).text
