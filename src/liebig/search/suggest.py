"""Did you mean: for words of a query that no passage has, the nearest words of the corpus.

BM25 stores stemmed terms, so "fermentaton" is compared with terms as with beginnings of words: "ferment" is no edit
away. The words behind the nearest terms are then read from a few of their passages, and the one with the fewest edits
(insertions, deletions, replacements, swaps of neighbours) is suggested; of equal ones, the one with the most frequent
term. The first letter has to be right. Cost: only for unknown words, one vectorised pass over the terms with that
letter, and the texts of at most TERMS * PASSAGES passages.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from liebig.bm25.analysis import HAS_UNSPACED, untagged, words
from liebig.bm25.index import Segment
from liebig.bm25.search import BM25
from liebig.search.query_language import ParsedQuery

SHORTEST = 4  # letters: a shorter word has too many neighbours
LONGEST = 64  # letters: a longer one is not a word
MOST = 4  # unknown words that are looked at: a query with more of them is not a slip of a finger
LONG = 7  # letters from which two edits are allowed
TERMS, PASSAGES = 16, 4  # terms whose words are looked at, and passages of each in which they are


def suggestion(bm25: BM25, query: ParsedQuery) -> str | None:
    """The query with its unknown words replaced; None where there is none, or nothing near."""
    replaced: dict[str, str] = {}
    unknown: list[str] = []
    for word in dict.fromkeys(words(query.text)):
        if SHORTEST <= len(word) <= LONGEST and word.isalpha() and not HAS_UNSPACED.search(word):
            terms = bm25.settings.analyzer.variants(word)
            unknown += [word] if terms and not bm25.frequency(*terms) else []
    for word in unknown if len(unknown) <= MOST else ():
        if near := nearest_word(bm25, word):
            replaced[word] = near
    if not replaced:
        return None
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, replaced))})(?!\w)", re.IGNORECASE)
    changed = pattern.sub(lambda match: replaced[match[0].lower()], query.typed)
    return changed if changed != query.typed else None


def nearest_word(bm25: BM25, word: str) -> str | None:
    """The word of the corpus with the fewest edits, if they are few enough."""
    allowed = 2 if len(word) >= LONG else 1
    best: tuple[int, int, str] | None = None
    for segment in bm25.segments:
        for number in _near_terms(segment, word, allowed):
            frequency = segment.frequency(number)
            for other in _words_of(bm25, segment, number):
                edits = distance(word, other)
                if edits <= allowed and (best is None or (edits, -frequency, other) < best):
                    best = (edits, -frequency, other)
    return None if best is None else best[2]


def _near_terms(segment: Segment, word: str, allowed: int) -> list[int]:
    """Numbers of the terms that are nearest to a beginning of a word."""
    numbers = [
        number
        for term, number in segment.terms.items()
        if (stem := untagged(term))[:1] == word[0] and len(word) // 2 <= len(stem) <= len(word) + allowed
    ]
    if not numbers:
        return []
    terms = [untagged(segment.sorted_terms[number]) for number in numbers]
    edits = _prefix_edits(terms, word)
    # A longer term says more about the word than a short one that is as near.
    order = sorted(
        range(len(terms)), key=lambda i: (edits[i], -len(terms[i]), -segment.frequency(numbers[i]))
    )
    return [numbers[i] for i in order[:TERMS] if edits[i] <= allowed]


def _prefix_edits(terms: list[str], word: str) -> NDArray[np.int16]:
    """Edits from each term to the nearest beginning of a word: dynamic programming over all terms at once."""
    letters = np.array(terms, f"U{max(map(len, terms))}")
    table = letters.view(np.uint32).reshape(len(terms), -1)  # T terms x their letters, 0 behind the end
    lengths = np.char.str_len(letters)
    codes = np.array([ord(letter) for letter in word], np.uint32)
    before, row = None, np.broadcast_to(np.arange(len(word) + 1, dtype=np.int16), (len(terms), len(word) + 1))
    best = np.full(len(terms), np.iinfo(np.int16).max, np.int16)
    for i in range(table.shape[1]):
        now = np.empty_like(row)
        now[:, 0] = i + 1
        for j in range(len(word)):
            differs = (table[:, i] != codes[j]).astype(np.int16)
            now[:, j + 1] = np.minimum(np.minimum(row[:, j + 1], now[:, j]) + 1, row[:, j] + differs)
            if before is not None and j:
                swapped = (table[:, i] == codes[j - 1]) & (table[:, i - 1] == codes[j])
                now[swapped, j + 1] = np.minimum(now[swapped, j + 1], before[swapped, j - 1] + 1)
        ended = lengths == i + 1
        best[ended] = now[ended].min(1)
        before, row = row, now
    return best


def distance(a: str, b: str) -> int:
    """Edits between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        now = [i + 1]
        for j, y in enumerate(b):
            now.append(min(row[j + 1] + 1, now[j] + 1, row[j] + (x != y)))
            if i and j and x == b[j - 1] and a[i - 1] == y:
                now[-1] = min(now[-1], before[j - 1] + 1)
        before, row = row, now
    return row[-1]


def _words_of(bm25: BM25, segment: Segment, number: int) -> set[str]:
    """The words of which a term was made, in its first passages; the term itself where no text is stored."""
    term, analyzer = segment.sorted_terms[number], bm25.settings.analyzer
    if segment.texts is None or segment.titles is None:
        return {untagged(term)}
    segment.check(number, number + 1)
    docs = segment.docs[segment.starts[number] : segment.starts[number + 1]]
    texts = (f"{segment.titles[i]}\n{segment.texts[i]}" for i in docs[:PASSAGES].tolist())
    return {word for text in texts for word in set(words(text)) if term in analyzer.variants(word)}
