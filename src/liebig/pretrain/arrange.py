"""Sources around sources: tokens deleted, replaced or hidden, and pairs put in the order an objective reads them.

Each is a source itself, so that mixtures and held-out parts need not know. Cost: 5 ns a token for each noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig import rng
from liebig.data.batches import Row, Source
from liebig.pretrain.documents import documents_of
from liebig.text.noise import delete_words, hide_words, replace_words
from liebig.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Noisy:
    """A source whose sequences lose, swap or hide tokens at random."""

    source: Source
    tokenizer: Tokenizer
    delete: float = 0.0
    replace: float = 0.0
    mask: float = 0.0

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """The inner source's row, changed token by token under each sequence's key."""
        row = self.source.draw(examples, epoch, seed)
        tokens, offsets, special = row.tokens, row.offsets, self.tokenizer.special
        if self.delete:
            tokens, offsets = delete_words(tokens, offsets, row.keys, special, self.delete)
        if self.replace:
            tokens = replace_words(tokens, offsets, _other(row, 1), special, self.replace)
        if self.mask:
            tokens = hide_words(tokens, offsets, _other(row, 2), special, self.mask, self.tokenizer.mask)
        return Row(tokens, offsets, row.owner, row.keys)

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """The documents of the inner source's examples."""
        return documents_of(self.source, examples, epoch, seed)


def _other(row: Row, stream: int) -> NDArray[np.uint64]:
    """Keys of their own, so that deletion and replacement hit independently."""
    return np.asarray(rng.mix(row.keys, stream), np.uint64)


@dataclass(frozen=True)
class Arranged:
    """A source of pairs as CoT-MAE reads them: for the encoder, for the decoder, and so on in turn.

    A symmetric pair (a, b) goes both ways: a, b, b, a. Of (query, passage) the passage is encoded and the query
    decoded.
    """

    source: Source
    symmetric: bool

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """The inner source's pairs, put in order."""
        row = self.source.draw(examples, epoch, seed)
        order = np.array([0, 1, 1, 0]) if self.symmetric else np.array([1, 0])
        return row.take((np.arange(0, len(row), 2)[:, None] + order[None, :]).reshape(-1))

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """The documents of the inner source's examples."""
        return documents_of(self.source, examples, epoch, seed)
