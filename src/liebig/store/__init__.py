"""The token store: a corpus as one flat row of token ids, and where everything in it begins.

A folder of `.npy` files, mapped into memory and never copied: `tokens`, then a chain of offsets, each into the
level below: documents -> sections -> paragraphs -> sentences -> tokens. Titles, headings and ids lie beside it
as rows with offsets of their own. Opening costs one read of the files to check their hashes (`hashes=False`
checks sizes only), random access one page fault; the memory used is what the system chooses to cache.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import PositiveInt

from liebig.base import npy, workspace
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, read_json
from liebig.base.records import Document
from liebig.ragged import Longs as Offsets, Ragged, Strings
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer

FORMAT = 1
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

        def rows(name: str, kind: DTypeLike, count: int) -> Ragged:
            values = npy.load(path / f"{name}.npy", [kind], (None,))
            return Ragged(values, npy.load_offsets(path / f"{name}_offsets.npy", count, len(values)))

        documents, sections = len(levels["documents"]) - 1, len(levels["sections"]) - 1
        passages = None
        if "passages.npy" in manifest.outputs:
            passages = npy.load(path / "passages.npy", [np.int64], (None, 2))
            starts, ends = passages[:, 0], passages[:, 1]
            if (
                not (npy.within(starts, len(tokens) + 1) and npy.within(ends, len(tokens) + 1))
                or (starts > ends).any()
            ):
                raise npy.corrupt(path / "passages.npy", "has passages that do not fit the tokens")
        return cls(
            path=path,
            tokens=tokens,
            **levels,
            titles=rows("titles", kind, documents),
            headings=rows("headings", kind, sections),
            ids=Strings(rows("ids", np.uint8, documents), path / "ids.npy"),
            passages=passages,
            vocab_size=summary.vocab_size,
        )

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
    titles: Ids
    titles_offsets: Lengths
    headings: Ids
    headings_offsets: Lengths
    ids: NDArray[np.uint8]
    ids_offsets: Lengths
    passages: NDArray[np.int64] | None = None

    def save(self, path: Path) -> None:
        """Write the shard as one file, whole or not at all."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        buffer = io.BytesIO()
        np.savez(buffer, shapes=_shapes(arrays), **arrays)
        workspace.atomic_write(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> TokenShard:
        """Read a shard back."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{f.name: arrays[f.name] for f in fields(cls) if f.name in arrays})


ROWS = ("tokens", "titles", "headings", "ids", "passages")
NAMES = tuple(f.name for f in fields(TokenShard))


def _shapes(arrays: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """The length of each array, in the order of `NAMES`; -1 where there is none."""
    return np.array([len(arrays[name]) if name in arrays else -1 for name in NAMES])


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class TextColumn:
    """Texts that become one row of ids, tokenized whenever there are enough of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode, self._type = tokenizer.encode_packed, id_type(tokenizer.vocab_size)
        self._texts: list[str] = []
        self._characters = 0
        self._ids: list[Ids] = [np.zeros(0, self._type)]
        self._lengths: list[Lengths] = [np.zeros(0, np.int64)]

    def add(self, text: str) -> None:
        """Take one text."""
        self._texts.append(text)
        self._characters += len(text)
        if self._characters >= CHARACTERS:
            self._tokenize()

    def _tokenize(self) -> None:
        rows = self._encode(self._texts)
        self._ids.append(rows.values.astype(self._type))
        self._lengths.append(rows.lengths)
        self._texts, self._characters = [], 0

    def finish(self) -> tuple[Ids, Lengths]:
        """The ids of all texts, and how many each has."""
        self._tokenize()
        return np.concatenate(self._ids), np.concatenate(self._lengths)


class ShardBuilder:
    """Takes documents one by one and gives a shard."""

    def __init__(self, tokenizer: Tokenizer, spans: Spans) -> None:
        self._spans = spans
        self._sentences, self._titles, self._headings = (
            TextColumn(tokenizer),
            TextColumn(tokenizer),
            TextColumn(tokenizer),
        )
        self._paragraphs: list[int] = []
        self._sections: list[int] = []
        self._documents: list[int] = []
        self._ids: list[bytes] = []

    def add(self, document: Document) -> None:
        """Take one document; every section and paragraph is kept in its place, also one without a token."""
        self._ids.append(document.id.encode("utf-8", "surrogatepass"))
        self._titles.add(document.title)
        self._documents.append(len(document.sections))
        for section in document.sections:
            self._headings.add(section.heading)
            self._sections.append(len(section.paragraphs))
            for paragraph in section.paragraphs:
                spans = self._spans(paragraph)
                self._paragraphs.append(len(spans))
                for sentence in cut(paragraph, spans):
                    self._sentences.add(sentence)

    def shard(self) -> TokenShard:
        """Everything taken so far."""
        tokens, lengths = self._sentences.finish()
        sentences, paragraphs = _without_empty(lengths, _array(self._paragraphs))
        titles, titles_offsets = self._titles.finish()
        headings, headings_offsets = self._headings.finish()
        return TokenShard(
            tokens=tokens,
            sentences=sentences,
            paragraphs=paragraphs,
            sections=_array(self._sections),
            documents=_array(self._documents),
            titles=titles,
            titles_offsets=titles_offsets,
            headings=headings,
            headings_offsets=headings_offsets,
            ids=np.frombuffer(b"".join(self._ids), dtype=np.uint8),
            ids_offsets=_array([len(i) for i in self._ids]),
        )


def cut(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The sentences of a text, each with the white space before it, so that together they are the whole text.

    A tokenizer that marks the beginning of words then gives a sentence the ids it has inside its paragraph.
    """
    begin = 0
    for _, end in spans:
        yield text[begin:end]
        begin = end


def _array(values: Sequence[int]) -> Lengths:
    return np.array(values, dtype=np.int64)


def _without_empty(sentences: Lengths, paragraphs: Lengths) -> tuple[Lengths, Lengths]:
    """Leave out sentences that have no token; the paragraphs hold fewer then."""
    owner = np.repeat(np.arange(len(paragraphs)), paragraphs)
    full = sentences > 0
    return sentences[full], np.bincount(owner[full], minlength=len(paragraphs)).astype(np.int64)


def build(documents: Iterable[Document], tokenizer: Tokenizer, spans: Spans = sentences.spans) -> TokenShard:
    """A shard of all the documents."""
    builder = ShardBuilder(tokenizer, spans)
    for document in documents:
        builder.add(document)
    return builder.shard()


def join(shards: Sequence[Path], folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Join the shards in their order into the files of a store; gives its summary, written last of all."""
    totals = _totals(shards)
    files = {name: _start(folder / f"{name}.npy", name, total, tokenizer) for name, total in totals.items()}
    ends = dict.fromkeys(totals, 0)
    for path in shards:
        shard = TokenShard.load(path)
        begin = ends["tokens"]
        for name, file in files.items():
            values = getattr(shard, name)
            file.write(_moved(name, values, begin if name == "passages" else ends[name]))
            ends[name] += len(values) if name in ROWS else int(values.sum())
    for file in files.values():
        file.flush()
        os.fsync(file.fileno())
        file.close()
    tokenizer.save(folder / TOKENIZER)
    summary = _summary(totals, tokenizer)
    workspace.atomic_write(folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def _totals(shards: Sequence[Path]) -> dict[str, int]:
    """How long each array of the store will be."""
    shapes = []
    for path in shards:
        with np.load(path, allow_pickle=False) as arrays:
            shapes.append(arrays["shapes"])
    totals = np.sum(shapes, axis=0)
    return {name: int(total) for name, total in zip(NAMES, totals) if total >= 0}


def _start(path: Path, name: str, total: int, tokenizer: Tokenizer) -> IO[bytes]:
    """A `.npy` file with its header, ready for its values; offsets begin with 0."""
    kind = id_type(tokenizer.vocab_size) if name in ROWS[:3] else np.dtype("u1" if name == "ids" else "<i8")
    shape: tuple[int, ...] = (total,) if name in ROWS else (total + 1,)
    shape = (*shape, 2) if name == "passages" else shape
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    file = path.open("wb")
    np.lib.format.write_array_header_1_0(file, header)
    if name not in ROWS:
        file.write(np.zeros(1, kind).tobytes())
    return file


def _moved(name: str, values: NDArray[Any], begin: int) -> bytes:
    """The bytes of a shard's array at its place: lengths become offsets that go on from `begin`."""
    if name == "passages":
        return (values + begin).tobytes()
    return values.tobytes() if name in ROWS else (np.cumsum(values) + begin).tobytes()


def _summary(totals: dict[str, int], tokenizer: Tokenizer) -> dict[str, Any]:
    names = ("documents", "sections", "paragraphs", "sentences", "tokens", "passages")
    counts = {name: totals[name] for name in names if name in totals}
    return {"format": FORMAT, **counts, "vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.digest}
