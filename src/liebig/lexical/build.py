"""Passages to segments, in one pass and bounded memory.

Words become numbers as they come and are kept in one array; when it is full it is counted into postings and written
as a segment, and the next one begins with a fresh vocabulary. Memory: about 12 bytes a word of one segment (16
million words, so 200 MB) and its vocabulary. Speed: that of the regular expression that finds the words.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.data import npy
from liebig.data.ids import StringsWriter, index_ids, write_strings
from liebig.lexical.analysis import Analyzer, Vocabulary
from liebig.lexical.kernels import Doubles, Int32s, count_documents, count_terms, fill_postings
from liebig.lexical.segment import FIELDS
from liebig.records import Passage

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
