"""The retriever as the server sees it: its model as an embedder, the words of a question as BM25 takes them."""

from __future__ import annotations

from dataclasses import dataclass

from liebig.lexical.analysis import Analyzer
from liebig.lexical.bm25 import BM25
from liebig.lexical.scripts import words
from liebig.retriever import Retriever
from liebig.retriever.embedding import Embedder


@dataclass(frozen=True)
class Word:
    """A word of a question: the term it becomes ("" for a stop word), and how many passages have it."""

    text: str
    term: str
    passages: int | None


def analyzer_of(retriever: Retriever) -> Analyzer:
    """What makes terms of words: BM25's own, where there is an index."""
    return _analyzer(retriever.opened.bm25)


def _analyzer(index: BM25 | None) -> Analyzer:
    return Analyzer() if index is None else index.settings.analyzer


def embedder_of(retriever: Retriever) -> Embedder | None:
    """The model as the index used it; None where there is no dense index."""
    opened = retriever.opened
    return opened.embedder if "dense" in opened.described.systems else None


def words_of(retriever: Retriever, question: str) -> list[Word]:
    """The words of a question, as BM25 takes them."""
    index = retriever.opened.bm25
    analyzer, found = _analyzer(index), []
    for word in dict.fromkeys(words(question)):
        term = analyzer.term(word)
        found.append(Word(word, term, None if index is None or not term else frequency(index, term)))
    return found


def frequency(index: BM25, term: str) -> int:
    """In how many passages a term is."""
    numbers = ((segment, segment.terms.get(term)) for segment in index.segments)
    return sum(segment.frequency(number) for segment, number in numbers if number is not None)
