"""The token store: a corpus as one flat row of token ids, and where everything in it begins.

A folder of `.npy` files, mapped into memory and never copied: `tokens`, then a chain of offsets, each into the
level below: documents -> sections -> paragraphs -> sentences -> tokens. Ids lie beside it as rows with offsets of
their own. Opening costs one read of the files to check their hashes (`hashes=False`
checks sizes only), random access one page fault; the memory used is what the system chooses to cache.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from liebig.base import npy, workspace
from liebig.base.durable import atomic_write, sync
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, read_json
from liebig.base.records import Document
from liebig.ragged import Longs as Offsets, Ragged, Strings
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer

SUMMARY = "store.json"
TOKENIZER = "tokenizer"
Ids = NDArray[Any]  # uint16 or uint32, by the size of the vocabulary
LEVELS = ("documents", "sections", "paragraphs", "sentences", "tokens")


class StoreFile(FileModel):
    """`store.json`, as far as the store depends on it."""

    format: Literal[1]
    vocab_size: PositiveInt


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


# Writing a token store: documents -> shards -> one folder.
#
# A shard is the tokens and lengths of some documents, small enough to be built in memory by one process and written
# as one file. Shards are then joined in their order, one at a time: lengths become offsets. The same documents give
# the same bytes however they were cut into shards. Cost: the tokenizer's time, and one copy of the tokens on disk.

CHARACTERS = (
    1 << 18
)  # of text given to the tokenizer at once: enough to keep it busy, little enough to forget
Lengths = NDArray[np.int64]
Spans = Callable[[str], Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class TokenShard:
    """Some documents: rows of values, and how many things of the level below each thing holds."""

    tokens: Ids
    sentences: Lengths
    paragraphs: Lengths
    sections: Lengths
    documents: Lengths
    ids: NDArray[np.uint8]
    ids_offsets: Lengths

    def save(self, path: Path) -> None:
        """Write the shard as one file, whole or not at all."""
        buffer = io.BytesIO()
        np.savez(buffer, **vars(self))
        atomic_write(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> TokenShard:
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**arrays)


def id_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def build(documents: Iterable[Document], tokenizer: Tokenizer, spans: Spans = sentences.spans) -> TokenShard:
    """A shard of all the documents; every section and paragraph keeps its place, also one without a token."""
    ids, of_documents, of_sections, of_paragraphs = list[bytes](), list[int](), list[int](), list[int]()
    kind, texts, characters = id_type(tokenizer.vocab_size), list[str](), 0
    tokens, lengths = [np.zeros(0, kind)], [np.zeros(0, np.int64)]

    def tokenize() -> None:
        rows = tokenizer.encode_packed(texts)
        tokens.append(rows.values.astype(kind))
        lengths.append(rows.lengths)
        texts.clear()

    for document in documents:
        ids.append(document.id.encode("utf-8", "surrogatepass"))
        of_documents.append(len(document.sections))
        for section in document.sections:
            of_sections.append(len(section.paragraphs))
            for paragraph in section.paragraphs:
                bounds = spans(paragraph)
                of_paragraphs.append(len(bounds))
                for sentence in cut(paragraph, bounds):
                    texts.append(sentence)
                    characters += len(sentence)
                    if characters >= CHARACTERS:
                        tokenize()
                        characters = 0
    tokenize()
    sizes = np.concatenate(lengths)
    # Sentences that have no token are left out; the paragraphs hold fewer then.
    owner = np.repeat(np.arange(len(of_paragraphs)), of_paragraphs)[sizes > 0]
    return TokenShard(
        tokens=np.concatenate(tokens),
        sentences=sizes[sizes > 0],
        paragraphs=np.bincount(owner, minlength=len(of_paragraphs)).astype(np.int64),
        sections=np.array(of_sections, np.int64),
        documents=np.array(of_documents, np.int64),
        ids=np.frombuffer(b"".join(ids), np.uint8),
        ids_offsets=np.array([len(name) for name in ids], np.int64),
    )


def cut(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The sentences of a text, each with the white space before it, so that together they are the whole text.

    A tokenizer that marks the beginning of words then gives a sentence the ids it has inside its paragraph.
    """
    begin = 0
    for _, end in spans:
        yield text[begin:end]
        begin = end


def join(shards: Sequence[Path], folder: Path, tokenizer: Tokenizer) -> None:
    """Join the shards in their order into the files of a store; its summary is written last of all."""
    kinds = {"tokens": id_type(tokenizer.vocab_size), "ids": np.dtype(np.uint8)}
    paths = {field.name: folder / f"{field.name}.npy" for field in fields(TokenShard)}
    ends = dict.fromkeys(paths, 0)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(npy.NpyWriter(path, kinds.get(name, np.int64)))
            for name, path in paths.items()
        }
        for name in paths.keys() - kinds:
            files[name].append(np.zeros(1, np.int64))
        for path in shards:
            shard = TokenShard.load(path)
            for name, file in files.items():
                values = getattr(shard, name)
                file.append(values if name in kinds else np.cumsum(values) + ends[name])
                ends[name] += int(values.sum()) if name not in kinds else 0
    for path in paths.values():
        sync(path)
    tokenizer.save(folder / TOKENIZER)
    counts = {name: files[name].rows - (name not in kinds) for name in LEVELS}
    summary = {"format": 1, **counts, "vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.digest}
    atomic_write(folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
