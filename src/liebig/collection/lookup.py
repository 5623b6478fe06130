"""From an id to its place in a file, without holding the ids: 64-bit hashes, sorted, beside byte offsets.

Two arrays of 8 bytes a record (340 MB for 21 M passages), memory-mapped when they come from disk; a lookup is a
binary search and one read, and compares the id itself, so two ids with one hash cost a second read and no error.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import CorruptError

Hashes = NDArray[np.uint64]


def hash64(text: str) -> int:
    """A hash that is the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def hash_all(texts: Iterable[str]) -> Hashes:
    """The hashes of many texts."""
    return np.fromiter(map(hash64, texts), dtype=np.uint64)


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
        try:
            hashes, offsets = (  # as plain arrays, of which a slice costs half
                np.asarray(np.load(f"{stem}.{name}.npy", mmap_mode="r", allow_pickle=False))
                for name in ("hashes", "offsets")
            )
        except (OSError, ValueError) as error:
            raise CorruptError(
                f"the index cannot be read ({error})", file=stem, fix="run liebig init again"
            ) from None
        if hashes.dtype != np.uint64 or offsets.dtype != np.uint64 or hashes.shape != offsets.shape:
            raise CorruptError(
                "the files of the index do not match each other", file=stem, fix="run liebig init again"
            )
        return cls(hashes, offsets)

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


class TitleFile:
    """Texts by id for a join of two files in any order: kept in an anonymous file, 16 bytes each in memory."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed on leaving the block
        hashes, offsets, at = array("Q"), array("Q"), 0
        for name, text in pairs:
            hashes.append(hash64(name))
            offsets.append(at)
            at += self._file.write(f"{name}\t{text}\n".encode())
        self._index = OffsetIndex.build(np.asarray(hashes), np.asarray(offsets))

    def __enter__(self) -> TitleFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def get(self, name: str) -> str:
        """The text of this id, "" where there is none."""
        for offset in self._index.candidates(name):
            self._file.seek(offset)
            found, _, text = self._file.readline().decode("utf-8").rstrip("\n").partition("\t")
            if found == name:
                return text
        return ""
