"""What is seen of a corpus before anything is encoded: can the encoder read it, has it sentences, has it titles?

An encoder reads a text as pieces of its vocabulary. Text in a script that it does not know becomes unknown pieces or
single letters, and all such texts look the same to it: Japanese, Russian or Arabic have 85 to 100 % of them with the
bundled encoder, French, German and code 6 to 13 %. Its vectors would find nothing there, so nothing is encoded. (A
single Han or Hangul character is a word, and counts as read where the vocabulary has it.) Vocabularies of bytes have no
unknown pieces: they take such a text apart into more pieces than it has characters. An encoder that reads even PLAIN by
its letters is made to, so that only unknown pieces count. Cost: SAMPLE passages are tokenised.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Passage
from liebig.bm25.analysis import HAS_UNSPACED
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.model.text_reader import text_reader
from liebig.text.sentences import spans
from liebig.text.tokenizer import Tokenizer

SAMPLE = 300  # passages looked at
PLAIN = (
    "The people of the town have always known how much water there is in the river when the summer is over."
)
UNREADABLE = 0.7  # share of unread pieces above which an encoder is not used
HOME, ABROAD = 0.1, 0.3  # pieces that continue a word: English has .05 to .12, French .35, German .53
FOREIGN = 0.28  # of a passage: 98 % of French and German ones have more, of English ones and code 0 to 4 %
SENTENCES = 1.5  # per passage: with fewer, vectors of sentences are those of passages


@dataclass(frozen=True)
class CorpusSigns:
    """What a corpus looks like to an encoder."""

    unread: float  # share of pieces that it cannot read
    pieces: float  # share of pieces that continue a word: many in a language that it was not made for
    sentences: float  # of a passage
    titles: float  # share of passages that have one
    abroad: float = 0.0  # share of passages in a language that it was not made for

    @property
    def of_rule(self) -> dict[str, float]:
        """Those that the rule knows (`decide.py`)."""
        return {"foreign": foreign(self.pieces), "titles": self.titles, "abroad": self.abroad}

    @property
    def readable(self) -> bool:
        """Whether the encoder may be used."""
        return self.unread <= UNREADABLE

    @property
    def has_sentences(self) -> bool:
        """Whether vectors of sentences say more than those of passages."""
        return self.sentences >= SENTENCES


def foreign(pieces: float) -> float:
    """How foreign a language is to an encoder, 0 to 1, by the share of pieces that continue a word."""
    return min(1.0, max(0.0, (pieces - HOME) / (ABROAD - HOME)))


def signs_of(collection: Path, model: Path) -> CorpusSigns:
    """The signs of passages that are drawn by hash."""
    drawn = heapq.nsmallest(SAMPLE, Collection(collection).passages(), key=lambda passage: hash64(passage.id))
    return signs_of_texts(drawn, text_reader(model).tokenizer)


def signs_of_texts(drawn: Sequence[Passage], tokenizer: Tokenizer) -> CorpusSigns:
    texts = [passage.text for passage in drawn]
    packed = tokenizer.encode_packed(texts)
    ids = packed.values
    unread = int(tokenizer.special[ids].sum())
    plain = tokenizer.encode_packed([PLAIN]).values
    if _letters(plain, tokenizer) <= UNREADABLE * len(plain):
        unread += _letters(ids, tokenizer)
    if len(ids) > sum(map(len, texts)):
        unread = len(ids)  # byte by byte
    count = max(1, len(texts))
    continued = np.append(0, np.cumsum(tokenizer.continues[ids]))[packed.offsets]
    return CorpusSigns(
        unread / max(1, len(ids)),
        float(tokenizer.continues[ids].sum()) / max(1, len(ids)),
        sum(len(spans(text)) for text in texts) / count,
        sum(bool(passage.title) for passage in drawn) / count,
        int((np.diff(continued) > FOREIGN * np.diff(packed.offsets)).sum()) / count,
    )


def _letters(ids: NDArray[np.int32], tokenizer: Tokenizer) -> int:
    """How many pieces are single letters."""
    distinct, counts = np.unique(ids[~tokenizer.special[ids]], return_counts=True)
    return sum(int(count) for token, count in zip(tokenizer.tokens(distinct), counts) if _is_letter(token))


def _is_letter(token: str) -> bool:
    """Whether a piece is a single letter of a script that writes words with several."""
    letter = token.removeprefix("##").lstrip("Ġ▁")
    return len(letter) == 1 and letter.isalpha() and HAS_UNSPACED.match(letter) is None
