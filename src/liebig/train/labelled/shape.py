"""How a query or a passage becomes tokens: prompt, title, length and special tokens.

Imports no torch: the processes that tokenise a training set start with this alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from liebig.records import Passage, Query
from liebig.text.tokenizer import Tokenizer

Title = Literal["space", "separator", "no"]
Longs = NDArray[np.int64]
MARK = "\x1e"
"""Between title and text where a separator token is to stand; a character no text has."""


def counted(starts: Longs, sizes: Longs) -> Longs:
    """The numbers from each start, so many of each, one after the other."""
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)


@dataclass(frozen=True)
class Shape:
    """How a query or a passage becomes one sequence of at most `length` tokens, special ones included."""

    tokenizer: Tokenizer
    length: int
    prompt: str = ""
    title: Title = "space"
    lowercase: bool = False
    bare: bool = False  # without special tokens: one half of a pair

    def text(self, record: Query | Passage) -> str:
        """The text with prompt and title; a separator token stands as `MARK` until it is tokenised."""
        body = record.text
        if isinstance(record, Passage) and record.title and self.title != "no":
            body = record.title + (MARK if self.title == "separator" else " ") + body
        full = self.prompt + body
        return full.lower() if self.lowercase else full

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, cut and wrapped."""
        rows = self._ids(texts)
        if self.bare:
            return [ids[: self.length] for ids in rows]
        room = self.length - len(self.tokenizer.wrap([]))
        return [self.tokenizer.wrap(ids[:room]) for ids in rows]

    def packed(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], Longs]:
        """The same as one row of ids, and the length of each text in it."""
        if self.title == "separator":
            rows = self.rows(texts)
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths
        ids, offsets = self.tokenizer.encode_packed(texts)
        template = self.tokenizer.template
        before, after = ((), ()) if self.bare else (template.before, template.after)
        kept = np.minimum(np.diff(offsets), self.length - len(before) - len(after))
        lengths = kept + len(before) + len(after)
        ends = np.cumsum(lengths)
        out = np.empty(int(lengths.sum()), np.int32)
        for place, token in enumerate(before):
            out[ends - lengths + place] = token
        for place, token in enumerate(reversed(after), 1):
            out[ends - place] = token
        out[counted(ends - lengths + len(before), kept)] = ids[counted(offsets[:-1], kept)]
        return out, lengths

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids without special tokens, but for the separator; text itself can never be one."""
        if self.title != "separator":
            return self.tokenizer.encode_batch(texts)
        parts = [text.split(MARK, 1) for text in texts]
        ids = iter(self.tokenizer.encode_batch([part for both in parts for part in both]))
        return [
            next(ids) if len(both) == 1 else [*next(ids), self.tokenizer.sep, *next(ids)] for both in parts
        ]
