"""Segments: the postings of some passages, written in one pass and never changed afterwards.

Files of a segment: the sorted terms, where the postings of each start, the documents and term frequencies of the
postings, the number of terms in each field of a document, the ids, and the texts for showing results. All are
memory-mapped; only the terms are read, into a dictionary, at the first query. Deleted documents are listed outside of
the segments.

Writing: words become numbers and are collected in one array; when it is full, its postings are counted and written as
a segment, and the next segment starts with an empty vocabulary. Memory: about 12 bytes per word of one segment (200 MB
for 16 million words) and its vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy
from liebig.base.errors import CorruptError
from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, Vocabulary
from liebig.bm25.kernels import Doubles, Int32s, Longs, count_documents, count_terms, fill_postings
from liebig.collection.lookup import (
    Ids,
    StringsWriter,
    index_ids,
    read_strings,
    write_strings,
)
from liebig.ragged import Strings

FIELDS = ("title", "body")
TF_TYPES = (np.uint8, np.uint16, np.float32)


@dataclass(frozen=True)
class Segment:
    """D passages, V terms, P postings."""

    path: Path
    starts: Longs  # V+1, into docs and tf
    docs: Int32s  # P, ascending within a term
    tf: NDArray[Any]  # P, weighted term frequency
    lengths: Int32s  # D x FIELDS, number of terms
    ids: Ids
    titles: Strings | None
    texts: Strings | None
    deleted: Longs  # numbers of deleted passages, ascending

    @classmethod
    def open(cls, path: Path, deleted: Path | None = None) -> Segment:
        """Memory-map a segment whose files have been verified; `deleted` is the file of its deleted passages.

        Everything but the postings is looked at here; those of a term when it is first asked for (`check`).
        """
        docs, ids = npy.load(path / "docs.npy", [np.int32], (None,)), Ids.open(path)
        lengths = npy.load(path / "lengths.npy", [np.int32], (len(ids), len(FIELDS)))
        if lengths.min(initial=0) < 0:
            raise npy.corrupt(path / "lengths.npy", "has a negative length")
        titles = texts = None
        if (path / "texts.npy").is_file():
            titles, texts = read_strings(path, "titles"), read_strings(path, "texts")
            if not len(titles) == len(texts) == len(ids):
                raise CorruptError("has another number of texts than of ids", file=path, fix="index again")
        gone = np.zeros(0, np.int64) if deleted is None else npy.load_numbers(deleted, len(ids)).copy()
        if deleted is not None and not npy.ascends(gone, strictly=True):
            raise npy.corrupt(deleted, "has numbers that are not in order")
        return cls(
            path=path,
            starts=npy.load_offsets(path / "starts.npy", end=len(docs)),
            docs=docs,
            tf=npy.load(path / "tf.npy", TF_TYPES, (len(docs),)),
            lengths=lengths,
            ids=ids,
            titles=titles,
            texts=texts,
            deleted=gone,
        )

    def check(self, first: int = 0, end: int | None = None) -> None:
        """Refuse postings of the terms from `first` to `end` that compiled loops would follow out of their arrays.

        The loops add to a window of passages, and take for granted that the passages of a term ascend.
        """
        starts = self.starts[first : len(self.starts) if end is None else end + 1]
        docs, tf = self.docs[starts[0] : starts[-1]], self.tf[starts[0] : starts[-1]]
        rises = docs[1:] > docs[:-1]
        borders = starts[1:-1] - starts[0]  # where the next term begins, its passages may be lower
        rises[borders[(borders > 0) & (borders < len(docs))] - 1] = True
        numbers = tf.dtype.kind != "f" or bool((np.isfinite(tf) & (tf >= 0)).all())
        if not (numbers and rises.all() and npy.within(docs, len(self))):
            raise CorruptError(
                "has postings that do not match the passages", file=self.path, fix="index again"
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def terms(self) -> dict[str, int]:
        """Term -> its number in this segment."""
        terms = read_strings(self.path, "terms").to_list()
        if len(terms) != len(self.starts) - 1:
            raise CorruptError(
                "has another number of terms than of postings", file=self.path, fix="index again"
            )
        return {term: number for number, term in enumerate(terms)}

    @cached_property
    def sorted_terms(self) -> list[str]:
        """Every term, in the order of their numbers, which is that of the characters."""
        return list(self.terms)

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        live = np.ones(len(self), bool)
        live[self.deleted] = False
        return live

    @cached_property
    def totals(self) -> Longs:
        """Number of terms of each field, over the live passages."""
        lengths = self.lengths[self.live] if len(self.deleted) else self.lengths
        return lengths.sum(0, dtype=np.int64)

    def frequency(self, term: int) -> int:
        """The number of live passages with a term."""
        documents = self.docs[self.starts[term] : self.starts[term + 1]]
        return int(self.live[documents].sum()) if len(self.deleted) else len(documents)


SEGMENT_WORDS = 16_000_000


def write_segments(
    passages: Iterable[Passage],
    root: Path,
    analyzer: Analyzer,
    weights: Doubles,
    *,
    first: int = 0,
    texts: bool = True,
    words: int = SEGMENT_WORDS,
) -> list[str]:
    """Write the passages as segments below `root`, numbered from `first`; returns their names."""
    names: list[str] = []
    rest = iter(passages)
    for head in rest:
        name = f"{first + len(names):05d}"
        (root / name).mkdir(parents=True)
        writer = SegmentWriter(root / name, analyzer, weights, texts)
        for passage in chain([head], rest):
            writer.add(passage)
            if writer.words >= words:
                break
        writer.close()
        names.append(name)
    return names


class SegmentWriter:
    """Collects passages one by one, and writes the segment when closed."""

    def __init__(self, path: Path, analyzer: Analyzer, weights: Doubles, texts: bool) -> None:
        self._path, self._weights, self._analyzer = path, weights, analyzer
        self._numbers: dict[str, int] = {}  # of the terms, shared by all languages
        self._vocabularies: dict[str, Vocabulary] = {}  # by language
        self._tokens, self._ends = array("i"), array("q")
        self._ids = StringsWriter(path, "ids")
        self._texts = [StringsWriter(path, name) for name in ("titles", "texts")] if texts else []

    @property
    def words(self) -> int:
        """Number of words so far."""
        return len(self._tokens)

    def add(self, passage: Passage) -> None:
        self._ids.append(passage.id)
        vocabulary = self._vocabularies.get(passage.language)
        if vocabulary is None:
            vocabulary = Vocabulary(self._analyzer.of(passage.language), self._numbers)
            self._vocabularies[passage.language] = vocabulary
        for writer, text in zip(self._texts, (passage.title, passage.text)):
            writer.append(text)
        for weight, text in zip(self._weights, (passage.title, passage.text)):
            if weight > 0 and text:
                self._tokens.extend(vocabulary.numbers(text))
            self._ends.append(len(self._tokens))

    def close(self) -> None:
        """Count the postings and write all files."""
        tokens, ends = np.frombuffer(self._tokens, np.int32), np.frombuffer(self._ends, np.int64)
        terms = list(self._numbers)
        order = sorted(range(len(terms)), key=lambda i: terms[i].encode("utf-8", "surrogatepass"))
        write_strings(self._path, "terms", (terms[i] for i in order))
        tokens = _renumber(tokens, order)
        counts = count_documents(tokens, ends, len(FIELDS), len(terms))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        docs, tf = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
        fill_postings(tokens, ends, self._weights, starts[:-1].copy(), docs, tf)
        lengths = count_terms(tokens, ends).reshape(-1, len(FIELDS))
        for name, values in (("starts", starts), ("docs", docs), ("tf", narrow(tf)), ("lengths", lengths)):
            npy.save(self._path / f"{name}.npy", values)
        for writer in (self._ids, *self._texts):
            writer.close()
        index_ids(self._path)


def _renumber(tokens: Int32s, order: Sequence[int]) -> Int32s:
    """The tokens with terms numbered in sorted order; -1 stays -1."""
    place = np.empty(len(order) + 1, np.int32)
    place[np.array(order, np.int64)] = np.arange(len(order), dtype=np.int32)
    place[-1] = -1
    return place[tokens]


def narrow(tf: NDArray[np.float32]) -> NDArray[Any]:
    """The frequencies in the smallest type that holds them exactly: nearly always bytes."""
    for kind in (np.uint8, np.uint16):
        if len(tf) == 0 or (tf.max() <= np.iinfo(kind).max and (tf == np.floor(tf)).all()):
            return tf.astype(kind)
    return tf
