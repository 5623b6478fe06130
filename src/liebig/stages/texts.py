"""`liebig texts`: cut a collection into texts of many lengths: passages, sentences, phrases, headings and questions.

A student that answers short questions about long passages must learn its teacher's vectors of both. Documents are cut
piece by piece in several processes, each piece into a file that is whole or absent; the files are joined in order, so
the bytes do not depend on the number of processes. Cost: about 5 MB/s of text per core.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from liebig.base import rng
from liebig.base.config import Config, InputPath, Unrecorded
from liebig.base.durable import atomic_write
from liebig.base.errors import DataError
from liebig.base.machine import spread
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Document
from liebig.base.workspace import Folder
from liebig.collection import Collection
from liebig.formats.output import json_line, write_lines
from liebig.store.prepare import FilePiece, cut
from liebig.text.sentences import spans


class TextsConfig(Config):
    """Cut a collection into texts of many lengths, from passages to phrases, for learning a teacher's vectors."""

    collection: InputPath = Field(description="Collection with the documents.")
    questions: tuple[InputPath, ...] = Field(
        (), description="Collections whose queries of `split` are added."
    )
    split: str = Field("train", description="Split of the queries to add.")
    repeat: int = Field(
        1, ge=1, description="Number of times each query is repeated, because queries are few."
    )
    shortest: int = Field(30, ge=1, description="Number of words in the shortest passage.")
    longest: int = Field(130, ge=1, description="Number of words in the longest passage.")
    long: float = Field(
        0.5, ge=0, le=1, description="Share of sections that are also cut into long passages."
    )
    long_words: int = Field(200, ge=1, description="Number of words in a long passage.")
    titled: float = Field(0.5, ge=0, le=1, description="Share of passages with the title in front.")
    sentences: float = Field(0.5, ge=0, le=1, description="Share of sentences that become texts.")
    spans: float = Field(
        0.3, ge=0, le=1, description="Share of sentences from which a few words become a text."
    )
    span_words: int = Field(8, ge=1, description="Maximum number of words in such a span.")
    headings: bool = Field(True, description="Add titles, headings, and simple questions made from them.")
    seed: int = Field(0, ge=0, description="Seed of the random lengths, shares and spans.")
    processes: Annotated[int | None, Unrecorded()] = Field(
        None,
        ge=1,
        description="Number of processes; does not change the result [default: more than one if that is faster].",
    )

    @model_validator(mode="after")
    def _in_order(self) -> TextsConfig:
        if self.shortest > self.longest:
            raise ValueError(f"shortest = {self.shortest} must not be larger than longest = {self.longest}")
        return self


PIECE = 8 << 20  # bytes of JSON lines
PARTS = "parts"
ABOUT = ("what is {}?", "who was {}?", "how does {} work?", "{} definition", "where is {}?", "history of {}")
WITH_HEADING = (
    "{heading} of {title}",
    "{title}: {heading}",
    "what is the {heading} of {title}?",
    "{heading}",
)
CUT, LONG, TITLE, SENTENCE, SPAN, HEADING = range(6)  # streams of a document's key


def run(config: TextsConfig, folder: Folder) -> None:
    parts = folder.path / PARTS
    parts.mkdir(exist_ok=True)
    pieces = cut(config.collection, PIECE)
    tasks = [
        TextsTask(piece, number, parts / f"{number:06}.jsonl", config) for number, piece in enumerate(pieces)
    ]
    with Progress("texts", sum(p.end - p.begin for p in pieces) / 1e6, "MB") as bar:
        missing = [task for task in tasks if not task.out.is_file()]
        for task in spread(TextsTask.make, missing, config.processes):
            bar.advance((task.piece.end - task.piece.begin) / 1e6)
    write_lines(parts / "questions.jsonl", _lines("q", _questions(config)))
    count = _join([*(task.out for task in tasks), parts / "questions.jsonl"], folder.path / "passages.jsonl")
    if count == 0:
        raise DataError("the collection gives no text", file=config.collection)
    shutil.rmtree(parts)
    folder.write_json("summary.json", {"passages": count})


@dataclass(frozen=True)
class TextsTask:
    """A piece of the collection, and the file for its texts."""

    piece: FilePiece
    number: int
    out: Path
    config: TextsConfig

    def make(self) -> TextsTask:
        texts = (
            text
            for place, document in enumerate(self.piece.documents())
            for text in texts_of(document, rng.key(self.config.seed, self.number, place), self.config)
        )
        lines = "".join(line + "\n" for line in _lines(f"{self.number:x}", texts))
        atomic_write(self.out, lines.encode("utf-8"))
        return self


