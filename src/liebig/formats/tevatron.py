"""Tevatron's JSON lines, both generations, and its runs; passages and training data may be in one file or in several.

First: corpus {"docid", "title", "text"}, training {"query_id", "query", "positive_passages", "negative_passages"}
with the passages written out. Second: corpus {"docid", "document_text"}, training {"query_id", "query_text",
"positive_document_ids", "negative_document_ids"}. Run: `query document score`.
The pickles that its encoder writes are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from liebig.base.records import Group, Hit, Passage, Query
from liebig.formats.base import Export, Format, RunExport, RunFile
from liebig.formats.inputs import InputSource
from liebig.formats.items import (
    Item,
    Options,
    Row,
    Where,
    as_id,
    as_list,
    as_row,
    as_score,
    as_text,
    as_texts,
    field,
)
from liebig.formats.output import json_line, space_line
from liebig.formats.preview import Preview
from liebig.formats.rows import rows
from liebig.formats.trec import by_score, columns, digits


def is_first(preview: Preview) -> bool:
    """Rows with query_id and positive_passages, or with docid and text."""
    return preview.has("query_id", "positive_passages") or preview.has("docid", "text")


def read_first(source: InputSource, options: Options) -> Iterator[Item]:
    """First generation: passages, or queries with their groups and passages."""
    split = options.split_of(source, "train")
    for where, row in rows(source):
        if "query_id" not in row:
            yield Item(_passage(row, where), where)
            continue
        record = _query(row, ("query",), where)
        positives = _passages(row, "positive_passages", where)
        negatives = _passages(row, "negative_passages", where)
        yield Item(record, where, split)
        for passage in positives + negatives:
            yield Item(passage, where)
        yield Item(Group(record.id, _ids(positives), _ids(negatives)), where, split)


def is_second(preview: Preview) -> bool:
    """Rows with positive_document_ids, or with docid and document_text."""
    return preview.has("query_id", "positive_document_ids") or preview.has("docid", "document_text")


def read_second(source: InputSource, options: Options) -> Iterator[Item]:
    """Second generation: passages, or queries with groups of ids."""
    split = options.split_of(source, "train")
    for where, row in rows(source):
        if "query_id" not in row:
            yield Item(_untitled(row, where), where)
            continue
        record = _query(row, ("query_text", "query"), where)
        positives = _listed(row, "positive_document_ids", where)
        negatives = _listed(row, "negative_document_ids", where)
        yield Item(record, where, split)
        yield Item(Group(record.id, positives, negatives), where, split)


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


def second_passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """The corpus of the second generation: title and text in one, the title also alone so that it can be found."""
    for record in passages:
        row = {
            "docid": record.id,
            "document_text": f"{record.title} {record.text}" if record.title else record.text,
        }
        yield json_line(row | ({"title": record.title} if record.title else {}))


def second_training_lines(groups: Iterable[Group], query: Callable[[str], Query]) -> Iterator[str]:
    """Training data of the second generation, ids alone."""
    for group in groups:
        record = query(group.query)
        row: dict[str, Any] = {"query_id": record.id, "query_text": record.text}
        row["positive_document_ids"] = group.positives
        row["negative_document_ids"] = group.negatives
        yield json_line(row | ({"answers": record.answers} if record.answers else {}))


def write_second(export: Export) -> None:
    """corpus.jsonl, and SPLIT.jsonl with ids."""
    export.lines("corpus.jsonl", second_passage_lines(export.passages()))
    for split in export.group_splits():
        export.lines(f"{split}.jsonl", second_training_lines(export.groups(split), export.query))


def is_run(preview: Preview) -> bool:
    """Three columns, the last a number with decimals."""
    table = preview.spaces
    has_width = bool(table) and len(table[0]) == 3
    return has_width and preview.numbers(table, 2) and any("." in row[2] for row in table)


def read_run(source: InputSource, options: Options) -> Iterator[Item]:
    """Hits of `query document score` lines; ranks are counted."""
    ranks: dict[str, int] = {}
    for where, (query, passage, score) in columns(source, 3, "query document score"):
        ranks[query] = ranks.get(query, 0) + 1
        yield Item(
            Hit(as_id(query, where), as_id(passage, where), as_score(score, where), ranks[query]), where
        )


def run_lines(hits: Iterable[Hit]) -> Iterator[str]:
    """`query document score`, in the order given."""
    for hit in hits:
        yield space_line(hit.query, hit.passage, digits(hit.score)).replace(" ", "\t")


def _run_file_lines(export: RunExport) -> Iterator[str]:
    """run.txt, with tabs."""
    return run_lines(export.hits)


FIRST = Format(
    name="tevatron-v1",
    about="Tevatron, first generation",
    fields="corpus {`docid`, `title`, `text`}; training {`query_id`, `query`, `positive_passages`, "
    "`negative_passages`}; both may be in one file",
    yields=("passages", "queries", "groups"),
    rule=is_first,
    read=read_first,
    sample={
        "train.jsonl": '{"query_id": "1", "query": "who", "positive_passages": [{"docid": "a", "title": "T", "text": '
        '"x"}], "negative_passages": [{"docid": "b", "title": "", "text": "y"}]}\n'
    },
)
SECOND = Format(
    name="tevatron-v2",
    about="Tevatron, second generation",
    fields="corpus {`docid`, `document_text`}; training {`query_id`, `query_text`, `positive_document_ids`, "
    "`negative_document_ids`}",
    yields=("passages", "queries", "groups"),
    rule=is_second,
    read=read_second,
    write=write_second,
    sample={
        "train.jsonl": '{"query_id":"1","query_text":"who","positive_document_ids":["a"],'
        '"negative_document_ids":["b","c"]}\n'
    },
)
RUN = Format(
    name="tevatron-run",
    about="Tevatron's run",
    fields="query, document, score",
    yields=("hits",),
    rule=is_run,
    read=read_run,
    run=RunFile("run.txt", by_score, _run_file_lines),
    sample={"rank.txt": "2\t17\t81.25\n2\t0\t80.5\n"},
)
