"""The texts of a training set, tokenised once into files that are read as memory.

`Shape` says how a record becomes tokens (prompt, title, length, special tokens); `write` streams records into one
flat array and its offsets, `Texts` maps them. Cost: the tokenizer once, 4 bytes a token on disk, no memory; a text is
then a slice, so that a batch costs about 100 ns a sequence and 1 ns a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from liebig.model.packed import Packed
from liebig.records import Passage, Query
from liebig.text.tokenizer import Tokenizer

Title = Literal["space", "separator", "no"]
Longs = NDArray[np.int64]
AT_ONCE = 4096
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


@dataclass(frozen=True)
class Texts:
    """Tokenised texts: text i is tokens[offsets[i]:offsets[i + 1]], special tokens included."""

    tokens: NDArray[np.int32]
    offsets: Longs

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[str], shape: Shape) -> Texts:
        """In memory, for few texts."""
        parts, lengths, stream = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)], iter(texts)
        while some := list(islice(stream, AT_ONCE)):
            row, new = shape.packed(some)
            parts.append(row)
            lengths.append(new)
        return cls(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))

    @classmethod
    def open(cls, path: Path) -> Texts:
        """What `write` left, mapped."""
        offsets = np.load(path.with_suffix(".npy"))
        if not offsets[-1]:
            return cls(np.zeros(0, np.int32), offsets)
        return cls(np.memmap(path.with_suffix(".tokens"), np.int32, "r"), offsets)

    def sequences(self, numbers: Iterable[int]) -> list[list[int]]:
        """Token ids of some texts."""
        return [self.tokens[self.offsets[i] : self.offsets[i + 1]].tolist() for i in numbers]

    def packed(self, numbers: Longs) -> Packed:
        """Some texts as one row, in the order given."""
        starts, ends = self.offsets[numbers], self.offsets[numbers + 1]
        bounds = np.concatenate(([0], np.cumsum(ends - starts)))
        row = np.concatenate([self.tokens[a:b] for a, b in zip(starts.tolist(), ends.tolist())])
        return Packed.from_numpy(row, bounds)


def write(path: Path, texts: Iterable[str], shape: Shape) -> None:
    """Tokenise a stream into `path`.tokens and `path`.npy; the latter last, so it says that all is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths, stream = [np.zeros(1, np.int64)], iter(texts)
    with path.with_suffix(".tokens").open("wb") as file:
        while some := list(islice(stream, AT_ONCE)):
            row, new = shape.packed(some)
            file.write(row.tobytes())
            lengths.append(new)
    np.save(path.with_suffix(".npy"), np.cumsum(np.concatenate(lengths)))
