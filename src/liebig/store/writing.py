"""Writing a token store: documents -> shards -> one folder.

A shard is the tokens and lengths of some documents, small enough to be built in memory by one process and written as
one file. Shards are then joined in their order, one at a time: lengths become offsets. The same documents give the same
bytes however they were cut into shards. Cost: the tokenizer's time, and one copy of the tokens on disk.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy
from liebig.base.durable import atomic_write, sync
from liebig.base.records import Document
from liebig.store import LEVELS, SUMMARY, TOKENIZER, Ids, id_type
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer

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
