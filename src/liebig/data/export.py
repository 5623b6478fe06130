"""A collection about to be written out: its records as the user wants them, and the folder they go to.

Passages stand in for documents and documents for passages where a collection has only the one; white space is
collapsed where asked. Streamed; a record is looked up by its id with one read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from liebig.data.collection import Collection
from liebig.data.output import collapse, write_lines
from liebig.records import Document, Group, Judgement, Passage, Query, Section, Tuple


@dataclass(frozen=True)
class Export:
    """A collection to be written, and how: the splits, the suffix that packs files, and what becomes of white space."""

    collection: Collection
    folder: Path
    splits: tuple[str, ...]
    packed: str = ""
    collapse: bool = False
    container: str = "jsonl"
    tokenizer: Path | None = None

    def lines(self, name: str, found: Iterable[str]) -> None:
        """Write a file of lines; one without any is not left behind."""
        path = self.folder / (name + self.packed)
        if not write_lines(path, found):
            path.unlink()

    def of(self, kind: str) -> list[str]:
        """The chosen splits that have this kind of record."""
        return [split for split in self.collection.splits_of(kind) if split in self.splits]

    def text(self, value: str) -> str:
        """A text as it is written."""
        return collapse(value) if self.collapse else value

    def passages(self) -> Iterator[Passage]:
        """The passages, or each document as one."""
        if self.collection.has("passages"):
            found = self.collection.passages()
        else:
            found = (Passage(d.id, d.text, d.title, d.id) for d in self.collection.documents())
        return (replace(p, text=self.text(p.text), title=self.text(p.title)) for p in found)

    def documents(self) -> Iterator[Document]:
        """The documents, or each passage as one."""
        if self.collection.has("documents"):
            found = self.collection.documents()
        else:
            found = (Document(p.id, p.title, (Section("", (p.text,)),)) for p in self.collection.passages())
        return (self._collapsed(d) for d in found) if self.collapse else found

    def _collapsed(self, record: Document) -> Document:
        sections = tuple(
            Section(collapse(s.heading), tuple(map(collapse, s.paragraphs))) for s in record.sections
        )
        return replace(record, title=collapse(record.title), sections=sections)

    def queries(self, split: str | None = None) -> Iterator[Query]:
        """Queries, of a split or all."""
        return (replace(q, text=self.text(q.text)) for q in self.collection.queries(split))

    def query(self, name: str) -> Query:
        """A query by its id."""
        found = self.collection.query(name)
        return replace(found, text=self.text(found.text))

    def passage(self, name: str) -> Passage:
        """A passage by its id; a document stands in for it where there are no passages."""
        if self.collection.has("passages"):
            found = self.collection.passage(name)
        else:
            document = self.collection.document(name)
            found = Passage(document.id, document.text, document.title, document.id)
        return replace(found, text=self.text(found.text), title=self.text(found.title))

    def judgements(self, split: str) -> Iterator[Judgement]:
        """The judgements of a split."""
        return self.collection.judgements(split)

    def grouped(self) -> list[str]:
        """The chosen splits that have groups, or judgements that make some."""
        return sorted({*self.of("groups"), *self.of("judgements")})

    def groups(self, split: str) -> Iterator[Group]:
        """The groups of a split; where it has none, what was judged relevant and what was judged not to be."""
        if split in self.collection.splits_of("groups"):
            return self.collection.groups(split)
        return self._judged(split)

    def _judged(self, split: str) -> Iterator[Group]:
        found: dict[str, tuple[list[str], list[str]]] = {}
        for judgement in self.judgements(split):
            positives, negatives = found.setdefault(judgement.query, ([], []))
            (positives if judgement.relevance > 0 else negatives).append(judgement.passage)
        return (Group(q, tuple(good), tuple(bad)) for q, (good, bad) in found.items() if good)

    def tuples(self) -> Iterator[tuple[str, Iterator[Tuple]]]:
        """The tuples of every split; where it has none, those that its groups make."""
        for split in sorted({*self.of("tuples"), *self.grouped()}):
            yield split, self.tuples_of(split)

    def tuples_of(self, split: str) -> Iterator[Tuple]:
        """The tuples of a split, or those that its groups make, titles ahead of the texts."""
        if split in self.of("tuples"):
            return (self._collapsed_tuple(record) for record in self.collection.tuples(split))
        return self._grouped_tuples(split)

    def _collapsed_tuple(self, record: Tuple) -> Tuple:
        return Tuple(
            self.text(record.anchor), self.text(record.positive), tuple(map(self.text, record.negatives))
        )

    def _grouped_tuples(self, split: str) -> Iterator[Tuple]:
        for group in self.groups(split):
            anchor = self.query(group.query).text
            negatives = tuple(_with_title(self.passage(name)) for name in group.negatives)
            for positive in group.positives:
                yield Tuple(anchor, _with_title(self.passage(positive)), negatives)


def _with_title(passage: Passage) -> str:
    return f"{passage.title} {passage.text}" if passage.title else passage.text