def _lines(prefix: str, texts: Iterator[str]) -> Iterator[str]:
    """Rows of a collection's passages, numbered; texts without a letter or digit are left out."""
    kept = (text for text in texts if any(map(str.isalnum, text)))
    return (
        json_line({"id": f"{prefix}.{number:x}", "title": "", "text": text, "doc": ""})
        for number, text in enumerate(kept)
    )


def _join(parts: Sequence[Path], out: Path) -> int:
    """Join all parts in one file; returns the number of lines."""
    count = 0
    with out.open("wb") as whole:
        for part in parts:
            data = part.read_bytes()
            count += data.count(b"\n")
            whole.write(data)
    return count


def _questions(config: TextsConfig) -> Iterator[str]:
    for _ in range(config.repeat):
        for path in config.questions:
            yield from (query.text for query in Collection(path).queries(config.split))


def texts_of(document: Document, key: np.uint64, how: TextsConfig) -> Iterator[str]:
    if how.headings:
        yield from _named(document, key)
    for number, section in enumerate(document.sections):
        mine = rng.key(int(key), number)
        words = " ".join(section.paragraphs).split()
        yield from _passages(words, document.title, mine, how)
        yield from _sentences(section.paragraphs, mine, how)


def _named(document: Document, key: np.uint64) -> Iterator[str]:
    """The title and its headings, as they are and in simple questions."""
    drawn = rng.integers(rng.key(int(key), HEADING), np.arange(len(document.sections) + 1), 1 << 30)
    if document.title:
        yield document.title
        yield ABOUT[drawn[-1] % len(ABOUT)].format(document.title)
    for section, draw in zip(document.sections, drawn.tolist()):
        if section.heading and section.heading != document.title:
            form = WITH_HEADING[draw % len(WITH_HEADING)]
            yield form.format(heading=section.heading, title=document.title)


def _passages(words: Sequence[str], title: str, key: np.uint64, how: TextsConfig) -> Iterator[str]:
    """Neighbouring passages of drawn lengths; of some sections long ones too."""
    lengths = how.shortest + rng.integers(
        rng.key(int(key), CUT), np.arange(len(words) // how.shortest + 1), how.longest - how.shortest + 1
    )
    yield from _windows(words, lengths, title, rng.key(int(key), TITLE, 0), how.titled)
    if len(words) > how.longest and rng.uniform(key, LONG) < how.long:
        whole = np.full(len(words) // how.long_words + 1, how.long_words)
        yield from _windows(words, whole, title, rng.key(int(key), TITLE, 1), how.titled)


def _windows(
    words: Sequence[str], lengths: NDArray[np.int64], title: str, key: np.uint64, titled: float
) -> Iterator[str]:
    """Windows of these lengths one after the other, some with the title before them."""
    begins = np.concatenate(([0], np.cumsum(lengths)))
    before = rng.uniform(key, np.arange(len(lengths))) < titled
    for begin, end, named in zip(begins[:-1].tolist(), begins[1:].tolist(), before.tolist()):
        if begin >= len(words):
            return
        text = " ".join(words[begin:end])
        yield f"{title} {text}" if named and title else text


def _sentences(paragraphs: Sequence[str], key: np.uint64, how: TextsConfig) -> Iterator[str]:
    """Some of the sentences, and a few neighbouring words of some."""
    sentences = [paragraph[a:b] for paragraph in paragraphs for a, b in spans(paragraph)]
    places = np.arange(len(sentences))
    whole = rng.uniform(rng.key(int(key), SENTENCE), places) < how.sentences
    draws = rng.uniform(rng.key(int(key), SPAN), np.arange(3 * len(sentences)).reshape(-1, 3))
    for sentence, kept, (part, size, place) in zip(sentences, whole.tolist(), draws.tolist()):
        if kept:
            yield sentence
        words = sentence.split() if part < how.spans else []
        if words:
            count = min(1 + int(size * how.span_words), len(words))
            begin = int(place * (len(words) - count + 1))
            yield " ".join(words[begin : begin + count])


STAGE = Stage(
    "texts", TextsConfig, run, "liebig texts runs/collection --out runs/texts", positional="collection"
)
