"""From tokens of many texts to packed rows: pieces of long texts, special tokens, batches by length.

A window of texts is one array of tokens with offsets. Texts longer than the model takes are cut, or become several
pieces that overlap. Pieces are sorted by length and put together up to a budget of tokens, so rows hold no padding
and those that a model pads hold little. All of it is index arithmetic; copying tokens costs 1 ns each.

N texts of a window, P pieces, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Frame:
    """What is put around the tokens of a piece, and how long it may become with that."""

    before: Ints
    after: Ints
    again: Ints  # the prompt, put before every piece but the first, which has it already
    length: int  # tokens of the longest piece, everything counted

    @property
    def room(self) -> int:
        """Tokens of the first piece of a text."""
        return self.length - len(self.before) - len(self.after)


@dataclass(frozen=True)
class Window:
    """The tokens of N texts."""

    tokens_T: Ints
    offsets: Longs  # N+1

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Pieces:
    """P pieces: the text each belongs to, where it begins in the window, how many tokens, and whether it is a first."""

    text: Longs
    start: Longs
    size: Longs
    first: NDArray[np.bool_]


def first_pieces(window: Window, frame: Frame) -> Pieces:
    """One piece a text: its beginning."""
    numbers = np.arange(len(window), dtype=np.int64)
    size = np.minimum(np.diff(window.offsets), frame.room)
    return Pieces(numbers, window.offsets[:-1], size, np.ones(len(window), bool))


def all_pieces(window: Window, frame: Frame, overlap: int, most: int | None) -> Pieces:
    """As many pieces as a text needs, at the most `most`; each shares `overlap` tokens with the one before."""
    later = frame.room - len(frame.again)
    assert 0 <= overlap < later, "pieces must move on"
    lengths = np.diff(window.offsets)
    counts = 1 + np.maximum(0, -(-(lengths - frame.room) // (later - overlap)))
    counts = counts if most is None else np.minimum(counts, most)
    text = np.repeat(np.arange(len(window), dtype=np.int64), counts)
    place = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.where(place == 0, 0, frame.room - overlap + (place - 1) * (later - overlap))
    size = np.minimum(lengths[text] - begin, np.where(place == 0, frame.room, later))
    return Pieces(text, window.offsets[text] + begin, size, place == 0)


def lengths(pieces: Pieces, frame: Frame) -> Longs:
    """Tokens of each piece with what is put around it."""
    around = len(frame.before) + len(frame.after)
    return pieces.size + around + np.where(pieces.first, 0, len(frame.again))


def by_budget(sizes: Longs, budget: int) -> list[Longs]:
    """Pieces, longest first, in groups of at most `budget` tokens (or one piece)."""
    order = np.argsort(-sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    groups, start = [], 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        groups.append(order[start:stop])
        start = stop
    return groups


def row(window: Window, pieces: Pieces, frame: Frame, chosen: Longs) -> tuple[Longs, Longs]:
    """The chosen pieces as one row of tokens and its offsets."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths(pieces, frame)[chosen])])
    tokens = np.empty(offsets[-1], np.int64)
    _fill(
        window.tokens_T, pieces.start[chosen], pieces.size[chosen], pieces.first[chosen],
        frame.before, frame.again, frame.after, offsets, tokens,
    )  # fmt: skip
    return tokens, offsets


@numba.njit(cache=True, nogil=True)
def _fill(
    source: Ints, start: Longs, size: Longs, first: NDArray[np.bool_], before: Ints, again: Ints, after: Ints,
    offsets: Longs, out: Longs,
) -> None:  # fmt: skip
    for p in range(len(start)):
        at = offsets[p]
        for i in range(len(before)):
            out[at + i] = before[i]
        at += len(before)
        if not first[p]:
            for i in range(len(again)):
                out[at + i] = again[i]
            at += len(again)
        for i in range(size[p]):
            out[at + i] = source[start[p] + i]
        at += size[p]
        for i in range(len(after)):
            out[at + i] = after[i]


@dataclass(frozen=True)
class Cut:
    """How many texts there were, how many lost their end, how many tokens that is, and the most of one text."""

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    most: int = 0

    def __add__(self, other: Cut) -> Cut:
        sums = self.texts + other.texts, self.cut + other.cut, self.tokens + other.tokens
        return Cut(*sums, max(self.most, other.most))


def cut(window: Window, pieces: Pieces) -> Cut:
    """What of the texts is in none of their pieces."""
    reached = np.zeros(len(window), np.int64)
    np.maximum.at(reached, pieces.text, pieces.start + pieces.size)
    lost = np.maximum(window.offsets[1:] - np.maximum(reached, window.offsets[:-1]), 0)
    return Cut(len(window), int((lost > 0).sum()), int(lost.sum()), int(lost.max(initial=0)))


def mean_of_pieces(vectors_PD: NDArray[np.float32], pieces: Pieces, texts: int) -> NDArray[np.float32]:
    """The mean of the vectors of each text's pieces, N x D."""
    starts = np.searchsorted(pieces.text, np.arange(texts))
    sums = np.add.reduceat(vectors_PD.astype(np.float64), starts, axis=0)
    return (sums / np.bincount(pieces.text, minlength=texts)[:, None]).astype(np.float32)


def numbered(ids: list[str], pieces: Pieces) -> list[str]:
    """Ids of the pieces: id#0, id#1, …"""
    place = np.arange(len(pieces.text)) - np.searchsorted(pieces.text, pieces.text)
    return [f"{ids[text]}#{number}" for text, number in zip(pieces.text.tolist(), place.tolist())]
