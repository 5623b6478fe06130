"""Ids of passages by the million: strings mapped from disk, looked up both ways without a dictionary.

Beside the strings lie their 64-bit hashes in order, and whose they are; finding an id is a binary search and a
comparison of the strings themselves. Cost: 20 bytes per id on disk, nothing in memory, 10 microseconds per lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy
from liebig.base.compiled import njit
from liebig.base.errors import DataError
from liebig.base.npy import NpyWriter
from liebig.ragged import Ragged, Strings, ranges

Hashes = NDArray[np.uint64]


def hash64(text: str) -> int:
    """A hash that is the same on every machine and in every process."""
    return hash_line(text.encode("utf-8"))


def hash_line(line: bytes) -> int:
    return int.from_bytes(blake2b(line, digest_size=8).digest(), "little")


def hash_all(texts: Iterable[str]) -> Hashes:
    return np.fromiter(map(hash64, texts), dtype=np.uint64)


BUFFER = 1 << 20  # bytes of strings collected before they are written


class StringsWriter:
    """Strings to `name.npy` and `name_offsets.npy`, one by one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = NpyWriter(folder / f"{name}.npy", np.uint8)
        self._offsets = NpyWriter(folder / f"{name}_offsets.npy", np.int64)
        self._offsets.append(np.zeros(1, np.int64))
        self._pieces: list[bytes] = []
        self._ends: list[int] = []
        self._end = self._flushed = 0

    def append(self, text: str) -> None:
        piece = text.encode("utf-8", "surrogatepass")
        self._end += len(piece)
        self._pieces.append(piece)
        self._ends.append(self._end)
        if self._end - self._flushed > BUFFER:
            self._flush()

    def _flush(self) -> None:
        self._bytes.append(b"".join(self._pieces))
        self._offsets.append(np.array(self._ends, np.int64))
        self._flushed = self._end
        self._pieces.clear()
        self._ends.clear()

    def close(self) -> None:
        self._flush()
        self._bytes.close()
        self._offsets.close()


def write_strings(folder: Path, name: str, strings: Iterable[str]) -> None:
    """All strings, in order."""
    writer = StringsWriter(folder, name)
    for string in strings:
        writer.append(string)
    writer.close()


def read_strings(folder: Path, name: str) -> Strings:
    utf8 = npy.load(folder / f"{name}.npy", [np.uint8], (None,))
    offsets = npy.load_offsets(folder / f"{name}_offsets.npy", end=len(utf8))
    return Strings(Ragged(utf8, offsets), folder / f"{name}.npy")


def load_hashes(path: Path, rows: int | None) -> Hashes:
    hashes = npy.load(path, [np.uint64], (rows,))
    if not npy.ascends(hashes):
        raise npy.corrupt(path, "has hashes that are not in order")
    return hashes


@dataclass(frozen=True, slots=True)
class Ids:
    """Numbered ids: `ids[i]` is the id of number i, `ids.find(id)` its number or None."""

    strings: Strings
    hashes: NDArray[np.uint64]  # sorted
    order: NDArray[np.int64]  # order[i] is the number whose hash is hashes[i]

    def __len__(self) -> int:
        return len(self.strings)

    def __getitem__(self, i: int) -> str:
        return self.strings[i]

    def find(self, id: str) -> int | None:
        """The number of an id; None if it is not there."""
        row = np.frombuffer(id.encode("utf-8", "surrogatepass"), np.uint8)
        value = hash_rows(row, np.array([0, len(row)], np.int64))[0]
        place = int(np.searchsorted(self.hashes, value))
        while place < len(self.hashes) and self.hashes[place] == value:
            number = int(self.order[place])
            if self.strings[number] == id:
                return number
            place += 1
        return None

    def find_all(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of several ids; -1 for one that is not there."""
        texts, numbers = Strings.pack(ids).utf8, np.full(len(ids), -1, np.int64)
        hashes = hash_rows(texts.values, texts.offsets)
        places = np.searchsorted(self.hashes, hashes)
        near = np.flatnonzero(places < len(self.hashes))
        rows = near[self.hashes[places[near]] == hashes[near]]
        numbers[rows] = self.order[places[rows]]
        known, starts = self.strings.utf8, self.strings.utf8.offsets[numbers[rows]]
        lengths = known.offsets[numbers[rows] + 1] - starts
        same = np.array_equal(lengths, texts.lengths[rows]) and np.array_equal(
            known.values[ranges(starts, lengths)], texts.values[ranges(texts.offsets[rows], lengths)]
        )
        for row in [] if same else rows.tolist():  # some may be other ids with the same hash
            number = self.find(ids[row])
            numbers[row] = -1 if number is None else number
        return numbers

    @classmethod
    def open(cls, folder: Path, name: str = "ids") -> Ids:
        strings = read_strings(folder, name)
        hashes = load_hashes(folder / f"{name}_hashes.npy", len(strings))
        order = npy.load_numbers(folder / f"{name}_order.npy", len(strings), rows=len(strings))
        return cls(strings, hashes, order)


def index_ids(folder: Path, name: str = "ids") -> Ids:
    """Make strings already written findable; two that are equal are refused."""
    ids = _findable(read_strings(folder, name))
    npy.save(folder / f"{name}_hashes.npy", ids.hashes)
    npy.save(folder / f"{name}_order.npy", ids.order)
    return Ids.open(folder, name)


def memory_ids(ids: Sequence[str]) -> Ids:
    return _findable(Strings.pack(ids))


def _findable(strings: Strings) -> Ids:
    hashes = hash_rows(strings.utf8.values, strings.utf8.offsets)
    order = np.argsort(hashes, kind="stable").astype(np.int64)
    _refuse_duplicates(strings, hashes[order], order)
    return Ids(strings, hashes[order], order)


def write_ids(folder: Path, ids: Iterable[str], name: str = "ids") -> Ids:
    write_strings(folder, name, ids)
    return index_ids(folder, name)


def _refuse_duplicates(strings: Strings, hashes: NDArray[np.uint64], order: NDArray[np.int64]) -> None:
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    for place in same.tolist():
        first, value = strings[int(order[place])], hashes[place]
        later = place + 1
        while later < len(hashes) and hashes[later] == value:
            if strings[int(order[later])] == first:
                raise DataError(f"the id {first!r} occurs twice", fix="give every passage an id of its own")
            later += 1


def _hash_rows_numpy(values: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    lengths, hashes = np.diff(offsets), np.full(len(offsets) - 1, 0xCBF29CE484222325, np.uint64)
    for place in range(int(lengths.max(initial=0))):  # the rows that are as long, all at once
        rows = np.flatnonzero(lengths > place)
        byte = values[offsets[rows] + place].astype(np.uint64)
        hashes[rows] = (hashes[rows] ^ byte) * np.uint64(0x100000001B3)
    hashes ^= hashes >> np.uint64(32)
    return hashes * np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True, numpy=_hash_rows_numpy)
def hash_rows(values: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """FNV-1a of every row, stirred once more because short rows differ in few bits."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(hashes)):
        value = np.uint64(0xCBF29CE484222325)
        for i in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(values[i])) * np.uint64(0x100000001B3)
        value ^= value >> np.uint64(32)
        hashes[row] = value * np.uint64(0x9E3779B97F4A7C15)
    return hashes
