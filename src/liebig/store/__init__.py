"""The token store: a corpus as one flat row of token ids, and where everything in it begins.

A folder of `.npy` files, mapped into memory and never copied: `tokens`, then a chain of offsets, each into the
level below: documents -> sections -> paragraphs -> sentences -> tokens. Ids lie beside it as rows with offsets of
their own. Opening costs one read of the files to check their hashes (`hashes=False`
checks sizes only), random access one page fault; the memory used is what the system chooses to cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from liebig.base import npy, workspace
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, read_json
from liebig.ragged import Longs as Offsets, Ragged, Strings
from liebig.text.tokenizer import Tokenizer

SUMMARY = "store.json"
TOKENIZER = "tokenizer"
Ids = NDArray[Any]  # uint16 or uint32, by the size of the vocabulary
LEVELS = ("documents", "sections", "paragraphs", "sentences", "tokens")


class StoreFile(FileModel):
    """`store.json`, as far as the store depends on it."""

    format: Literal[1]
    vocab_size: PositiveInt


def id_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


@dataclass(frozen=True)
class TokenStore:
    """An opened store. Every array is a read-only view of a mapped file."""

    path: Path
    tokens: Ids
    sentences: Offsets  # S+1, into tokens; strictly increasing
    paragraphs: Offsets  # P+1, into sentences
    sections: Offsets  # C+1, into paragraphs
    documents: Offsets  # D+1, into sections
    ids: Strings  # D
    vocab_size: int

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> TokenStore:
        """Map a store, after its files were held against its manifest."""
        manifest = workspace.verify(path, hashes=hashes)
        if SUMMARY not in manifest.outputs:
            raise DataError("the folder is not a token store", file=path, fix="make one with liebig prepare")
        summary = read_json(path / SUMMARY, StoreFile, fix="run liebig prepare again")
        kind = id_type(summary.vocab_size)
        tokens = npy.load(path / "tokens.npy", [kind], (None,))
        levels: dict[str, Offsets] = {}
        below = len(tokens)
        for name in reversed(LEVELS[:-1]):
            levels[name] = npy.load_offsets(path / f"{name}.npy", end=below)
            below = len(levels[name]) - 1
        if not npy.ascends(levels["sentences"], strictly=True):
            raise npy.corrupt(path / "sentences.npy", "has a sentence without tokens")
        if hashes and len(tokens) and tokens.max() >= summary.vocab_size:
            raise npy.corrupt(path / "tokens.npy", "has tokens that are not in the vocabulary")

        names = npy.load(path / "ids.npy", [np.uint8], (None,))
        offsets = npy.load_offsets(path / "ids_offsets.npy", len(levels["documents"]) - 1, len(names))
        ids = Strings(Ragged(names, offsets), path / "ids.npy")
        return cls(path=path, tokens=tokens, **levels, ids=ids, vocab_size=summary.vocab_size)

    def __len__(self) -> int:
        return len(self.documents) - 1

    def __repr__(self) -> str:
        return f"TokenStore({str(self.path)!r}: {len(self):,} documents, {len(self.tokens):,} tokens)"

    @cached_property
    def tokenizer(self) -> Tokenizer:
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
        """The tokens of a document, without title and headings: a view."""
        (begin,), (end,) = self.token_ranges(np.array([range(len(self))[i]]))
        return self.tokens[begin:end]
