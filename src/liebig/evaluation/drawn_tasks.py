"""Tasks that are drawn from a collection: triplets of sentences, and the candidates of the ABS paper.

Triplets after Ein Dor et al. (2018): anchor and positive come from one section, the negative from another section of
the same document, so that topic alone does not separate them. The ABS paper's development protocol: one positive and
99 unjudged passages from a query's first 1,000 hits, ranked by RR@100. A draw depends only on the seed and the place
of the document or query, so a collection always gives the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from liebig.base.records import Document, Group, Section, Tuple
from liebig.base.rng import below, key, permute
from liebig.collection import Collection
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.measures.evaluator import Judgements
from liebig.text.sentences import split

LEFT_OUT = {
    "see also", "references", "external links", "notes", "further reading", "bibliography", "sources", "footnotes",
    "citations", "gallery", "discography", "filmography",
}  # fmt: skip
FEWEST_WORDS, MOST_WORDS = 5, 50
PER_DOCUMENT = 10  # triplets at the most


def build(documents: Iterable[Document], *, limit: int, seed: int) -> Iterator[Tuple]:
    """Up to `limit` triplets, at most PER_DOCUMENT of each document."""
    drawn = (_of_document(document, key(seed, place)) for place, document in enumerate(documents))
    return islice(chain.from_iterable(drawn), limit)


def usable_sentences(section: Section) -> list[str]:
    """The sentences of a section that can stand in a triplet."""
    if section.heading.strip().lower() in LEFT_OUT | {""}:
        return []
    sentences = [sentence.strip() for paragraph in section.paragraphs for sentence in split(paragraph)]
    return [sentence for sentence in sentences if FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS]


def _of_document(document: Document, document_key: np.uint64) -> Iterator[Tuple]:
    sections = [sentences for sentences in map(usable_sentences, document.sections) if sentences]
    rich = [i for i, sentences in enumerate(sections) if len(sentences) > 1]
    if len(sections) < 2 or not rich:
        return
    seen: set[tuple[str, str, str]] = set()
    for n in range(PER_DOCUMENT):
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


CANDIDATES, CANDIDATES_DEPTH = 99, 1000  # others of a query, and the hits that they are drawn from


def draw_groups(ranked: Mapping[str, Sequence[str]], judgements: Judgements, *, seed: int) -> Iterator[Group]:
    """One group a judged query that has a positive: the first positive, and CANDIDATES others."""
    for place, query in enumerate(judgements.queries):
        grades = judgements.grades(query)
        positives = sorted(passage for passage, grade in grades.items() if grade > 0)
        others = [passage for passage in ranked.get(query, ()) if passage not in grades]
        if positives:
            order = permute(np.arange(len(others)), max(len(others), 1), key(seed, place)) if others else []
            yield Group(query, (positives[0],), tuple(others[i] for i in list(order)[:CANDIDATES]))


def records(path: Path) -> Iterator[object]:
    """Documents, or passages where there are none, of a collection or anything that can be read."""
    detected = detect(path)
    if [one.format.name for one in detected] == ["collection"]:
        collection = Collection(path)
        yield from collection.documents() if collection.has("documents") else collection.passages()
        return
    for one in detected:
        for item in one.items(Options()):
            yield item.record
