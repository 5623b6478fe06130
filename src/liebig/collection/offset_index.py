"""From an id to its place in a file, without holding the ids: 64-bit hashes, sorted, beside byte offsets.

Two arrays of 8 bytes a record (340 MB for 21 M passages), memory-mapped when they come from disk; a lookup is a
binary search and one read, and compares the id itself, so two ids with one hash cost a second read and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy
from liebig.collection.lookup import Hashes, hash64, hash_all, load_hashes


@dataclass(frozen=True)
class OffsetIndex:
    """Byte offsets of records by the hash of their ids; hashes ascend."""

    hashes: Hashes
    offsets: NDArray[np.uint64]

    @classmethod
    def build(
        cls, hashes: Sequence[int] | Hashes, offsets: Sequence[int] | NDArray[np.uint64]
    ) -> OffsetIndex:
        """Sort hashes with their offsets; equal hashes keep their order."""
        keys = np.asarray(hashes, dtype=np.uint64)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], np.asarray(offsets, dtype=np.uint64)[order])

    @classmethod
    def load(cls, stem: Path) -> OffsetIndex:
        """The two arrays beside a stem, mapped and not read."""
        hashes = load_hashes(stem.with_name(f"{stem.name}.hashes.npy"), None)
        return cls(hashes, npy.load(stem.with_name(f"{stem.name}.offsets.npy"), [np.uint64], hashes.shape))

    def save(self, stem: Path) -> None:
        """Write the two arrays beside a stem."""
        stem.parent.mkdir(parents=True, exist_ok=True)
        np.save(f"{stem}.hashes.npy", self.hashes, allow_pickle=False)
        np.save(f"{stem}.offsets.npy", self.offsets, allow_pickle=False)

    def __len__(self) -> int:
        return len(self.hashes)

    def candidates(self, name: str) -> list[int]:
        """Offsets of the records whose id has this hash: none, one, or very rarely more."""
        key = np.uint64(hash64(name))
        place = int(self.hashes.searchsorted(key))
        end = place
        while end < len(self.hashes) and self.hashes[end] == key:
            end += 1
        return self.offsets[place:end].tolist()

    def all_candidates(self, names: Iterable[str]) -> list[int]:
        """The same for many ids at once, in the order of the file."""
        keys = np.unique(hash_all(names))
        starts, ends = (self.hashes.searchsorted(keys, side).tolist() for side in ("left", "right"))
        return sorted(int(offset) for start, end in zip(starts, ends) for offset in self.offsets[start:end])
