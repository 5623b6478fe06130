"""The token store: a corpus as one flat row of token ids, and where everything in it begins.

A folder of `.npy` files, mapped into memory and never copied: `tokens`, then a chain of offsets, each into the
level below: documents -> sections -> paragraphs -> sentences -> tokens. Titles, headings and ids lie beside it
as rows with offsets of their own. Opening costs one read of the files to check their hashes (`hashes=False`
checks sizes only), random access one page fault; the memory used is what the system chooses to cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import CorruptError, DataError
from liebig.ragged import Longs as Offsets, Ragged, Strings
from liebig.text.tokenizer import Tokenizer

FORMAT = 1
SUMMARY = "store.json"
TOKENIZER = "tokenizer"
Ids = NDArray[Any]  # uint16 or uint32, by the size of the vocabulary
LEVELS = ("documents", "sections", "paragraphs", "sentences", "tokens")


@dataclass(frozen=True)
class TokenStore:
    """An opened store. Every array is a read-only view of a mapped file."""

    path: Path
    tokens: Ids
    sentences: Offsets  # S+1, into tokens; strictly increasing
    paragraphs: Offsets  # P+1, into sentences
    sections: Offsets  # C+1, into paragraphs
    documents: Offsets  # D+1, into sections
    titles: Ragged  # D
    headings: Ragged  # C
    ids: Strings  # D
    passages: (
        NDArray[np.int64] | None
    )  # Q x 2: begin and end of each passage in tokens; None where none were cut
    vocab_size: int

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> TokenStore:
        """Map a store, after its files were held against its manifest."""
        manifest = workspace.verify(path, hashes=hashes)
        if SUMMARY not in manifest.outputs:
            raise DataError("the folder is not a token store", file=path, fix="make one with liebig prepare")
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        if summary["format"] != FORMAT:
            raise DataError(
                f"the store has format {summary['format']}, this version reads {FORMAT}",
                file=path,
                fix="run liebig prepare again",
            )
        store = cls(
            path=path,
            **{name: _map(path, name) for name in LEVELS},
            titles=Ragged(_map(path, "titles"), _map(path, "titles_offsets")),
            headings=Ragged(_map(path, "headings"), _map(path, "headings_offsets")),
            ids=Strings(Ragged(_map(path, "ids"), _map(path, "ids_offsets"))),
            passages=_map(path, "passages") if "passages.npy" in manifest.outputs else None,
            vocab_size=summary["vocab_size"],
        )
        store._check()
        return store

    def __len__(self) -> int:
        return len(self.documents) - 1

    def __repr__(self) -> str:
        return f"TokenStore({str(self.path)!r}: {len(self):,} documents, {len(self.tokens):,} tokens)"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens."""
        return Tokenizer.from_folder(self.path / TOKENIZER)

    def sentence_ranges(self, documents: NDArray[np.int64]) -> tuple[Offsets, Offsets]:
        """First sentence of each of these documents, and the one past its last."""
        first, last = self.documents[documents], self.documents[documents + 1]
        return self.paragraphs[self.sections[first]], self.paragraphs[self.sections[last]]

    def token_ranges(self, documents: NDArray[np.int64]) -> tuple[Offsets, Offsets]:
        """First token of each of these documents, and the one past its last."""
        first, last = self.sentence_ranges(documents)
        return self.sentences[first], self.sentences[last]

    def document(self, i: int) -> Ids:
        """The tokens of a document, title and headings left out: a view."""
        (begin,), (end,) = self.token_ranges(np.array([range(len(self))[i]]))
        return self.tokens[begin:end]

    def _check(self) -> None:
        """The levels must fit each other; hashes may not have been compared."""
        for upper, lower in pairwise(LEVELS):
            size = len(getattr(self, lower)) - (lower != "tokens")
            offsets = getattr(self, upper)
            if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != size:
                raise CorruptError(
                    f"{upper}.npy does not match {lower}.npy", file=self.path, fix="prepare it again"
                )
        documents, sections = len(self), len(self.sections) - 1
        rows = {"titles": (self.titles, documents), "headings": (self.headings, sections)}
        for name, (ragged, count) in (rows | {"ids": (self.ids.utf8, documents)}).items():
            if len(ragged) != count or ragged.offsets[-1] != len(ragged.values):
                raise CorruptError(f"{name}.npy has a wrong length", file=self.path, fix="prepare it again")


def _map(path: Path, name: str) -> NDArray[Any]:
    """A plain read-only array over the mapped file."""
    file = path / f"{name}.npy"
    try:
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError) as error:
        raise CorruptError(f"cannot be mapped: {error}", file=file, fix="run liebig prepare again") from None
