"""Cut a collection into texts of many lengths, passages to phrases: what a student learns its teacher's vectors of.

    liebig init data/wiki --out runs/wiki
    liebig init data/squad --out runs/squad
    liebig init data/nq --out runs/nq
    python experiments/encoders/texts.py runs/wiki data/texts --questions runs/squad runs/nq

A student that answers short questions about long passages must learn vectors of both: passages of 30 to 130 words, and
of half of the long sections passages of 200; half of the sentences, and a few words of some; titles, headings and
simple questions made from them; and training questions, each eight times, because they are few. Draws depend on the
seed and the place of a document. What it writes is a collection of passages. About 5 MB/s of text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.progress import track
from liebig.base.records import Document
from liebig.collection import Collection
from liebig.store.prepare import cut
from liebig.text.sentences import spans

SHORTEST, LONGEST, LONG_WORDS, SPAN_WORDS = 30, 130, 200, 8  # words of a passage, of a long one, of a phrase
LONG, TITLED, SENTENCES, SPANS = 0.5, 0.5, 0.5, 0.3  # shares of sections, passages and sentences
REPEAT = 8  # of a question
PIECE = 8 << 20  # bytes of JSON lines that are numbered together
ABOUT = ("what is {}?", "who was {}?", "how does {} work?", "{} definition", "where is {}?", "history of {}")
WITH_HEADING = (
    "{heading} of {title}",
    "{title}: {heading}",
    "what is the {heading} of {title}?",
    "{heading}",
)
CUT, LONGER, TITLE, SENTENCE, SPAN, HEADING = range(6)  # streams of a document's key


def rows(collection: Path, seed: int) -> Iterator[str]:
    """The lines of all texts of a collection."""
    for number, piece in enumerate(cut(collection, PIECE)):
        texts = (
            text
            for place, document in enumerate(piece.documents())
            for text in texts_of(document, rng.key(seed, number, place))
        )
        yield from lines(f"{number:x}", texts)


def lines(prefix: str, texts: Iterable[str]) -> Iterator[str]:
    """Rows of a collection's passages, numbered; texts without a letter or digit are left out."""
    kept = (text for text in texts if any(map(str.isalnum, text)))
    for number, text in enumerate(kept):
        row = {"id": f"{prefix}.{number:x}", "title": "", "text": text, "doc": ""}
        yield json.dumps(row, ensure_ascii=False) + "\n"


def texts_of(document: Document, key: np.uint64) -> Iterator[str]:
    yield from named(document, key)
    for number, section in enumerate(document.sections):
        mine = rng.key(int(key), number)
        yield from passages(" ".join(section.paragraphs).split(), document.title, mine)
        yield from sentences(section.paragraphs, mine)


def named(document: Document, key: np.uint64) -> Iterator[str]:
    """The title and its headings, as they are and in simple questions."""
    drawn = rng.integers(rng.key(int(key), HEADING), np.arange(len(document.sections) + 1), 1 << 30)
    if document.title:
        yield document.title
        yield ABOUT[drawn[-1] % len(ABOUT)].format(document.title)
    for section, draw in zip(document.sections, drawn.tolist()):
        if section.heading and section.heading != document.title:
            form = WITH_HEADING[draw % len(WITH_HEADING)]
            yield form.format(heading=section.heading, title=document.title)


def passages(words: Sequence[str], title: str, key: np.uint64) -> Iterator[str]:
    """Neighbouring passages of drawn lengths; of some sections long ones too."""
    places = np.arange(len(words) // SHORTEST + 1)
    lengths = SHORTEST + rng.integers(rng.key(int(key), CUT), places, LONGEST - SHORTEST + 1)
    yield from windows(words, lengths, title, rng.key(int(key), TITLE, 0))
    if len(words) > LONGEST and rng.uniform(key, LONGER) < LONG:
        whole = np.full(len(words) // LONG_WORDS + 1, LONG_WORDS)
        yield from windows(words, whole, title, rng.key(int(key), TITLE, 1))


def windows(words: Sequence[str], lengths: NDArray[np.int64], title: str, key: np.uint64) -> Iterator[str]:
    """Windows of these lengths one after the other, some with the title before them."""
    begins = np.concatenate(([0], np.cumsum(lengths)))
    before = rng.uniform(key, np.arange(len(lengths))) < TITLED
    for begin, end, is_titled in zip(begins[:-1].tolist(), begins[1:].tolist(), before.tolist()):
        if begin >= len(words):
            return
        text = " ".join(words[begin:end])
        yield f"{title} {text}" if is_titled and title else text


def sentences(paragraphs: Sequence[str], key: np.uint64) -> Iterator[str]:
    """Some of the sentences, and a few neighbouring words of some."""
    every = [paragraph[a:b] for paragraph in paragraphs for a, b in spans(paragraph)]
    whole = rng.uniform(rng.key(int(key), SENTENCE), np.arange(len(every))) < SENTENCES
    draws = rng.uniform(rng.key(int(key), SPAN), np.arange(3 * len(every)).reshape(-1, 3))
    for sentence, kept, (part, size, place) in zip(every, whole.tolist(), draws.tolist()):
        if kept:
            yield sentence
        words = sentence.split() if part < SPANS else []
        if words:
            count = min(1 + int(size * SPAN_WORDS), len(words))
            begin = int(place * (len(words) - count + 1))
            yield " ".join(words[begin : begin + count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("collection", type=Path, help="a collection with documents")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--questions", type=Path, nargs="*", default=[], help="collections with queries")
    parser.add_argument("--split", default="train", help="split of the queries")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asked = [query.text for path in given.questions for query in Collection(path).queries(given.split)]
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "passages.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(track(rows(given.collection, given.seed), "texts", unit="texts"))
        file.writelines(lines("q", asked * REPEAT))


if __name__ == "__main__":
    main()
