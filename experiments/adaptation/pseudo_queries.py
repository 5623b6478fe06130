"""Pseudo-queries: texts cut out of passages, and questions that a model generated for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus import WORD, Corpus
from numpy.typing import NDArray

from liebig.text.sentences import spans

Integers = NDArray[np.int64]
HELD_OUT = 10  # passages whose number this divides give no pseudo-queries


@dataclass(frozen=True)
class Queries:
    """Texts with the number of the passage that each comes from."""

    texts: list[str]
    sources: Integers

    def pick(self, places: Integers) -> Queries:
        return Queries([self.texts[i] for i in places], self.sources[places])

    def trainable(self) -> Integers:
        return np.flatnonzero(self.sources % HELD_OUT != 0)


def cut(corpus: Corpus, passage: int, kind: str, random: np.random.Generator) -> str:
    """A title, a sentence's first 30 words, 4 to 12 words in a row, or 2 to 6 salient words; may be empty."""
    if kind == "title":
        return corpus.titles[passage]
    text = corpus.texts[passage]
    sentences = [split for a, b in spans(text) if len(split := text[a:b].split()) >= 5]
    if not sentences:
        return ""
    sentence = sentences[int(random.integers(len(sentences)))]
    if kind == "sentence":
        return " ".join(sentence[:30])
    if kind == "span":
        count = min(int(random.integers(4, 13)), len(sentence))
        first = int(random.integers(len(sentence) - count + 1))
        return " ".join(sentence[first : first + count])
    assert kind == "keywords", f"{kind} is not a kind of pseudo-query"
    words, salience = corpus.words, dict[str, float]()
    for word in WORD.findall(corpus.whole[passage].lower()):
        number = words.number.get(words.stemmer.stemWord(word))
        if word not in words.stop and number is not None:
            salience[word] = float(words.idf[number])
    best = sorted(salience, key=salience.__getitem__, reverse=True)[:15]
    count = min(int(random.integers(2, 7)), len(best))
    return " ".join(random.permutation(best)[:count]) if count else ""


def draw(corpus: Corpus, kinds: dict[str, float], count: int, seed: int) -> tuple[Queries, list[str]]:
    """Pseudo-queries of at least two words from passages at random, and the kind of each."""
    random = np.random.default_rng(seed)
    texts, sources, drawn = list[str](), list[int](), list[str]()
    while len(texts) < count:
        passage = int(random.integers(len(corpus.texts)))
        kind = str(random.choice(list(kinds), p=list(kinds.values())))
        text = cut(corpus, passage, kind, random)
        if len(text.split()) >= 2:
            texts.append(text)
            sources.append(passage)
            drawn.append(kind)
    return Queries(texts, np.array(sources)), drawn


def draw_titled(corpus: Corpus, count: int, seed: int) -> Queries:
    """A title with one to three keywords, or two to five words in a row, before or after it."""
    random = np.random.default_rng((seed, 7))
    queries, kinds = draw(corpus, {"keywords": 0.6, "span": 0.4}, count, seed + 100)
    texts = []
    for text, source, kind in zip(queries.texts, queries.sources, kinds):
        words = text.split()
        length = int(random.integers(1, 4)) if kind == "keywords" else int(random.integers(2, 6))
        first = int(random.integers(0, max(1, len(words) - length + 1)))
        parts = [" ".join(words[first : first + length]), corpus.titles[source]]
        texts.append(" ".join(parts if random.random() < 0.5 else parts[::-1]))
    return Queries(texts, queries.sources)


def read_generated(folder: Path, corpus: Corpus) -> dict[str, Queries]:
    """The generated questions of a set, by kind."""
    place = {id: number for number, id in enumerate(corpus.ids)}
    kinds = {}
    for path in sorted(folder.glob(f"{corpus.name}-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = sorted(
            ((place[line["passage"]], line["queries"]) for line in lines), key=lambda pair: pair[0]
        )
        sources = [source for source, queries in pairs for _ in queries]
        texts = [query for _, queries in pairs for query in queries]
        kinds[path.stem.removeprefix(f"{corpus.name}-")] = Queries(texts, np.array(sources))
    return kinds
