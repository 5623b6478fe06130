"""How a query or a passage becomes tokens: prompt, title, length and special tokens.

Imports no torch: the processes that tokenise a training set start with this alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from liebig.records import Passage, Query
from liebig.text.rows import Rows, bounds, counted, lists, wrapped
from liebig.text.tokenizer import Tokenizer

Title = Literal["space", "separator", "no"]
AT_ONCE = 4096  # texts tokenised together
MARK = "\x1e"
"""Between title and text where a separator token is to stand; a character no text has."""


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
        return lists(self.packed(texts))

    def packed(self, texts: Sequence[str]) -> Rows:
        """The same as one row and its offsets."""
        template = self.tokenizer.template
        around = ((), ()) if self.bare else (template.before, template.after)
        return wrapped(self._encoded(texts), self.length, *around)

    def parts(self, texts: Iterable[str]) -> Iterator[Rows]:
        """The same for any number of texts, some thousand at a time."""
        stream = iter(texts)
        while some := list(islice(stream, AT_ONCE)):
            yield self.packed(some)

    def _encoded(self, texts: Sequence[str]) -> Rows:
        """Without special tokens, but for the separator; text itself can never be one."""
        if self.title != "separator":
            return self.tokenizer.encode_packed(texts)
        parts = [text.split(MARK, 1) for text in texts]
        row, offsets = self.tokenizer.encode_packed([part for both in parts for part in both])
        sizes = np.diff(offsets)
        ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        room = sizes + 1
        room[ends - 1] -= 1  # a separator after every part but a text's last
        made = bounds(room)
        out = np.full(made[-1], self.tokenizer.sep if len(sizes) > len(texts) else 0, np.int32)
        out[counted(made[:-1], sizes)] = row
        return out, made[np.concatenate((np.zeros(1, np.int64), ends))]
