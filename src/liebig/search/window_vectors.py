"""Windows of tokens through a model: one is computed while the vectors of the one before are fetched.

D width of the vectors, P pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from liebig.model.settings import Floats, PackedRow, TokenSpans, nothing
from liebig.search.pieces import (
    Cut,
    Frame,
    TextPieces,
    all_pieces,
    cut,
    first_pieces,
    lengths,
    numbered,
    packed_rows,
)
from liebig.search.token_windows import TokenWindow

Long = Literal["first", "max"]


class Model(Protocol):
    """Whatever makes vectors of packed rows."""

    width: int

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Set going the vectors of `count` pieces, given as packed rows.

        What is returned waits for them; `done` is told the tokens of every row that was computed or set going.
        """


@runtime_checkable
class PoolsSpans(Protocol):
    """A model that also makes vectors of spans of tokens, from the states of the pieces they are in."""

    pools_spans: bool

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """As `Model.start`; the vectors of the spans stand behind those of the pieces."""


@dataclass(frozen=True)
class EncodingPlan:
    """How windows become rows: the frame of a piece, the budget of a row, and what happens to long texts."""

    frame: Frame
    budget: int
    long: Long = "first"
    overlap: int = 0
    most: int | None = None

    def pieces(self, batch: TokenWindow) -> TextPieces:
        """The pieces of a window; where sentences are asked for, a text that is cut has the others for them."""
        if self.long == "first" and batch.sentences is None:
            return first_pieces(batch.window, self.frame)
        if self.long == "first":
            room = self.frame.room - len(self.frame.again)
            return all_pieces(batch.window, self.frame, min(self.overlap, room // 2), None)
        return all_pieces(batch.window, self.frame, self.overlap, self.most)

    def packed(self, batch: TokenWindow, pieces: TextPieces) -> Iterator[PackedRow]:
        return packed_rows(batch.window, pieces, self.frame, self.budget)

    def finish(self, batch: TokenWindow, pieces: TextPieces, vectors_PD: Floats) -> WindowVectors:
        """Ids and vectors of a window: of its pieces, or of its texts; and of their sentences, if asked for."""
        if batch.sentences is not None:
            count, whole = len(pieces.text), replace(batch, sentences=None)
            used = pieces if self.long != "first" else self.pieces(whole)
            rows = vectors_PD[:count] if self.long != "first" else vectors_PD[:count][pieces.first]
            owners = np.repeat(np.arange(len(batch.ids)), batch.sentences.lengths)
            ids = numbered(batch.ids, owners)
            inner = WindowVectors(ids, vectors_PD[count:], Cut(len(ids)))
            return self.finish(whole, used, rows)._replace(sentences=inner)
        cuts = cut(batch.window, pieces)
        if self.long == "max":
            return WindowVectors(numbered(batch.ids, pieces.text), vectors_PD, cuts)
        return WindowVectors(batch.ids, vectors_PD, cuts)


class WindowVectors(NamedTuple):
    """Ids and vectors of a window, and what was cut off its texts."""

    ids: list[str]
    vectors: Floats
    cut: Cut
    sentences: WindowVectors | None = None


def encode(
    batches: Iterable[TokenWindow],
    model: Model,
    plan: EncodingPlan,
    advance: Callable[[float], None] = nothing,
) -> Iterator[WindowVectors]:
    """Ids and vectors, window by window, in order; one window is computed while the one before is fetched.

    `advance` is told how many texts are done, row by row in proportion to their tokens.
    """
    waiting: tuple[TokenWindow, TextPieces, Callable[[], Floats]] | None = None
    for batch in batches:
        pieces = plan.pieces(batch)
        share = len(batch.ids) / int(lengths(pieces, plan.frame).sum())  # texts per token
        done = partial(_scaled, advance, share)
        inner = batch.spans(pieces, plan.frame)
        packed, count = plan.packed(batch, pieces), len(pieces.text)
        if inner is None:
            started = model.start(packed, count, done)
        else:
            assert isinstance(model, PoolsSpans), "`pools_sentences` says which models do"
            started = model.start(packed, count, done, inner)
        if waiting is not None:
            yield plan.finish(waiting[0], waiting[1], waiting[2]())
        waiting = (batch, pieces, started)
    if waiting is not None:
        yield plan.finish(waiting[0], waiting[1], waiting[2]())


def _scaled(advance: Callable[[float], None], share: float, tokens: int) -> None:
    advance(tokens * share)
