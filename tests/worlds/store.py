"""A small corpus, a tokenizer trained on it, and its store: made in a second, the same every time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from liebig.base import rng, workspace
from liebig.base.records import Document, Section
from liebig.store import TokenStore
from liebig.store.writing import Spans, build, join
from liebig.text.sentences import spans as spans_of
from liebig.text.tokenizer import Tokenizer

SYLLABLES = ("ka", "lo", "mi", "nu", "re", "so", "ta", "vi", "bo", "da", "fe", "gu")


def write_store(
    out: Path, documents: Iterable[Document], tokenizer: Tokenizer, spans: Spans = spans_of
) -> None:
    """A whole store from documents that fit in memory."""
    with workspace.stage(out, kind="prepare", recipe={}, inputs={}, resume=False) as folder:
        path = folder.path / "shard.npz"
        build(documents, tokenizer, spans).save(path)
        join([path], folder.path, tokenizer)
        path.unlink()


def word(key: int) -> str:
    return "".join(SYLLABLES[int(rng.below(key, i, 12))] for i in range(1 + int(rng.below(key, 9, 3))))


def sentence(key: int, longest: int = 12) -> str:
    words = [word(rng.mix(key, i)) for i in range(1 + int(rng.below(key, 99, longest)))]
    return " ".join(words).capitalize() + "."


@cache
def document(number: int, sentences: int) -> Document:
    """A document of about so many sentences, in paragraphs of up to four and sections of up to three."""
    key = rng.key(1, number)
    texts = [sentence(rng.mix(key, i)) for i in range(sentences)]
    paragraphs, at = [], 0
    while at < len(texts):
        size = 1 + int(rng.below(key, 1000 + at, 4))
        paragraphs.append(" ".join(texts[at : at + size]))
        at += size
    sections = tuple(
        Section(f"Part {i // 3}" if i else "", tuple(paragraphs[i : i + 3]))
        for i in range(0, len(paragraphs), 3)
    )
    return Document(f"doc-{number}", f"Title {word(int(key))}", sections)


def documents(count: int = 40) -> list[Document]:
    """Documents of 0 to 60 sentences; the first is empty and the last the longest."""
    sizes = [0, *(1 + int(rng.below(rng.key(2), i, 40)) for i in range(count - 2)), 60]
    return [document(i, size) for i, size in enumerate(sizes)]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train((d.text for d in documents()), vocab_size=120)


def store(folder: Path, count: int = 40) -> TokenStore:
    write_store(folder, documents(count), tokenizer())
    return TokenStore.open(folder)
