"""From a drawn row to the batch an objective asks for: masked text, two views, or encoder and decoder.

A source decides which sequences lie in a row; a shape decides what becomes of them. Masking depends on each
sequence's own key alone, so a batch stays a pure function of the step. Cost: 20 ns a token for masking, 2 ns for
copies, in numba kernels that let other threads run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base import rng
from liebig.base.errors import RecipeError
from liebig.methods.cocondenser import DOCUMENT
from liebig.methods.held_out import documents_of
from liebig.methods.teacher import TEACHER, vectors_of
from liebig.model.packed import Packed
from liebig.store.batches import Batches, Stepped
from liebig.store.pair_sources import Ints, Row, Source
from liebig.text.masking import mask_words
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective
from liebig.train.precision import autocast

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


# The batch of a step: examples drawn, masked and packed, as a pure function of the step number.
#
# A process draws its own share only. Called from background threads (`train/feed.py`), a few steps ahead of
# the model; the kernels below release the interpreter. Cost: about 30 ns a token, so one core feeds 30 M
# tokens/s.


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step; `extras` go along: documents, a teacher's vectors."""

    rows: Stepped
    shape: Shape
    world: World
    extras: frozenset[str] = frozenset()

    def __call__(self, step: int) -> Batch:
        batch = self.shape(self.rows(step, self.world.rank, self.world.size))
        return Batch(batch.sides, batch.n, {name: EXTRAS[name](self, step) for name in sorted(self.extras)})

    def _drawn(self, step: int) -> tuple[Source, Ints]:
        """The one source and its examples."""
        if not isinstance(self.rows, Batches):
            raise RecipeError(
                "distinct_documents needs a single source over a single store", fix="set it to false"
            )
        return self.rows.source, self.rows.examples(step, self.world.rank, self.world.size)

    def documents(self, step: int) -> Tensor:
        """The document of each example."""
        source, examples = self._drawn(step)
        assert isinstance(self.rows, Batches)
        found = documents_of(source, examples, step // self.rows.steps_per_epoch, self.rows.seed)
        return torch.from_numpy(np.ascontiguousarray(found, np.int64))

    def teacher(self, step: int) -> Tensor:
        """The teacher's vector of each example."""
        return torch.from_numpy(vectors_of(*self._drawn(step)))


EXTRAS: dict[str, Callable[[Maker, int], Tensor]] = {DOCUMENT: Maker.documents, TEACHER: Maker.teacher}


# The objective's own terms on text that is never trained on: held-out loss, accuracy, partners found.
#
# Each held-out batch is run once without gradient, chunk by chunk; terms are summed over all batches and
# processes and divided by their counts, contrastive metrics are averaged over batches. The batches are
# always the same ones, masks included, so values can be compared from one evaluation to the next.

CHUNK_TOKENS = 32_768


def evaluate(
    objective: Objective,
    make: Callable[[int], Batch],
    batches: int,
    world: World,
    dtype: torch.dtype | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> dict[str, float]:
    """Means over `make(0)`, …; `make` gives this process's share of a batch."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for number in range(batches):
        batch = make(number)
        mine = objective.counts(batch) | dict.fromkeys(_contrast_names(objective), 1)
        for name, count in mine.items():
            counts[name] = counts.get(name, 0) + count
        for name, value in _batch_sums(objective, batch, world, dtype, chunk_tokens).items():
            sums[name] = sums[name] + value if name in sums else value
    totals = world.counts(counts)
    shared = {name: totals[name] / world.size for name in _contrast_names(objective)}
    names = sorted(sums, key=_rank)
    found = world.total(torch.stack([sums[name].double() for name in names]))
    return {name: float(value) / shared.get(name, totals[name]) for name, value in zip(names, found)}


def _rank(name: str) -> tuple[bool, bool, str]:
    """Partners found first, then accuracies, then losses: the first measure decides which checkpoint is best."""
    return name != "partner_accuracy", "accuracy" not in name, name


def _contrast_names(objective: Objective) -> tuple[str, ...]:
    return ("contrast", "partner_accuracy") if objective.contrastive else ()


@torch.no_grad()
def _batch_sums(
    objective: Objective, batch: Batch, world: World, dtype: torch.dtype | None, chunk_tokens: int
) -> Mapping[str, Tensor]:
    """Summed terms of this process's share, and its share of the contrastive loss and accuracy."""
    sums: dict[str, Tensor] = {}
    vectors, constants = [], []
    for chunk in batch.chunks(chunk_tokens):
        on_device = chunk.to(world.device)
        with autocast(world.device, dtype, cache=False):
            found = objective(on_device, "represent")
            fixed = objective(on_device, "constants")
        for name, term in found.terms.items():
            sums[name] = sums[name] + term if name in sums else term
        vectors += [] if found.vectors is None else [_full(found.vectors)]
        constants += [] if fixed is None else [_full(fixed)]
    if objective.contrastive:
        contrast = objective.contrast(
            torch.cat(vectors), torch.cat(constants) if constants else None, batch.to(world.device), world
        )
        assert contrast is not None, "a contrastive objective contrasts"
        sums |= {"contrast": contrast.loss, "partner_accuracy": contrast.metrics["partner_accuracy"]}
    return sums


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
