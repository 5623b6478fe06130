"""A segment: the postings of some passages, never changed once written.

Files: the terms in order, where each one's postings start, the documents and term frequencies of the postings, how
many terms each field of a document has, the ids, and the texts for showing what was found. All are mapped; only the
terms are read, into a dictionary, when the first query comes. Deleted documents are a list kept beside the segments.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy
from liebig.base.errors import CorruptError
from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, Vocabulary
from liebig.bm25.kernels import Doubles, Int32s, Longs, count_documents, count_terms, fill_postings
from liebig.collection.ids import Ids, StringsWriter, index_ids, read_strings, write_strings
from liebig.ragged import Strings

FIELDS = ("title", "body", "queries")


@dataclass(frozen=True)
class Segment:
    """D passages, V terms, P postings."""

    path: Path
    starts: Longs  # V+1, into docs and tf
    docs: Int32s  # P, rising for each term
    tf: NDArray[Any]  # P, weighted term frequency
    lengths: Int32s  # D x FIELDS, terms of each field
    ids: Ids
    titles: Strings | None
    texts: Strings | None
    deleted: Longs  # numbers of the passages that are no longer there, rising

    @classmethod
    def open(cls, path: Path, deleted: Longs | None = None) -> Segment:
        """Map a segment whose files have been checked."""
        has_texts = (path / "texts.npy").is_file()
        segment = cls(
            path=path,
            starts=npy.load(path / "starts.npy"),
            docs=npy.load(path / "docs.npy"),
            tf=npy.load(path / "tf.npy"),
            lengths=npy.load(path / "lengths.npy"),
            ids=Ids.open(path),
            titles=read_strings(path, "titles") if has_texts else None,
            texts=read_strings(path, "texts") if has_texts else None,
            deleted=np.zeros(0, np.int64) if deleted is None else deleted,
        )
        if len(segment.ids) != len(segment) or segment.starts[-1] != len(segment.docs):
            raise CorruptError("the files of the segment do not fit each other", file=path, fix="index again")
        return segment

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def terms(self) -> dict[str, int]:
        """Term -> its number here."""
        return {term: number for number, term in enumerate(read_strings(self.path, "terms").to_list())}

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Which passages are there."""
        live = np.ones(len(self), bool)
        live[self.deleted] = False
        return live

    @cached_property
    def totals(self) -> Longs:
        """Terms of each field, over the passages that are there."""
        lengths = self.lengths[self.live] if len(self.deleted) else self.lengths
        return lengths.sum(0, dtype=np.int64)

    def frequency(self, term: int) -> int:
        """In how many passages that are there a term occurs."""
        documents = self.docs[self.starts[term] : self.starts[term + 1]]
        return int(self.live[documents].sum()) if len(self.deleted) else len(documents)


# Passages to segments, in one pass and bounded memory.
#
# Words become numbers as they come and are kept in one array; when it is full it is counted into postings
# and written as a segment, and the next one begins with a fresh vocabulary. Memory: about 12 bytes a word
# of one segment (16 million words, so 200 MB) and its vocabulary. Speed: that of the regular expression
# that finds the words.

SEGMENT_WORDS = 16_000_000
Expanded = tuple[Passage, Sequence[str]]  # a passage and the queries generated for it


def plain(passages: Iterable[Passage]) -> Iterable[Expanded]:
    """Passages without generated queries."""
    return zip(passages, repeat(()))


def write_segments(
    passages: Iterable[Expanded],
    root: Path,
    analyzer: Analyzer,
    weights: Doubles,
    *,
    first: int = 0,
    texts: bool = True,
    words: int = SEGMENT_WORDS,
) -> list[str]:
    """Write the passages as segments below `root`, numbered from `first`; gives their names."""
    names: list[str] = []
    rest = iter(passages)
    for item in rest:
        name = f"{first + len(names):05d}"
        (root / name).mkdir(parents=True)
        writer = SegmentWriter(root / name, analyzer, weights, texts)
        for passage, queries in chain([item], rest):
            writer.add(passage, queries)
            if writer.words >= words:
                break
        writer.close()
        names.append(name)
    return names


class SegmentWriter:
    """Takes passages one by one, and writes the segment at the end."""

    def __init__(self, path: Path, analyzer: Analyzer, weights: Doubles, texts: bool) -> None:
        self._path, self._weights = path, weights
        self._vocabulary = Vocabulary(analyzer)
        self._tokens, self._ends = array("i"), array("q")
        self._ids = StringsWriter(path, "ids")
        self._texts = [StringsWriter(path, name) for name in ("titles", "texts")] if texts else []

    @property
    def words(self) -> int:
        """Words taken so far."""
        return len(self._tokens)

    def add(self, passage: Passage, queries: Sequence[str] = ()) -> None:
        """Take one passage, and the queries generated for it."""
        self._ids.append(passage.id)
        for writer, text in zip(self._texts, (passage.title, passage.text)):
            writer.append(text)
        for weight, text in zip(self._weights, (passage.title, passage.text, "\n".join(queries))):
            if weight > 0 and text:
                self._tokens.extend(self._vocabulary.numbers(text))
            self._ends.append(len(self._tokens))

    def close(self) -> None:
        """Count the postings and write everything."""
        tokens, ends = np.frombuffer(self._tokens, np.int32), np.frombuffer(self._ends, np.int64)
        terms = self._vocabulary.terms
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
    """Number the terms by their order; what is -1 stays so."""
    place = np.empty(len(order) + 1, np.int32)
    place[np.array(order, np.int64)] = np.arange(len(order), dtype=np.int32)
    place[-1] = -1
    return place[tokens]


def narrow(tf: NDArray[np.float32]) -> NDArray[Any]:
    """The smallest type that holds the frequencies exactly: bytes nearly always, as they are small whole numbers."""
    for kind in (np.uint8, np.uint16):
        if len(tf) == 0 or (tf.max() <= np.iinfo(kind).max and (tf == np.floor(tf)).all()):
            return tf.astype(kind)
    return tf
