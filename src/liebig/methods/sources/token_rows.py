"""What a source draws: sequences of tokens with their owners and keys, and the protocol of every source.

A source decides *where* its sequences lie (one or more ranges of tokens each); `packed` copies them with their special
tokens into one `TokenRow`. Everything random is drawn from the key of an example, so a batch is a pure function of seed
and step, in any process. Cost: 1 ns per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import RecipeError
from liebig.ragged import Ragged, gather
from liebig.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
SEQUENCE = 1 << 32  # the counter of a sequence's own key, far above those of the draws of its example


@dataclass(frozen=True)
class TokenRow:
    """B sequences of tokens, special ones included; `owner` says which example of the batch each belongs to."""

    tokens: Ragged  # B
    owner: Ints  # B, never decreasing
    keys: Keys  # B

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, sequences: Ints) -> TokenRow:
        """The given sequences, in the given order, with the owners they have."""
        return TokenRow(self.tokens.take(sequences), self.owner[sequences], self.keys[sequences])


class ExampleSource(Protocol):
    """Where sequences come from: a number of examples, and what each looks like in an epoch."""

    def __len__(self) -> int:
        """How many examples an epoch has."""

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """The sequences of these examples; a pure function of its arguments, example by example."""


class SpecialTokens(NamedTuple):
    """The special tokens before and after a sequence."""

    before: Ints
    after: Ints

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SpecialTokens:
        """What the tokenizer puts around one sequence."""
        template = tokenizer.template
        return cls(np.array(template.before, np.int64), np.array(template.after, np.int64))


def example_keys(examples: Ints, epoch: int, seed: int) -> Keys:
    """A key for everything random in an example in this epoch."""
    return np.asarray(rng.mix(rng.key(seed, epoch), examples), np.uint64)


def packed(tokens: NDArray[Any], spans: Ints, frame: SpecialTokens, owner: Ints, keys: Keys) -> TokenRow:
    """The row of the sequences at `spans` [sequence, part, (begin, end)]; `keys` are those of the examples."""
    row = gather(tokens, spans, frame.before, frame.after)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    number = np.arange(len(owner)) - np.repeat(first, np.diff(first, append=len(owner)))
    return TokenRow(row, owner, np.asarray(rng.mix(keys[owner], SEQUENCE + number), np.uint64))


def joined(rows: Sequence[TokenRow], owners: Sequence[Ints]) -> TokenRow:
    """Rows drawn apart as one batch: example k of row r becomes example `owners[r][k]` of the batch, in order."""
    owner = np.concatenate([places[row.owner] for row, places in zip(rows, owners)])
    tokens = Ragged.concatenate(row.tokens for row in rows)
    whole = TokenRow(tokens, owner, np.concatenate([row.keys for row in rows]))
    return whole.take(np.argsort(owner, kind="stable"))


@runtime_checkable
class KnowsDocuments(Protocol):
    """A source that says which document an example comes from."""

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """A number for the document of each example; numbers of a store rise with the examples'."""


def documents_of(source: ExampleSource, examples: Ints, epoch: int, seed: int) -> Ints:
    """A number for the document of each example."""
    if not isinstance(source, KnowsDocuments):
        raise RecipeError(
            "this source does not say which document its texts come from",
            fix="set distinct_documents = false",
        )
    return source.documents(examples, epoch, seed)
