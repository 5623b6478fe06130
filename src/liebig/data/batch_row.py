"""Rows: what a source draws, packed, with the special tokens around every sequence.

A source decides *where* its sequences lie in the store (one or more ranges of tokens each); they are then copied
into one row. Keys go with the row, one a sequence, so that whatever is random later (masking, deletion) is a pure
function of the example too. Cost: about 1 ns a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from liebig import rng
from liebig.text.tokenizer import Tokenizer
from liebig.text.views import gather

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

SEQUENCE = 1 << 32  # the counter of a sequence's own key, far above those of the draws of its example


@dataclass(frozen=True)
class Row:
    """B sequences as one row of T tokens; `owner` says which example of the batch each belongs to."""

    tokens: Ints  # T
    offsets: Ints  # B+1
    owner: Ints  # B, never decreasing
    keys: Keys  # B

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def lengths(self) -> Ints:
        """Tokens of each sequence, special ones included."""
        return np.diff(self.offsets)

    def sequence(self, i: int) -> Ints:
        """The tokens of one sequence: a view."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def take(self, sequences: NDArray[Any] | slice) -> Row:
        """The given sequences, in the given order, with the owners they have."""
        chosen = np.arange(len(self))[sequences]
        spans = np.stack((self.offsets[chosen], self.offsets[chosen + 1]), axis=1)[:, None]
        return Row(*gather(self.tokens, spans, _NOTHING, _NOTHING), self.owner[chosen], self.keys[chosen])


class Source(Protocol):
    """Where sequences come from: a number of examples, and what each looks like in an epoch."""

    def __len__(self) -> int:
        """How many examples an epoch has."""

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """The sequences of these examples; a pure function of its arguments, example by example."""


class Frame(NamedTuple):
    """The special tokens before and after a sequence."""

    before: Ints
    after: Ints

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
        """What the tokenizer puts around one sequence."""
        template = tokenizer.template
        return cls(np.array(template.before, np.int64), np.array(template.after, np.int64))


_NOTHING = np.zeros(0, np.int64)


def example_keys(examples: Ints, epoch: int, seed: int) -> Keys:
    """A key for everything random in an example in this epoch."""
    return np.asarray(rng.mix(rng.key(seed, epoch), examples), np.uint64)


def packed(tokens: NDArray[Any], spans: Ints, frame: Frame, owner: Ints, keys: Keys) -> Row:
    """The row of the sequences at `spans` [sequence, part, (begin, end)]; `keys` are those of the examples."""
    row, offsets = gather(tokens, spans, frame.before, frame.after)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    number = np.arange(len(owner)) - np.repeat(first, np.diff(first, append=len(owner)))
    return Row(row, offsets, owner, np.asarray(rng.mix(keys[owner], SEQUENCE + number), np.uint64))


def joined(rows: Sequence[Row], owners: Sequence[Ints]) -> Row:
    """Rows drawn apart as one batch: example k of row r becomes example `owners[r][k]` of the batch, in order."""
    owner = np.concatenate([places[row.owner] for row, places in zip(rows, owners)])
    shift = np.cumsum([0, *(len(row.tokens) for row in rows)])
    offsets = np.concatenate([*(row.offsets[:-1] + move for row, move in zip(rows, shift)), shift[-1:]])
    tokens = np.concatenate([row.tokens for row in rows])
    whole = Row(tokens, offsets, owner, np.concatenate([row.keys for row in rows]))
    return whole.take(np.argsort(owner, kind="stable"))
