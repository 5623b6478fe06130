"""What a format is: the rule that recognises it by a `Preview`, its reader, its writer and a sample, in one value.

A module of this package defines one `Format` or a family of related ones, and `liebig.formats` lists them in the order
in which detection tries them. Readers turn a source into items (see items.py); writers get an `Export`, which is a
collection and how the user wants it written; writers of runs get a `RunExport`. Everything is streamed: memory is that
of one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, Section
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options
from liebig.formats.output import collapse, write_lines
from liebig.formats.preview import Preview

Kind = Literal["documents", "passages", "queries", "judgements", "groups", "pairs", "tuples", "hits"]
Rule = Callable[[Preview], bool]
Reader = Callable[[InputSource, Options], Iterator[Item]]


@dataclass(frozen=True, eq=False)
class Format:
    """Everything about one format; what a format cannot do (read, write) is left out.

    The docstring of the rule is printed when the format is detected; that of the writer names the files it writes. Both
    are in docs/formats.md, with `about`, `fields` and the sample.
    """

    name: str
    about: str
    yields: tuple[Kind, ...] = ()
    """The kinds of records that the reader yields."""
    fields: str = ""
    """The fields or columns, in Markdown."""
    rule: Rule | None = None
    read: Reader | None = None
    write: Callable[[Export], None] | None = None
    run: RunFile | None = None
    """How a run is ordered and written, for formats of runs."""
    sample: Mapping[str, str] = field(default_factory=dict)
    """Paths of small, realistic files and their texts; several make a folder."""
    place: Literal["file", "folder", "both"] = "file"
    """Whether the rule and the reader take a file, a folder as a whole, or either."""
    prefix: str = ""
    """For sources that are names and not files: what the names start with, such as `stdlib:`."""
    suffixes: frozenset[str] = frozenset()
    """Suffixes of files to look at in a folder, beyond those of the usual data files."""
    before: str = ""
    """For formats of other packages: the format that detection must not try before this one."""

    @property
    def reason(self) -> str:
        """How the format is recognised, in words."""
        return _words_of(self.rule)

    @property
    def files(self) -> str:
        return _words_of(self.run.lines if self.run else self.write)

    @property
    def is_corpus(self) -> bool:
        """Whether it holds only documents or passages."""
        return bool(self.yields) and set(self.yields) <= {"documents", "passages"}


def _words_of(function: Callable[..., object] | None) -> str:
    """The docstring of a function, without its full stop."""
    return (function.__doc__ or "").strip().rstrip(".") if function else ""


@dataclass(frozen=True)
class RunFile:
    """How a format of runs orders the hits it reads, the name of the file it writes, and its lines."""

    name: str
    order: Callable[[Iterable[Hit]], Iterator[Hit]]
    lines: Callable[[RunExport], Iterator[str]]


class RecordSource(Protocol):
    """What writers need of a collection, which is on the floor above this one."""

    def has(self, kind: str) -> bool: ...
    def splits_of(self, kind: str) -> tuple[str, ...]: ...
    def documents(self) -> Iterator[Document]: ...
    def passages(self) -> Iterator[Passage]: ...
    def queries(self, split: str | None = None) -> Iterator[Query]: ...
    def judgements(self, split: str) -> Iterator[Judgement]: ...
    def groups(self, split: str) -> Iterator[Group]: ...
    def document(self, name: str) -> Document: ...
    def passage(self, name: str) -> Passage: ...
    def query(self, name: str) -> Query: ...


@dataclass(frozen=True)
class RunExport:
    """A run to be written: its hits, best first for each query, and the collection that has the texts, if given."""

    hits: Iterator[Hit]
    tag: str = "liebig"
    collection: RecordSource | None = None
    id_prefix: str = ""
    has_answer: Callable[[Query, Passage], bool] = lambda query, passage: False


@dataclass(frozen=True)
class Export:
    """A collection to be written: the folder, the splits, the suffix of a compressor, and whether to collapse spaces.

    Passages stand in for documents and documents for passages if a collection has only the one.
    """

    collection: RecordSource
    folder: Path
    splits: tuple[str, ...]
    packed: str = ""
    collapse: bool = False

    def lines(self, name: str, lines: Iterable[str]) -> None:
        """Write a file of lines; a file without any is not kept."""
        path = self.folder / (name + self.packed)
        if not write_lines(path, lines):
            path.unlink()

    def splits_of(self, kind: str) -> list[str]:
        return [split for split in self.collection.splits_of(kind) if split in self.splits]

    def text(self, value: str) -> str:
        """A text as it is written."""
        return collapse(value) if self.collapse else value

    def passages(self) -> Iterator[Passage]:
        if self.collection.has("passages"):
            records = self.collection.passages()
        else:
            records = (Passage(d.id, d.text, d.title, d.id) for d in self.collection.documents())
        return (replace(p, text=self.text(p.text), title=self.text(p.title)) for p in records)

    def documents(self) -> Iterator[Document]:
        if self.collection.has("documents"):
            records = self.collection.documents()
        else:
            records = (Document(p.id, p.title, (Section("", (p.text,)),)) for p in self.collection.passages())
        return (self._collapsed(d) for d in records) if self.collapse else records

    def _collapsed(self, record: Document) -> Document:
        sections = tuple(
            Section(collapse(s.heading), tuple(map(collapse, s.paragraphs))) for s in record.sections
        )
        return replace(record, title=collapse(record.title), sections=sections)

    def queries(self, split: str | None = None) -> Iterator[Query]:
        return (replace(q, text=self.text(q.text)) for q in self.collection.queries(split))

    def query_files(self, pattern: str, alone: str) -> Iterator[tuple[str, Iterator[Query]]]:
        """A file name and the queries of every split, or `alone` and all queries if no split has any."""
        kinds = ("judgements", "groups", "splits")  # splits of pairs and tuples have no queries
        splits = sorted({split for kind in kinds for split in self.splits_of(kind)})
        for split in splits:
            yield pattern.format(split), self.queries(split)
        if not splits:
            yield alone, self.queries()

    def query(self, name: str) -> Query:
        """A query by its id."""
        record = self.collection.query(name)
        return replace(record, text=self.text(record.text))

    def passage(self, name: str) -> Passage:
        """A passage by its id; a document stands in for it if there are no passages."""
        if self.collection.has("passages"):
            record = self.collection.passage(name)
        else:
            document = self.collection.document(name)
            record = Passage(document.id, document.text, document.title, document.id)
        return replace(record, text=self.text(record.text), title=self.text(record.title))

    def judgements(self, split: str) -> Iterator[Judgement]:
        return self.collection.judgements(split)

    def group_splits(self) -> list[str]:
        """The chosen splits that have groups, or judgements from which groups are made."""
        return sorted({*self.splits_of("groups"), *self.splits_of("judgements")})

    def groups(self, split: str) -> Iterator[Group]:
        """The groups of a split; if it has none, its relevant passages against its non-relevant ones."""
        if split in self.collection.splits_of("groups"):
            return self.collection.groups(split)
        return self._judged_groups(split)

    def _judged_groups(self, split: str) -> Iterator[Group]:
        by_query: dict[str, tuple[list[str], list[str]]] = {}
        for judgement in self.judgements(split):
            positives, negatives = by_query.setdefault(judgement.query, ([], []))
            (positives if judgement.relevance > 0 else negatives).append(judgement.passage)
        return (Group(q, tuple(good), tuple(bad)) for q, (good, bad) in by_query.items() if good)
