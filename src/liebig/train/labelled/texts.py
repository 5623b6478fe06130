"""The texts of a training set, tokenised once into files that are read as memory.

`write` streams tokens into one flat array and its offsets, `Texts` maps them. Cost: the tokenizer once, 4 bytes a
token on disk, no memory; a text is then a slice, so that a batch costs about 100 ns a sequence and 1 ns a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.model.packed import Packed
from liebig.text.layout import Record, RoleLayout
from liebig.text.rows import Longs, Rows, bounds, picked
from liebig.train.distributed import World


@dataclass(frozen=True)
class Texts:
    """Tokenised texts: text i is tokens[offsets[i]:offsets[i + 1]], special tokens included."""

    tokens: NDArray[np.int32]
    offsets: Longs

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, records: Iterable[Record], layout: RoleLayout) -> Texts:
        """In memory, for few texts."""
        return cls.joined(layout.parts(records))

    @classmethod
    def joined(cls, parts: Iterable[Rows]) -> Texts:
        """In memory, what was tokenised part by part."""
        found, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for row, offsets in parts:
            found.append(row)
            sizes.append(np.diff(offsets))
        return cls(np.concatenate(found), bounds(np.concatenate(sizes)))

    @classmethod
    def open(cls, path: Path) -> Texts:
        """What `write` left, mapped."""
        offsets = np.load(path.with_suffix(".npy"))
        if not offsets[-1]:
            return cls(np.zeros(0, np.int32), offsets)
        return cls(np.asarray(np.memmap(path.with_suffix(".tokens"), np.int32, "r")), offsets)

    def sequences(self, numbers: Iterable[int]) -> list[list[int]]:
        """Token ids of some texts."""
        return [self.tokens[self.offsets[i] : self.offsets[i + 1]].tolist() for i in numbers]

    def rows(self, numbers: Longs | None = None) -> Rows:
        """Some texts in the order given, or all."""
        rows = self.tokens, self.offsets
        return rows if numbers is None else picked(rows, numbers)

    def packed(self, numbers: Longs) -> Packed:
        """Some texts as one row, in the order given."""
        return Packed.from_numpy(*self.rows(numbers))


def write(path: Path, parts: Iterable[Rows]) -> None:
    """Write what is tokenised to `path`.tokens and `path`.npy; the latter last, so it says that all is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [np.zeros(0, np.int64)]
    with path.with_suffix(".tokens").open("wb") as file:
        for row, offsets in parts:
            file.write(row.tobytes())
            sizes.append(np.diff(offsets))
    np.save(path.with_suffix(".npy"), bounds(np.concatenate(sizes)))


def cached(path: Path, parts: Iterable[Rows], world: World) -> Texts:
    """Texts tokenised by the first process into files that all map; what is there already is taken."""
    if world.first and not path.with_suffix(".npy").exists():
        write(path, parts)
    world.barrier()
    return Texts.open(path)
