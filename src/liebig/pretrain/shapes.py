"""From a drawn row to the batch an objective asks for: masked text, two views, or encoder and decoder.

A source decides which sequences lie in a row; a shape decides what becomes of them. Masking depends on each
sequence's own key alone, so a batch stays a pure function of the step. Cost: 20 ns a token for masking, 2 ns for
copies, in numba kernels that let other threads run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from liebig import rng
from liebig.data.batches import Row
from liebig.model.packed import Packed
from liebig.text.masking import mask_words
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side

Shape = Callable[[Row], Batch]
ENCODER, DECODER = 0, 1  # streams of a sequence's key, so that both masks of one text differ


@dataclass(frozen=True)
class Masker:
    """What masking has to know of a tokenizer."""

    continues: NDArray[np.bool_]
    special: NDArray[np.bool_]
    mask: int
    vocab_size: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, whole_words: bool = True) -> Masker:
        """For whole words, or for single pieces."""
        continues = tokenizer.continues if whole_words else np.zeros_like(tokenizer.continues)
        return cls(continues, tokenizer.special, tokenizer.mask, tokenizer.vocab_size)

    def side(self, row: Row, rate: float, stream: int = ENCODER) -> Side:
        """The row with a share of its tokens masked."""
        keys = np.asarray(rng.mix(row.keys, stream), np.uint64)
        masked = mask_words(
            row.tokens, row.offsets, keys, self.continues, self.special, self.mask, self.vocab_size, rate
        )
        return Side(
            Packed.from_numpy(masked.tokens, row.offsets),
            torch.from_numpy(row.owner),
            torch.from_numpy(masked.targets),
            torch.from_numpy(masked.labels),
        )


@dataclass(frozen=True)
class MaskedText:
    """Every sequence masked: for MLM, Condenser and coCondenser."""

    masker: Masker
    rate: float

    def __call__(self, row: Row) -> Batch:
        return Batch({"text": self.masker.side(row, self.rate)}, examples(row))


@dataclass(frozen=True)
class PlainText:
    """Every sequence as it is: for a teacher's vectors."""

    def __call__(self, row: Row) -> Batch:
        return Batch({"text": plain_side(row)}, examples(row))


@dataclass(frozen=True)
class TwoViews:
    """The first sequence of an example is the query, the second the key: for SimCLR and MoCo."""

    def __call__(self, row: Row) -> Batch:
        first, second = halves(row)
        return Batch({"query": plain_side(first), "key": plain_side(second)}, examples(row))


@dataclass(frozen=True)
class EncoderDecoder:
    """Sequences in turn: one for the encoder, one for the decoder (see `Arranged`): for CoT-MAE."""

    masker: Masker
    encoder_rate: float
    decoder_rate: float | None  # None: nothing is masked, and every next token is asked for

    def __call__(self, row: Row) -> Batch:
        first, second = halves(row)
        encoder = self.masker.side(first, self.encoder_rate, ENCODER)
        if self.decoder_rate is None:
            decoder = next_tokens(second)
        else:
            decoder = self.masker.side(second, self.decoder_rate, DECODER)
        return Batch({"encoder": encoder, "decoder": decoder}, examples(row))


def examples(row: Row) -> int:
    """How many examples a row holds; each has a sequence at least."""
    return int(row.owner[-1]) + 1


def halves(row: Row) -> tuple[Row, Row]:
    """Sequences 0, 2, 4, … and 1, 3, 5, …"""
    assert len(row) % 2 == 0, "sequences come in pairs"
    return row.take(np.arange(0, len(row), 2)), row.take(np.arange(1, len(row), 2))


def plain_side(row: Row) -> Side:
    """The row as it is."""
    return Side(Packed.from_numpy(row.tokens, row.offsets), torch.from_numpy(row.owner))


def next_tokens(row: Row) -> Side:
    """The row as it is; every position but the last of a sequence is asked for the token after it."""
    asked = np.ones(len(row.tokens), np.bool_)
    asked[row.offsets[1:] - 1] = False
    targets = np.flatnonzero(asked)
    side = plain_side(row)
    return Side(side.packed, side.owner, torch.from_numpy(targets), torch.from_numpy(row.tokens[targets + 1]))
