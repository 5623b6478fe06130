"""The best passages of a question within a budget of tokens, numbered, ready to be pasted into a prompt.

Passages come in the order of their rank. A sentence that an earlier source has is left out, so that passages that
overlap or repeat each other are not given twice; the last source is cut behind a whole sentence. A passage whose first
sentence takes more than the whole budget, such as a table, is passed over. Tokens are estimated (`tokens_in`), because
every language model counts in its own way. Cost: one search, and a pass over the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from liebig.base.records import UNITS
from liebig.search.answer import Result
from liebig.search.explain import WORD

LETTERS = 6  # of a word that make a token, about; more than most tokenizers need
PER_PASSAGE = 40  # tokens: as many passages are looked at as there would be of such short ones
MOST = 100  # passages that are looked at


@dataclass(frozen=True, slots=True)
class NumberedSource:
    """A passage in a context: its number, where it is from, and what is given of its text."""

    number: int
    id: str
    doc: str
    title: str
    path: str
    place: str  # such as "page 3" or "line 12"; empty where it is not known
    text: str

    @property
    def label(self) -> str:
        where = ", ".join(filter(None, (self.path, self.place)))
        return f"[{self.number}] {self.title} ({where})" if self.title else f"[{self.number}] {where}"


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Sources for a question; `text` is what goes into a prompt."""

    question: str
    sources: tuple[NumberedSource, ...]
    tokens: int
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The sources, each under its number and where it is from."""
        return "\n\n".join(f"{source.label}\n{source.text}" for source in self.sources)


def tokens_in(text: str) -> int:
    """About how many tokens a text has: one per six letters of a word, per other character, and per Han character."""
    return sum(-(-len(match.group()) // LETTERS) for match in WORD.finditer(text))


def place_of(result: Result) -> str:
    """The page, slide or line of a result, where its metadata have one."""
    return next((f"{unit} {result.metadata[unit]}" for unit in UNITS if unit in result.metadata), "")


def looked_at(tokens: int) -> int:
    """How many passages may fit into a budget."""
    return max(1, min(MOST, tokens // PER_PASSAGE))


def within_budget(
    question: str, results: Sequence[Result], tokens: int, notes: Sequence[str] = ()
) -> PromptContext:
    from liebig.text.sentences import split  # whose expressions a search does without

    sources: list[NumberedSource] = []
    seen: set[str] = set()
    used = 0
    for result in results:
        sentences = split(result.text)
        new = [sentence for sentence in sentences if _folded(sentence) not in seen]
        path = result.metadata.get("path", result.doc or result.id)
        source = NumberedSource(
            len(sources) + 1, result.id, result.doc, result.title, path, place_of(result), result.text
        )
        room, kept = tokens - used - tokens_in(source.label), list[str]()
        for sentence in new:
            if (size := tokens_in(sentence)) > room:
                break
            room -= size
            kept.append(sentence)
        if kept:
            seen.update(map(_folded, kept))
            whole = len(kept) == len(sentences)
            sources.append(source if whole else replace(source, text=" ".join(kept)))
            used = tokens - room
        if sources and len(kept) < len(new):
            break
    if results and not sources:
        notes = (*notes, f"{tokens} tokens have no room for a sentence.")
    return PromptContext(question, tuple(sources), used, tuple(notes))


def _folded(sentence: str) -> str:
    return " ".join(sentence.split()).casefold()
