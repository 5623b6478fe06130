"""Short texts drawn from passages: what people might ask, for a student to learn its teacher's vectors of.

About a sixth are titles or salient words (tf-idf) in any order, the others words in a row of one sentence, some with
the title before or after them. In English the same texts also stand behind a question's first words. All draws depend
on the seed. Cost: a pass over the passages for the frequencies of words; memory: the words of all passages.
"""

from __future__ import annotations

import heapq
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, words
from liebig.builder.questions import SALIENT
from liebig.text.sentences import spans

COMMON = 0.2  # share of the passages above which a word says nothing about one
PIECE, ASKED = (2, 24), (1, 10)  # words of a piece, and of one behind a question's first words
OPENERS = {
    "english": (
        "what is", "what are", "what was", "what were", "what does", "what did", "what do", "what kind of",
        "what type of", "what causes", "what happens to", "what is the name of", "who", "who was", "who is",
        "who did", "when did", "when was", "when is", "where is", "where was", "where did", "where are", "why did",
        "why is", "why do", "how many", "how much", "how is", "how are", "how did", "how does", "how do", "how to",
        "how long", "how often", "which", "in what year", "in which", "on what", "to what", "what can",
        "what percentage of", "is", "are", "does", "do", "can", "did", "was", "has", "should", "is there",
        "are there",
    )
}  # fmt: skip
LETTERS = re.compile(r"[^\W\d_]{3,}")


class ShortTexts:
    """Short texts without end, drawn from passages."""

    def __init__(self, passages: Sequence[Passage], analyzer: Analyzer, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._openers = OPENERS.get(analyzer.language, ())
        idf = idf_of(passages, analyzer)
        self._material = []
        for passage in passages:
            sentences = [passage.text[a:b].split() for a, b in spans(passage.text)]
            if sentences := [sentence for sentence in sentences if len(sentence) >= PIECE[0]]:
                self._material.append((sentences, salient(passage, idf), passage.title.strip()))

    def kinds(self) -> list[Callable[[], str]]:
        """What draws a text of each kind that there is; nothing where no passage has two words."""
        if not self._material:
            return []
        return [self.piece, self.question] if self._openers else [self.piece]

    def piece(self) -> str:
        """Words in a row, some with a title; a title; or words that tell a passage from others."""
        return self._piece(*PIECE)

    def question(self) -> str:
        """A shorter one behind a question's first words."""
        opener = self._random.choice(self._openers)
        opener = opener if self._random.random() < 0.4 else opener.capitalize()
        return f"{opener} {self._piece(*ASKED)}" + ("?" if self._random.random() < 0.85 else "")

    def _piece(self, low: int, high: int) -> str:
        by = self._random
        sentences, known, title = by.choice(self._material)
        kind = by.random()
        if kind < 0.12 and title:
            return title
        if kind < 0.3 and len(known) >= 2:
            some = by.sample(known, min(len(known), by.randint(1, 5)))
            return " ".join(some + ([title] if title and by.random() < 0.3 else []))
        sentence = by.choice(sentences)
        count = min(len(sentence), by.randint(low, high))
        begin = by.randint(0, len(sentence) - count)
        text = " ".join(sentence[begin : begin + count]).strip(" .,;:()\"'")
        if title and by.random() < 0.2:
            text = f"{title} {text}" if by.random() < 0.5 else f"{text} {title}"
        return text


def idf_of(passages: Sequence[Passage], analyzer: Analyzer) -> dict[str, float]:
    """The words that can tell a passage from others, with their idf.

    Not among them: stop words, what is not letters alone, words of one passage, which nobody would ask with, and words
    of more than COMMON of them.
    """
    counts = Counter(word for passage in passages for word in set(words(passage.text)))
    most = max(2, COMMON * len(passages))
    return {
        word: math.log(1 + len(passages) / count)
        for word, count in counts.items()
        if 2 <= count <= most and LETTERS.fullmatch(word) and analyzer.term(word)
    }


def salient(passage: Passage, idf: dict[str, float]) -> list[str]:
    """The words of a passage with the highest tf-idf, in the order of the text."""
    counts = Counter(words(passage.text))
    scores = [(count * idf[word], word) for word, count in counts.items() if word in idf]
    best = {word for _, word in heapq.nlargest(SALIENT, scores)}
    return [word for word in counts if word in best]
