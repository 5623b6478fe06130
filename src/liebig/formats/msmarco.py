"""MS MARCO: passages, documents, the titled passages released with RocketQA, triples, mined negatives.

collection.tsv: `pid text`; msmarco-docs.tsv: `docid url title body`; titled: `pid title text`, or RocketQA's
para.txt with para.title.txt; triples: `qid pid pid` or three texts; msmarco-hard-negatives.jsonl of
sentence-transformers: {"qid", "pos", "neg": {system: [pid or {"pid", "ce-score"}]}}. Tabs between, quotes literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Passage, Section, Tuple
from liebig.collection.lookup import TitleFile
from liebig.formats.inputs import Source
from liebig.formats.items import Item, Options, Row, Where, as_id, as_list, as_row, as_score, field
from liebig.formats.output import json_line, tab_line
from liebig.formats.rows import rows, tab_fields


def read_passages(source: Source, options: Options) -> Iterator[Item]:
    """Passages of `pid <tab> text` lines."""
    for where, (name, text) in tab_fields(source, 2, "id, text"):
        yield Item(Passage(as_id(name, where), text), where)


def passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """`pid <tab> text`; a title would be lost, so it is refused."""
    for record in passages:
        if record.title:
            raise DataError(
                f"passage {record.id!r} has a title, which this format cannot hold", fix="use msmarco-titled"
            )
        yield tab_line(record.id, record.text)


def read_titled(source: Source, options: Options) -> Iterator[Item]:
    """Passages of `pid <tab> title <tab> text` lines, or of a folder with para.txt and para.title.txt."""
    if source.is_folder:
        yield from _read_para(source)
        return
    for where, (name, title, text) in tab_fields(source, 3, "id, title, text"):
        yield Item(Passage(as_id(name, where), text, title), where)


def _read_para(folder: Source) -> Iterator[Item]:
    """RocketQA's two files, joined by id whatever their order; a passage may have no title."""
    texts, names = folder.find("para.txt"), folder.find("para.title.txt")
    if texts is None or names is None:
        raise DataError("the folder needs para.txt and para.title.txt", file=folder.label)
    with TitleFile(_titles(names)) as titles:
        for where, (name, text) in tab_fields(texts, 2, "id, text"):
            yield Item(Passage(as_id(name, where), text, titles.get(name)), where)


def _titles(source: Source) -> Iterator[tuple[str, str]]:
    for where, (name, title) in tab_fields(source, 2, "id, title"):
        yield as_id(name, where), title


def titled_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """`pid <tab> title <tab> text`."""
    return (tab_line(record.id, record.title, record.text) for record in passages)


def read_documents(source: Source, options: Options) -> Iterator[Item]:
    """Documents of `docid <tab> url <tab> title <tab> body` lines."""
    for where, (name, url, title, body) in tab_fields(source, 4, "id, url, title, body"):
        sections = (Section("", (body,) if body else ()),)
        yield Item(Document(as_id(name, where), title, sections, {"url": url} if url else {}), where)


def document_lines(documents: Iterable[Document]) -> Iterator[str]:
    """`docid <tab> url <tab> title <tab> body`; headings and paragraphs become one text."""
    for record in documents:
        yield tab_line(
            record.id, record.metadata.get("url", ""), record.title, record.text.replace("\n", " ")
        )


def read_id_triples(source: Source, options: Options) -> Iterator[Item]:
    """Groups of `query <tab> positive <tab> negative` ids; neighbouring lines of one query and positive are one."""
    split = options.split_of(source, "train")
    start, query, positive = Where(source.label), "", ""
    negatives: list[str] = []
    for where, fields in tab_fields(source, 3, "query, positive, negative"):
        a, b, c = (as_id(name.strip(), where) for name in fields)
        if (a, b) != (query, positive):
            if negatives:
                yield Item(Group(query, (positive,), tuple(negatives)), start, split)
            start, query, positive, negatives = where, a, b, []
        negatives.append(c)
    if negatives:
        yield Item(Group(query, (positive,), tuple(negatives)), start, split)


def id_triple_lines(groups: Iterable[Group]) -> Iterator[str]:
    """One line for each positive and negative of a query."""
    for group in groups:
        for positive in group.positives:
            for negative in group.negatives:
                yield tab_line(group.query, positive, negative)


def read_text_triples(source: Source, options: Options) -> Iterator[Item]:
    """Tuples of `query <tab> positive <tab> negative` texts."""
    split = options.split_of(source, "train")
    for where, (query, positive, negative) in tab_fields(source, 3, "query, positive, negative"):
        yield Item(Tuple(query, positive, (negative,)), where, split)


def text_triple_lines(tuples: Iterable[Tuple]) -> Iterator[str]:
    """One line for each negative of a tuple."""
    for record in tuples:
        for negative in record.negatives:
            yield tab_line(record.anchor, record.positive, negative)


def read_hard_negatives(source: Source, options: Options) -> Iterator[Item]:
    """Groups of sentence-transformers' mined negatives, those of all systems together, each once."""
    split = options.split_of(source, "train")
    return (Item(hard_negatives(row, where), where, split) for where, row in rows(source))


def hard_negatives(row: Row, where: Where) -> Group:
    """The group of a line; cross-encoder scores are teacher scores where every passage has one."""
    systems = as_row(field(row, ("neg",), where), where, "neg")
    mined = chain.from_iterable(as_list(found, where, name) for name, found in systems.items())
    positives = _scored(as_list(field(row, ("pos",), where), where, "pos"), where)
    negatives = {name: score for name, score in _scored(mined, where).items() if name not in positives}
    is_scored = None not in positives.values() and None not in negatives.values()
    return Group(
        query=as_id(field(row, ("qid",), where), where),
        positives=tuple(positives),
        negatives=tuple(negatives),
        positive_scores=tuple(s for s in positives.values() if s is not None) if is_scored else (),
        negative_scores=tuple(s for s in negatives.values() if s is not None) if is_scored else (),
    )


def _scored(found: Iterable[Any], where: Where) -> dict[str, float | None]:
    """Passage ids with their scores; the first one of an id counts."""
    scores: dict[str, float | None] = {}
    for entry in found:
        if isinstance(entry, dict):
            score = entry.get("ce-score", entry.get("score"))
            name = as_id(field(entry, ("pid",), where), where)
            scores.setdefault(name, None if score is None else as_score(score, where, "ce-score"))
        else:
            scores.setdefault(as_id(entry, where), None)
    return scores


def hard_negative_lines(groups: Iterable[Group]) -> Iterator[str]:
    """Mined negatives under one system's name; ids that are whole numbers are written as such."""
    for group in groups:
        scored = bool(group.positive_scores or group.negative_scores)
        positives = _entries(group.positives, group.positive_scores, scored)
        negatives = _entries(group.negatives, group.negative_scores, scored)
        yield json_line({"qid": _number(group.query), "pos": positives, "neg": {"liebig": negatives}})


def _entries(names: tuple[str, ...], scores: tuple[float, ...], scored: bool) -> list[Any]:
    if scored and len(scores) == len(names):
        return [{"pid": _number(name), "ce-score": score} for name, score in zip(names, scores)]
    return [_number(name) for name in names]


def _number(name: str) -> int | str:
    """The id as a number where it is one and reads back the same."""
    plain = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 16
    return int(name) if plain else name
