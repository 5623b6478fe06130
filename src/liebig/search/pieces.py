"""Which tokens of a text become a sequence of their own: its beginning, or pieces that overlap; rows of such pieces.

Pieces are sorted by length and packed up to a budget of tokens, so rows hold no padding. Cost: 1 ns per token.

N texts of a window, P pieces, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig.model.settings import Longs, PackedRow
from liebig.ragged import Ragged, gather, split_by_budget
from liebig.text.layout import RoleLayout

Ints = NDArray[np.int32]


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
class TextPieces:
    """P pieces: the text each belongs to, where it begins in the window, how many tokens, and whether it is a first."""

    text: Longs
    start: Longs
    size: Longs
    first: NDArray[np.bool_]


def first_pieces(window: Ragged, frame: Frame) -> TextPieces:
    numbers = np.arange(len(window), dtype=np.int64)
    size = np.minimum(window.lengths, frame.room)
    return TextPieces(numbers, window.offsets[:-1], size, np.ones(len(window), bool))


def all_pieces(window: Ragged, frame: Frame, overlap: int, most: int | None) -> TextPieces:
    """As many pieces as a text needs, at the most `most`; each shares `overlap` tokens with the one before."""
    later = frame.room - len(frame.again)
    assert 0 <= overlap < later, "pieces must move on"
    lengths = window.lengths
    counts = 1 + np.maximum(0, -(-(lengths - frame.room) // (later - overlap)))
    counts = counts if most is None else np.minimum(counts, most)
    text = np.repeat(np.arange(len(window), dtype=np.int64), counts)
    place = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.where(place == 0, 0, frame.room - overlap + (place - 1) * (later - overlap))
    size = np.minimum(lengths[text] - begin, np.where(place == 0, frame.room, later))
    return TextPieces(text, window.offsets[text] + begin, size, place == 0)


def lengths(pieces: TextPieces, frame: Frame) -> Longs:
    """Tokens of each piece with what is put around it."""
    around = len(frame.before) + len(frame.after)
    return pieces.size + around + np.where(pieces.first, 0, len(frame.again))


def packed_rows(window: Ragged, pieces: TextPieces, frame: Frame, budget: int) -> Iterator[PackedRow]:
    """All pieces, longest first, as rows of at most `budget` tokens (or one piece)."""
    sizes = lengths(pieces, frame)
    spans = np.stack((pieces.start, pieces.start + pieces.size), axis=1)[:, None]
    tokens = window.values
    if not pieces.first.all():  # the prompt is gathered too, from behind the tokens
        end = len(tokens)
        tokens = np.concatenate((tokens, frame.again))
        prompt = np.where(pieces.first[:, None], end, np.array([end, len(tokens)]))
        spans = np.concatenate((prompt[:, None], spans), axis=1)
    for chosen in split_by_budget(sizes, budget):
        yield gather(tokens, spans[chosen], frame.before, frame.after), chosen


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


def cut(window: Ragged, pieces: TextPieces) -> Cut:
    reached = np.zeros(len(window), np.int64)
    np.maximum.at(reached, pieces.text, pieces.start + pieces.size)
    lost = np.maximum(window.offsets[1:] - np.maximum(reached, window.offsets[:-1]), 0)
    return Cut(len(window), int((lost > 0).sum()), int(lost.sum()), int(lost.max(initial=0)))


def numbered(ids: list[str], owners: Longs) -> list[str]:
    """Ids of pieces or sentences, by the texts they belong to: id#0, id#1, …"""
    place = np.arange(len(owners)) - np.searchsorted(owners, owners)
    return [f"{ids[text]}#{number}" for text, number in zip(owners.tolist(), place.tolist())]


def frame_of(layout: RoleLayout) -> Frame:
    """The special tokens and the prompt of a layout, for texts that may become several pieces."""
    template = layout.tokenizer.template
    parts = (template.before, template.after, layout.prompt_ids)
    before, after, again = (np.array(ids, np.int32) for ids in parts)
    return Frame(before, after, again, layout.length)
