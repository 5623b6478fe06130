"""Documents that are copies of others, wholly or nearly: the same text under another name, a link, a quoted mail.

A document is its set of three words in a row. Their hashes fall into 64 bins, of which each keeps its smallest (one
permutation hashing, Shrivastava 2017): the share of equal bins estimates the Jaccard similarity of two documents.
Documents that agree in four bins of one of 16 bands meet as candidates; the one that comes first is the original.
Memory: 64 numbers per document in a file, and about 30 bytes per document beside its id. Cost: a pass over the
documents, one sort per band.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base.records import Document

BINS, ROWS = 64, 4  # numbers of a signature, and those of a band
ALIKE = 52  # equal bins from which two documents are nearly identical: a similarity of .8
SHORT = 24  # triples of words up to which all bins have to be equal
NEAR = 32  # earlier documents of a bucket that one is compared with
MULTIPLIER, OFFSET = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)  # FNV-1a
GOLDEN, MIX1, MIX2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
EMPTY = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class DocumentCopies:
    """Copies by their ids, each with the id of its original; and the originals with the ids of their copies."""

    originals: dict[str, str] = field(default_factory=dict)
    copies: dict[str, list[str]] = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()  # of both, among the documents


def find_copies(documents: Iterable[Document]) -> DocumentCopies:
    """The copies among some documents; the first of several is the original."""
    names, ends, sizes = bytearray(), array("Q"), array("I")
    row = np.empty(BINS, np.uint32)
    with tempfile.TemporaryFile() as file:
        for document in documents:
            names += document.id.encode("utf-8", "surrogatepass")
            ends.append(len(names))
            text = np.frombuffer(document.text.encode("utf-8", "surrogatepass"), np.uint8)
            sizes.append(signature(text, row))
            file.write(row.tobytes())
        file.flush()
        if not ends:
            return DocumentCopies()
        table = np.memmap(file, np.uint32, "r", shape=(len(ends), BINS))
        first = group(table, np.asarray(sizes))

    def name(number: int) -> str:
        start = ends[number - 1] if number else 0
        return names[start : ends[number]].decode("utf-8", "surrogatepass")

    doubles = np.flatnonzero(first != np.arange(len(first)))
    made = DocumentCopies(numbers=frozenset([*doubles.tolist(), *first[doubles].tolist()]))
    for number in doubles.tolist():
        original, copy = name(int(first[number])), name(number)
        made.originals[copy] = original
        made.copies.setdefault(original, []).append(copy)
    return made


def group(table: NDArray[np.uint32], sizes: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The first of the documents that each is nearly identical with; itself where there is none."""
    first = np.arange(len(table), dtype=np.int32)
    for band in range(BINS // ROWS):
        keys = _band_keys(np.ascontiguousarray(table[:, band * ROWS : (band + 1) * ROWS]))
        order = np.argsort(keys, kind="stable").astype(
            np.int32
        )  # within a bucket, in the order of the documents
        _link(keys, order, table, sizes, first)
    return first


@njit(nogil=True, cache=True)
def _mix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * MIX1
    x = (x ^ (x >> np.uint64(27))) * MIX2
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def signature(text: Any, row: Any) -> int:
    """Fill the bins of a UTF-8 text, and return how many triples of words it has; 0 where it has no words.

    A word is a run of letters and digits, without case in ASCII; a character of Chinese, Japanese or Korean is one.
    """
    row[:] = EMPTY
    before, last, word = np.uint64(0), np.uint64(0), OFFSET
    inside, words, triples = False, 0, 0
    place, size = 0, len(text)
    while place <= size:
        byte = text[place] if place < size else np.uint8(32)
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        # Latin-1 symbols (0xC2) and general punctuation (0xE2), such as curly quotes, divide words as a space does.
        is_letter = (
            (48 <= byte <= 57) or (65 <= byte <= 90) or (97 <= byte <= 122) or (byte >= 0xC3 and byte != 0xE2)
        )
        alone = byte >= 0xE3
        if inside and (alone or not is_letter):
            triples += _shingle(before, last, word, words, row)
            before, last, word, words, inside = last, word, OFFSET, words + 1, False
        if is_letter:
            for i in range(place, min(place + length, size)):
                letter = text[i]
                lower = letter + 32 if 65 <= letter <= 90 else letter
                word = (word ^ np.uint64(lower)) * MULTIPLIER
            inside = True
        place += length
    if words and not triples:  # one or two words
        _enter(_mix(before * GOLDEN + last), row)
        triples = 1
    if triples:
        _densify(row)
    return triples


@njit(nogil=True, cache=True)
def _shingle(before: Any, last: Any, word: Any, words: int, row: Any) -> int:
    """Enter a word with the two before it; returns how many triples that makes."""
    if words < 2:
        return 0
    _enter(_mix(_mix(before * GOLDEN + last) * GOLDEN + word), row)
    return 1


@njit(nogil=True, cache=True)
def _enter(value: Any, row: Any) -> None:
    place = value & np.uint64(BINS - 1)
    rank = np.uint32(value >> np.uint64(32))
    row[place] = min(row[place], rank)


@njit(nogil=True, cache=True)
def _densify(row: Any) -> None:
    """Give every empty bin the value of a full one, which the bin's number alone decides."""
    full = row != EMPTY
    for place in range(BINS):
        attempt = np.uint64(0)
        while row[place] == EMPTY:
            attempt += np.uint64(1)
            other = _mix(np.uint64(place) * GOLDEN + attempt) & np.uint64(BINS - 1)
            if full[other]:
                row[place] = row[other]


@njit(nogil=True, cache=True)
def _band_keys(rows: Any) -> Any:
    keys = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        key = OFFSET
        for j in range(rows.shape[1]):
            key = _mix((key ^ np.uint64(rows[i, j])) * GOLDEN)
        keys[i] = key
    return keys


@njit(nogil=True, cache=True)
def _link(keys: Any, order: Any, table: Any, sizes: Any, first: Any) -> None:
    """Link the documents of each bucket to the earliest one that they are nearly identical with."""
    start = 0
    for end in range(1, len(order) + 1):
        if end < len(order) and keys[order[end]] == keys[order[start]]:
            continue
        for i in range(start + 1, end):
            document = order[i]
            if sizes[document] == 0 or first[document] != document:
                continue
            for j in range(start, min(i, start + NEAR)):
                original = first[order[j]]
                if original < document and _is_copy(table, sizes, original, document):
                    first[document] = original
                    break
        start = end
    for document in range(len(first)):  # an original may have been linked to an earlier one meanwhile
        original = first[first[document]]
        if original != first[document]:
            first[document] = original if _is_copy(table, sizes, original, document) else first[document]


@njit(nogil=True, cache=True)
def _is_copy(table: Any, sizes: Any, a: int, b: int) -> bool:
    equal = 0
    for i in range(BINS):
        equal += table[a, i] == table[b, i]
    return equal >= (BINS if min(sizes[a], sizes[b]) <= SHORT else ALIKE)
