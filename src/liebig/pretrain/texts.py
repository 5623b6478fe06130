"""Texts with a teacher's vectors: every document of a store is a text, and a vector of the same id belongs to it.

The vectors are those `liebig encode` wrote for the collection the store was made from; store and vectors must name
the same ids in the same order. An example is one text or a few neighbouring ones, which are often related. Both
folders are mapped, so a text costs its tokens and one read of its vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.data.batch_row import Frame, Row, example_keys, packed
from liebig.data.batches import Source
from liebig.data.store import TokenStore
from liebig.data.vectors import Shard, Vectors, starts
from liebig.errors import DataError, RecipeError
from liebig.pretrain.heldout import Part

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Taught:
    """The teacher's vectors, shard after shard."""

    shards: tuple[Shard, ...]
    firsts: Ints  # number of each shard's first vector, and one past the last
    width: int

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> Taught:
        """Map a folder of vectors."""
        found = Vectors.open(path, hashes=hashes)
        if found.type == "binary" or any(len(shard.deleted) for shard in found.shards):
            raise DataError(
                "a student learns from whole vectors", file=path, fix="encode again, with type = fp16"
            )
        return cls(found.shards, np.array(starts(found.shards), np.int64), found.width)

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def rows(self, numbers: Ints) -> Floats:
        """The vectors of these numbers, in their order."""
        out = np.empty((len(numbers), self.width), np.float32)
        shard = np.searchsorted(self.firsts, numbers, side="right") - 1
        for one in np.unique(shard).tolist():
            here = shard == one
            out[here] = self.shards[one].vectors[numbers[here] - self.firsts[one]].decode()
        return out

    def check(self, store: TokenStore) -> None:
        """The ids of the vectors are those of the store."""
        offsets, values = store.ids.offsets, store.ids.values
        same = len(self) == len(store)
        for shard, first in zip(self.shards if same else (), self.firsts.tolist()):
            own = shard.ids.strings
            mine = offsets[first : first + len(shard) + 1]
            same &= np.array_equal(np.diff(mine), np.diff(own.offsets))
            same = same and np.array_equal(values[mine[0] : mine[-1]], own.values)
        if not same:
            raise DataError(
                f"the teacher's vectors are not those of the texts in {store.path}",
                file=self.shards[0].path.parents[1] if self.shards and self.shards[0].path else None,
                fix="encode the collection that the store was prepared from",
            )


@dataclass(frozen=True)
class TextSource:
    """`group` sequences an example: the first `limit` tokens of each of so many neighbouring texts."""

    texts: TokenStore
    taught: Taught
    limit: int
    group: int = 1

    def __len__(self) -> int:
        return len(self.texts) // self.group

    def numbers(self, examples: Ints) -> Ints:
        """The texts of each example, n x group."""
        return examples[:, None] * self.group + np.arange(self.group)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the texts of each example, the same in every epoch."""
        begins, ends = self.texts.token_ranges(self.numbers(examples).reshape(-1))
        spans = np.stack((begins, np.minimum(ends, begins + self.limit)), axis=1)[:, None]
        owner = np.repeat(np.arange(len(examples)), self.group)
        keys = example_keys(examples, epoch, seed)
        return packed(self.texts.tokens, spans, Frame.of(self.texts.tokenizer), owner, keys)

    def vectors(self, examples: Ints) -> Floats:
        """The teacher's vectors of each example's texts, n x group x D."""
        numbers = self.numbers(examples)
        return self.taught.rows(numbers.reshape(-1)).reshape(*numbers.shape, -1)


def vectors_of(source: Source, examples: Ints) -> Floats:
    """The teacher's vectors of these examples' texts, of a source or a part of one; n x group x D."""
    if isinstance(source, Part):
        return vectors_of(source.source, source.examples(examples))
    if isinstance(source, TextSource):
        return source.vectors(examples)
    raise RecipeError("this source has no teacher's vectors", fix="use source.kind = 'texts'")
