"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/{split}.tsv`; and each of these files alone.

corpus: {"_id", "title", "text"}, with `doc` where a passage belongs to a document; queries: {"_id", "text"}, with
`answers` where there are any; qrels: three tab-separated columns, with a header or without one. All queries are
kept, judged or not. Quotes in ids are ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from liebig.base.records import Judgement, Passage, Query
from liebig.formats.inputs import Source
from liebig.formats.items import (
    Item,
    Options,
    Row,
    Where,
    as_grade,
    as_id,
    as_text,
    as_texts,
    check_split,
    field,
)
from liebig.formats.output import json_line, tab_line
from liebig.formats.rows import rows, tab_fields

HEADER = "query-id\tcorpus-id\tscore"
QUERY_COLUMN = re.compile(r"(query|q|topic)[-_ ]?(id)?", re.IGNORECASE)
DOCUMENT_COLUMN = re.compile(r"(corpus|doc|document|passage|p|d)[-_ ]?(id|no)?", re.IGNORECASE)
IDS = ("_id", "id", "docid", "doc_id", "pid")
QUERY_IDS = ("_id", "id", "query_id", "qid", "query-id")
QUESTIONS = ("text", "question", "query")


def read_folder(folder: Source, options: Options) -> Iterator[Item]:
    """Passages, queries and judgements of a BEIR folder."""
    corpus, queries, qrels = (folder.find(name) for name in ("corpus.jsonl", "queries.jsonl", "qrels"))
    if corpus is not None:
        yield from read_passages(corpus, options)
    if queries is not None:
        for item in read_questions(queries, options):
            yield Item(item.record, item.where)
    for file in qrels.children() if qrels is not None else ():
        if file.suffix == ".tsv":
            split = options.split or check_split(file.stem, Where(file.label))
            yield from read_qrels(file, Options(split=split))


def read_passages(source: Source, options: Options) -> Iterator[Item]:
    """Passages of {"_id", "title", "text"} rows; `doc` names the document they belong to."""
    return (Item(passage(row, where), where) for where, row in rows(source))


def passage(row: Row, where: Where) -> Passage:
    """The passage of a row."""
    doc = row.get("doc")
    return Passage(
        id=as_id(field(row, IDS, where), where),
        text=as_text(field(row, ("text", "contents", "content"), where), where),
        title=as_text(row.get("title"), where, "title"),
        doc="" if doc in (None, "") else as_id(doc, where),
    )


def read_questions(source: Source, options: Options) -> Iterator[Item]:
    """Queries of {"_id", "text", "answers"} rows."""
    split = options.split_of(source, "")
    return (Item(question(row, where), where, split) for where, row in rows(source))


def question(row: Row, where: Where) -> Query:
    """The query of a row."""
    answers: Any = row["answers"] if "answers" in row else row.get("answer")
    return Query(
        id=as_id(field(row, QUERY_IDS, where), where),
        text=as_text(field(row, QUESTIONS, where), where),
        answers=as_texts(answers, where, "answers"),
    )


def read_qrels(source: Source, options: Options) -> Iterator[Item]:
    """Judgements of `query <tab> passage <tab> score` lines, with or without a header."""
    split = options.split_of(source, "test")
    for where, fields in tab_fields(source, 3, "query-id, corpus-id, score"):
        if where.line > 1 or not is_header(fields):
            query, document, grade = fields
            yield Item(judgement(query, document, grade, where), where, split)


def read_qrels_rows(source: Source, options: Options) -> Iterator[Item]:
    """Judgements of {"query-id", "corpus-id", "score"} rows, the tables of Hugging Face datasets."""
    split = options.split_of(source, "test")
    for where, row in rows(source):
        query = field(row, ("query-id", "query_id", "qid"), where)
        document = field(row, ("corpus-id", "corpus_id", "docid", "doc_id", "pid"), where)
        grade = field(row, ("score", "relevance", "label"), where)
        yield Item(judgement(query, document, grade, where), where, split)


def judgement(query: Any, document: Any, grade: Any, where: Where) -> Judgement:
    """A judgement of three columns."""
    return Judgement(as_id(query, where), as_id(document, where), as_grade(grade, where))


def is_header(fields: list[str]) -> bool:
    """Whether a first line names its columns: its score is no number and its names are names of columns."""
    named = QUERY_COLUMN.fullmatch(fields[0].strip()) and DOCUMENT_COLUMN.fullmatch(fields[1].strip())
    return bool(named) and fields[2].strip().lower() in ("score", "relevance", "rel", "label", "grade")


def passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """The lines of corpus.jsonl."""
    for record in passages:
        row = {"_id": record.id, "title": record.title, "text": record.text}
        yield json_line(row | ({"doc": record.doc} if record.doc else {}))


def question_lines(queries: Iterable[Query]) -> Iterator[str]:
    """The lines of queries.jsonl."""
    for record in queries:
        row: dict[str, Any] = {"_id": record.id, "text": record.text}
        yield json_line(row | ({"answers": record.answers} if record.answers else {}))


def qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    """The lines of a qrels file, header first."""
    yield HEADER
    for record in judgements:
        yield tab_line(record.query, record.passage, str(record.relevance))
