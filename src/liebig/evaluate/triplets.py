"""Triplets of sentences built from documents with sections, after Ein Dor et al. (2018): said to be built.

Anchor and positive are two sentences of one section, the negative a sentence of another section of the same document,
so topic alone does not tell them apart. Sections without a heading or of lists and references are left out. The draw is
a function of the seed and the document's place, so the same collection gives the same triplets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from liebig.records import Document, Section, Tuple
from liebig.rng import below, key
from liebig.text.sentences import split

LEFT_OUT = {
    "see also", "references", "external links", "notes", "further reading", "bibliography", "sources", "footnotes",
    "citations", "gallery", "discography", "filmography",
}  # fmt: skip
FEWEST_WORDS, MOST_WORDS = 5, 50


def build(documents: Iterable[Document], *, per_document: int, limit: int, seed: int) -> Iterator[Tuple]:
    """Up to `limit` triplets, at most `per_document` of each document."""
    made = 0
    for place, document in enumerate(documents):
        for triplet in _of_document(document, per_document, key(seed, place)):
            if made == limit:
                return
            made += 1
            yield triplet


def usable_sentences(section: Section) -> list[str]:
    """The sentences of a section that can stand in a triplet."""
    if section.heading.strip().lower() in LEFT_OUT | {""}:
        return []
    found = [sentence.strip() for paragraph in section.paragraphs for sentence in split(paragraph)]
    return [sentence for sentence in found if FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS]


def _of_document(document: Document, count: int, document_key: np.uint64) -> Iterator[Tuple]:
    sections = [sentences for sentences in map(usable_sentences, document.sections) if sentences]
    rich = [i for i, sentences in enumerate(sections) if len(sentences) > 1]
    if len(sections) < 2 or not rich:
        return
    seen: set[tuple[str, str, str]] = set()
    for n in range(count):
        here, first, second, other, third = (int(below(document_key, 5 * n + i, 1 << 30)) for i in range(5))
        home = rich[here % len(rich)]
        away = sections[(home + 1 + other % (len(sections) - 1)) % len(sections)]
        same = sections[home]
        i = first % len(same)
        j = (i + 1 + second % (len(same) - 1)) % len(same)
        chosen = (same[i], same[j], away[third % len(away)])
        if chosen not in seen and len(set(chosen)) == 3:
            seen.add(chosen)
            yield Tuple(chosen[0], chosen[1], (chosen[2],))
