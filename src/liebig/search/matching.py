"""Which passages have a phrase, a word or a beginning of a word, for the query language.

BM25's postings give the passages that can match: those with every term of a phrase, or with a term that begins so.
Terms are stemmed and have no positions, so the text of these candidates is then looked at; a word to be excluded and
the terms that begin with a whole prefix need no look. Cost: the postings of the terms, and some microseconds per
candidate; it depends on how frequent the words are, not on how few passages match. A phrase of stop words alone, and a
retriever without BM25, look at every text. The masks of the last conditions are kept: a byte per passage each.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from liebig.bm25.analysis import HAS_UNSPACED, untagged, words
from liebig.bm25.index import Segment
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.search.filters import Owners
from liebig.search.query_language import WordCondition

KEPT = 32  # conditions whose masks are kept
EXPANSIONS = 4  # terms that stand for a prefix when passages are ranked
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class WordMatcher:
    """Evaluates conditions on the words of one collection."""

    def __init__(self, bm25: BM25 | None, collection: Collection, owners: Owners) -> None:
        self._bm25, self._collection, self._owners = bm25, collection, owners
        self._kept: OrderedDict[WordCondition, Mask] = OrderedDict()

    def having(self, condition: WordCondition) -> Mask:
        """Which passages have the words; whether that excludes them is for the caller."""
        if (mask := self._kept.get(condition)) is None:
            mask = self._kept[condition] = self._match(condition)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return mask

    def _match(self, condition: WordCondition) -> Mask:
        pattern = pattern_of(condition)
        mask = np.zeros(len(self._owners.hashes), bool)
        if self._bm25 is None:
            for passage in self._collection.passages():
                if _has(pattern, passage.title, passage.text):
                    mask[self._owners.places([passage.id])] = True
            return mask
        places = self._owners.places_in("bm25", [segment.ids for segment in self._bm25.segments])
        for start, segment in zip(self._bm25.starts.tolist(), self._bm25.segments):
            certain, possible = self._candidates(condition, segment)
            numbers = [
                n for n in possible[segment.live[possible]].tolist() if self._looked_at(pattern, segment, n)
            ]
            for some in (certain[segment.live[certain]], np.array(numbers, np.int64)):
                found = places[start + some]
                mask[found[found >= 0]] = True
        return mask

    def _candidates(self, condition: WordCondition, segment: Segment) -> tuple[Numbers, Numbers]:
        assert self._bm25 is not None, "its segments are asked"
        none = np.zeros(0, np.int64)
        if condition.kind == "prefix":
            prefix = condition.text.lower()
            each = [_beginning(segment, tag, prefix) for tag in self._bm25.settings.analyzer.tags]
            whole, part = (np.unique(np.concatenate(lists)) for lists in zip(*each))
            return whole, np.setdiff1d(part, whole, assume_unique=True)
        analyzer = self._bm25.settings.analyzer
        # A stop word of one language has no postings there, though it may be a word of others.
        distinct = dict.fromkeys(word for word in words(condition.text) if not analyzer.is_stop(word))
        if not distinct:
            return none, np.arange(len(segment))
        lists = sorted((_postings(segment, analyzer.variants(word)) for word in distinct), key=len)
        shared = reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), lists)
        return (shared, none) if condition.kind == "word" and len(distinct) == 1 else (none, shared)

    def _looked_at(self, pattern: re.Pattern[str], segment: Segment, number: int) -> bool:
        if segment.texts is None or segment.titles is None:
            passage = self._collection.passage(segment.ids[number])
            return _has(pattern, passage.title, passage.text)
        return _has(pattern, segment.titles[number], segment.texts[number])

    def expanded(self, prefix: str) -> list[str]:
        """The most frequent terms that begin so, to rank passages by; none where the prefix is a term itself.

        Where stemming left no such term, it is the longest one with which the prefix begins.
        """
        bm25, prefix = self._bm25, prefix.lower()
        if bm25 is None:
            return []
        tags = bm25.settings.analyzer.tags
        if bm25.frequency(*(tag + prefix for tag in tags)):
            return []
        terms = {
            term
            for segment in bm25.segments
            for tag in tags
            for term in segment.sorted_terms[slice(*_range(segment, tag + prefix))]
        }
        cut = (prefix[:length] for length in range(len(prefix), 1, -1))
        best = sorted(terms, key=lambda term: (-bm25.frequency(term), term))[:EXPANSIONS]
        known = (term for term in cut if bm25.frequency(*(tag + term for tag in tags)))
        return list(dict.fromkeys(map(untagged, best))) or list(known)[:1]

    def sharing(self, text: str) -> Mask | None:
        """Which passages have a word of a text; None where BM25 cannot say, or no passage has."""
        terms = [] if self._bm25 is None else self._bm25.settings.analyzer.terms(text)
        if self._bm25 is None or not any(map(self._bm25.frequency, terms)):
            return None
        mask = np.zeros(len(self._owners.hashes), bool)
        places = self._owners.places_in("bm25", [segment.ids for segment in self._bm25.segments])
        for start, segment in zip(self._bm25.starts.tolist(), self._bm25.segments):
            numbers = _postings(segment, terms)
            found = places[start + numbers[segment.live[numbers]]]
            mask[found[found >= 0]] = True
        return mask


def pattern_of(condition: WordCondition) -> re.Pattern[str]:
    """What the text of a passage must have: the words next to each other, whatever stands between them."""
    text = unicodedata.normalize("NFKC", condition.text)
    words = re.findall(r"\w+", text) or [text]  # a letter such as "ﾞ" is a mark in that form
    ends = "" if condition.kind == "prefix" or HAS_UNSPACED.match(words[-1][-1]) else r"(?!\w)"
    starts = "" if HAS_UNSPACED.match(words[0]) else r"(?<!\w)"
    return re.compile(starts + r"[\W_]+".join(map(re.escape, words)) + ends, re.IGNORECASE)


def _has(pattern: re.Pattern[str], *texts: str) -> bool:
    return any(
        pattern.search(text if text.isascii() else unicodedata.normalize("NFKC", text)) for text in texts
    )


def _postings(segment: Segment, terms: Iterable[str]) -> Numbers:
    """The passages with one of some terms, ascending."""
    return _numbered(segment, (segment.terms[term] for term in terms if term in segment.terms))


def _numbered(segment: Segment, numbers: Iterable[int]) -> Numbers:
    there = np.zeros(
        len(segment), bool
    )  # no sorting: frequent terms have as many postings as there are passages
    for number in numbers:
        segment.check(number, number + 1)
        there[segment.docs[segment.starts[number] : segment.starts[number + 1]]] = True
    return np.flatnonzero(there)


def _range(segment: Segment, prefix: str) -> tuple[int, int]:
    """The first term that begins so, and the first after it that does not."""
    terms = segment.sorted_terms
    return bisect_left(terms, prefix), bisect_left(terms, prefix + chr(0x10FFFF))


def _beginning(segment: Segment, tag: str, prefix: str) -> tuple[Numbers, Numbers]:
    """Passages with a term that begins so behind its tag, and those with a term whose words may, which stemming cut
    or changed.

    English "university" has the term "univers", and "happy" has "happi": a word can begin with the prefix although
    its term is shorter, or differs from the prefix in its last letter.
    """
    certain = range(*_range(segment, tag + prefix))
    near = set(range(*_range(segment, tag + prefix[:-1]))) - set(certain) if len(prefix) > 3 else set()
    shorter = (segment.terms.get(tag + prefix[:length]) for length in range(2, len(prefix)))
    possible = near | {number for number in shorter if number is not None}
    whole = _numbered(segment, certain)
    return whole, np.setdiff1d(_numbered(segment, sorted(possible)), whole, assume_unique=True)
