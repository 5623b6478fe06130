"""Tevatron's JSON lines, both generations; passages and training data may stand in one file or in several.

First: corpus {"docid", "title", "text"}, training {"query_id", "query", "positive_passages", "negative_passages"}
with the passages written out. Second: corpus {"docid", "document_text"}, training {"query_id", "query_text",
"positive_document_ids", "negative_document_ids"}. The pickles that its encoder writes are not read (see vectors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from liebig.base.records import Group, Passage, Query
from liebig.formats.inputs import Source
from liebig.formats.items import Item, Options, Row, Where, as_id, as_list, as_row, as_text, as_texts, field
from liebig.formats.output import json_line
from liebig.formats.rows import rows


def read_first(source: Source, options: Options) -> Iterator[Item]:
    """First generation: passages, or queries with their groups and passages."""
    split = options.split_of(source, "train")
    for where, row in rows(source):
        if "query_id" not in row:
            yield Item(_passage(row, where), where)
            continue
        asked = _query(row, ("query",), where)
        positives = _passages(row, "positive_passages", where)
        negatives = _passages(row, "negative_passages", where)
        yield Item(asked, where, split)
        for passage in positives + negatives:
            yield Item(passage, where)
        yield Item(Group(asked.id, _ids(positives), _ids(negatives)), where, split)


def read_second(source: Source, options: Options) -> Iterator[Item]:
    """Second generation: passages, or queries with groups of ids."""
    split = options.split_of(source, "train")
    for where, row in rows(source):
        if "query_id" not in row:
            yield Item(_untitled(row, where), where)
            continue
        asked = _query(row, ("query_text", "query"), where)
        positives = _listed(row, "positive_document_ids", where)
        negatives = _listed(row, "negative_document_ids", where)
        yield Item(asked, where, split)
        yield Item(Group(asked.id, positives, negatives), where, split)


def _query(row: Row, names: tuple[str, ...], where: Where) -> Query:
    answers = row.get("answers", row.get("answer"))
    text = as_text(field(row, names, where), where, names[0])
    return Query(as_id(row["query_id"], where), text, as_texts(answers, where, "answers"))


def _passage(row: Row, where: Where) -> Passage:
    text = as_text(field(row, ("text",), where), where)
    return Passage(
        as_id(field(row, ("docid",), where), where), text, as_text(row.get("title"), where, "title")
    )


def _untitled(row: Row, where: Where) -> Passage:
    """A passage of the second generation, whose text starts with its title; where `title` is given, it is taken off."""
    text = as_text(field(row, ("document_text", "text"), where), where, "document_text")
    title = as_text(row.get("title"), where, "title")
    if title and text.startswith(title + " "):
        text = text[len(title) + 1 :]
    return Passage(as_id(field(row, ("docid",), where), where), text, title)


def _passages(row: Row, key: str, where: Where) -> list[Passage]:
    return [_passage(as_row(entry, where, "a passage"), where) for entry in as_list(row.get(key), where, key)]


def _listed(row: Row, key: str, where: Where) -> tuple[str, ...]:
    return tuple(dict.fromkeys(as_id(name, where) for name in as_list(row.get(key), where, key)))


def _ids(passages: list[Passage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(passage.id for passage in passages))


def first_passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """The corpus of the first generation."""
    return (json_line(_row(record)) for record in passages)


def second_passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """The corpus of the second generation: title and text in one, the title also alone so that it can be found."""
    for record in passages:
        row = {
            "docid": record.id,
            "document_text": f"{record.title} {record.text}" if record.title else record.text,
        }
        yield json_line(row | ({"title": record.title} if record.title else {}))


def first_training_lines(
    groups: Iterable[Group], query: Callable[[str], Query], passage: Callable[[str], Passage]
) -> Iterator[str]:
    """Training data of the first generation, passages written out."""
    for group in groups:
        asked = query(group.query)
        row: dict[str, Any] = {"query_id": asked.id, "query": asked.text}
        row["positive_passages"] = [_row(passage(name)) for name in group.positives]
        row["negative_passages"] = [_row(passage(name)) for name in group.negatives]
        yield json_line(row | ({"answers": asked.answers} if asked.answers else {}))


def second_training_lines(groups: Iterable[Group], query: Callable[[str], Query]) -> Iterator[str]:
    """Training data of the second generation, ids alone."""
    for group in groups:
        asked = query(group.query)
        row: dict[str, Any] = {"query_id": asked.id, "query_text": asked.text}
        row["positive_document_ids"] = group.positives
        row["negative_document_ids"] = group.negatives
        yield json_line(row | ({"answers": asked.answers} if asked.answers else {}))


def _row(passage: Passage) -> dict[str, str]:
    return {"docid": passage.id, "title": passage.title, "text": passage.text}
