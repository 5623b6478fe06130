"""A table of record ids, which tells a repeated record from another one under the same id.

An open-addressing hash table, at most three quarters full, over plain arrays: 64-bit hashes of the id and the contents
of each record, and its byte offset. That is 20 to 30 bytes per record (0.65 GB for 21 M passages, 0.2 GB more while the
index is sorted). The chance that any two of 21 M ids share a hash is one in a hundred thousand.
"""

from __future__ import annotations

from array import array
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from liebig.collection.lookup import Hashes, hash64
from liebig.collection.offset_index import OffsetIndex

GROWS = 1 << 22


class Repeat(Enum):
    """Whether the id of a record is new, and if not, whether its contents are the same."""

    NEW = auto()
    SAME = auto()
    OTHER = auto()


class IdTable:
    """Records by id, for telling repeated ones from clashes."""

    def __init__(self) -> None:
        self._ids, self._contents, self._offsets = array("Q"), array("Q"), array("Q")
        self._table = array("I", bytes(4 << 10))
        self._mask = len(self._table) - 1

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, name: str, content: str, offset: int) -> Repeat:
        """Enter a record; one whose id is known is compared and not entered again."""
        key, value = hash64(name), hash64(content)
        slot = self._slot(key)
        number = self._table[slot]
        if number:
            return Repeat.SAME if self._contents[number - 1] == value else Repeat.OTHER
        self._enter(slot, key, value, offset)
        return Repeat.NEW

    def copy(self, key: int, offset: int) -> None:
        """Enter a record of another table, by the hash of its id, which is not there yet."""
        slot = self._slot(key)
        assert not self._table[slot], "an id of one collection"
        self._enter(slot, key, key, offset)

    def _enter(self, slot: int, key: int, value: int, offset: int) -> None:
        self._ids.append(key)
        self._contents.append(value)
        self._offsets.append(offset)
        self._table[slot] = len(self._ids)
        if len(self._ids) * 4 > len(self._table) * 3:
            self._grow()

    def truncate(self, count: int) -> None:
        """Forget all records but the first `count`.

        Later records are removed last one first. No record that is left was placed after them, so that none was moved
        on by one of them, and their slots can simply be cleared.
        """
        for number in range(len(self._ids) - 1, count - 1, -1):
            self._table[self._slot(self._ids[number])] = 0
        del self._ids[count:], self._contents[count:], self._offsets[count:]

    def _slot(self, key: int) -> int:
        """Where a key stands, or would stand."""
        table, ids, mask = self._table, self._ids, self._mask
        slot = key & mask
        while (number := table[slot]) and ids[number - 1] != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        """A larger table, filled anew: four times the size while it is small, then twice."""
        self._table = array("I", bytes(4)) * (len(self._table) * (4 if len(self._table) < GROWS else 2))
        self._mask = len(self._table) - 1
        table, mask = self._table, self._mask
        for number, key in enumerate(self._ids, 1):
            slot = key & mask
            while table[slot]:
                slot = (slot + 1) & mask
            table[slot] = number

    @property
    def ids(self) -> Hashes:
        """The hashes of the ids, in order."""
        return _view(self._ids)

    @property
    def contents(self) -> Hashes:
        """The hashes of the contents, in order."""
        return _view(self._contents)

    @property
    def offsets(self) -> NDArray[np.uint64]:
        """The byte offsets of the records, in order."""
        return _view(self._offsets)

    def index(self) -> OffsetIndex:
        """Offsets by id. Nothing can be entered any more, because the table is given up for the room."""
        self._table = array("I")
        return OffsetIndex.build(self.ids, self.offsets)


def _view(numbers: array[int]) -> NDArray[np.uint64]:
    """The numbers as an array, without copying them."""
    return np.frombuffer(numbers, dtype=np.uint64) if numbers else np.empty(0, np.uint64)
