"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`; each of these files alone, and as Parquet.

corpus: {"_id", "title", "text"}, with `doc` if a passage belongs to a document; queries: {"_id", "text"}, with
`answers` if there are any; qrels: three tab-separated columns, with a header or without one. All queries are
kept, judged or not. Quotes in ids are ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from liebig.base.records import UNITS, Judgement, Passage, Query
from liebig.formats.base import Export, Format
from liebig.formats.inputs import InputSource
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
from liebig.formats.output import json_line, tab_line, write_lines
from liebig.formats.preview import TEXTS, Preview, are_ranks
from liebig.formats.rows import rows, tab_fields

HEADER = "query-id\tcorpus-id\tscore"
QUERY_COLUMN = re.compile(r"(query|q|topic)[-_ ]?(id)?", re.IGNORECASE)
DOCUMENT_COLUMN = re.compile(r"(corpus|doc|document|passage|p|d)[-_ ]?(id|no)?", re.IGNORECASE)
IDS = ("_id", "id", "docid", "doc_id", "pid")
QUERY_IDS = ("_id", "id", "query_id", "qid", "query-id")
QUESTION_FIELDS = ("text", "question", "query")


def is_folder(preview: Preview) -> bool:
    """A folder with corpus.jsonl, and queries.jsonl or qrels."""
    folder = preview.source
    return bool(folder.find("corpus.jsonl") and (folder.find("queries.jsonl") or folder.find("qrels")))


def read_folder(folder: InputSource, options: Options) -> Iterator[Item]:
    """Passages, queries and judgements of a BEIR folder."""
    corpus, queries, qrels = (folder.find(name) for name in ("corpus.jsonl", "queries.jsonl", "qrels"))
    if corpus is not None and options.passages:
        yield from read_passages(corpus, options)
        options.ledger.mark_read(corpus.label)
    if queries is not None:
        for item in read_questions(queries, options):
            yield Item(item.record, item.where)
        options.ledger.mark_read(queries.label)
    for file in qrels.children() if qrels is not None else ():
        if file.suffix == ".tsv":
            split = options.split or check_split(file.stem, Where(file.label))
            yield from read_qrels(file, Options(split=split))
            options.ledger.mark_read(file.label)


def write_folder(export: Export) -> None:
    """corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""
    write_lines(export.folder / ("corpus.jsonl" + export.packed), passage_lines(export.passages()))
    write_lines(export.folder / ("queries.jsonl" + export.packed), question_lines(export.queries()))
    for split in export.splits_of("judgements"):
        write_lines(export.folder / "qrels" / f"{split}.tsv", qrels_lines(export.judgements(split)))


def is_passages(preview: Preview) -> bool:
    """Rows with _id and text."""
    return preview.has("_id") and any(preview.has(name) for name in TEXTS)


def read_passages(source: InputSource, options: Options) -> Iterator[Item]:
    """Passages of {"_id", "title", "text"} rows; `doc` names the document they belong to."""
    return (Item(passage(row, where), where) for where, row in rows(source))


def passage(row: Row, where: Where) -> Passage:
    doc = row.get("doc")
    return Passage(
        id=as_id(field(row, IDS, where), where),
        text=as_text(field(row, TEXTS, where), where),
        title=as_text(row.get("title"), where, "title"),
        doc="" if doc in (None, "") else as_id(doc, where),
        metadata={unit: str(row[unit]) for unit in UNITS if row.get(unit)},
        language=as_text(row.get("language"), where, "language"),
    )


def passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    for record in passages:
        row = {"_id": record.id, "title": record.title, "text": record.text}
        yield json_line(row | ({"doc": record.doc} if record.doc else {}))


def is_questions(preview: Preview) -> bool:
    """Rows with an id and text and answers, or with an id and text in a file whose name mentions queries."""
    has_id = any(preview.has(name) for name in ("_id", "id", "qid", "query_id"))
    has_text = any(preview.has(name) for name in QUESTION_FIELDS)
    return has_id and has_text and (preview.has("answers") or preview.is_about_queries)


def read_questions(source: InputSource, options: Options) -> Iterator[Item]:
    """Queries of {"_id", "text", "answers"} rows."""
    split = options.split_of(source, "")
    return (Item(question(row, where), where, split) for where, row in rows(source))


def question(row: Row, where: Where) -> Query:
    answers: Any = row["answers"] if "answers" in row else row.get("answer")
    return Query(
        id=as_id(field(row, QUERY_IDS, where), where),
        text=as_text(field(row, QUESTION_FIELDS, where), where),
        answers=as_texts(answers, where, "answers"),
    )


def question_lines(queries: Iterable[Query]) -> Iterator[str]:
    for record in queries:
        row: dict[str, Any] = {"_id": record.id, "text": record.text}
        yield json_line(row | ({"answers": record.answers} if record.answers else {}))


def is_qrels(preview: Preview) -> bool:
    """Three tab-separated columns under a header, in a file named qrels, or with a grade from -2 to 10; no triples."""
    table = preview.tabs
    if not table or len(table[0]) != 3 or "triple" in preview.name:
        return False
    if is_header(table[0]) or preview.is_named_qrels:
        return True
    return (
        preview.numbers(table, 2)
        and {float(row[2]) for row in table} <= set(range(-2, 11))
        and not are_ranks(table)
    )


def read_qrels(source: InputSource, options: Options) -> Iterator[Item]:
    """Judgements of `query <tab> passage <tab> score` lines, with or without a header."""
    split = options.split_of(source, "test")
    for where, fields in tab_fields(source, 3, "query-id, corpus-id, score"):
        if where.line > 1 or not is_header(fields):
            query, document, grade = fields
            yield Item(judgement(query, document, grade, where), where, split)


def qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    """The lines of a qrels file, header first."""
    yield HEADER
    for record in judgements:
        yield tab_line(record.query, record.passage, str(record.relevance))


def is_qrels_rows(preview: Preview) -> bool:
    """Rows with query-id and corpus-id."""
    return preview.has("query-id", "corpus-id")


def read_qrels_rows(source: InputSource, options: Options) -> Iterator[Item]:
    """Judgements of {"query-id", "corpus-id", "score"} rows, the tables of Hugging Face datasets."""
    split = options.split_of(source, "test")
    for where, row in rows(source):
        query = field(row, ("query-id", "query_id", "qid"), where)
        document = field(row, ("corpus-id", "corpus_id", "docid", "doc_id", "pid"), where)
        grade = field(row, ("score", "relevance", "label"), where)
        yield Item(judgement(query, document, grade, where), where, split)


def judgement(query: Any, document: Any, grade: Any, where: Where) -> Judgement:
    return Judgement(as_id(query, where), as_id(document, where), as_grade(grade, where))


def is_header(fields: list[str]) -> bool:
    """Whether a first line is a header: it has the usual names of the three columns."""
    named = QUERY_COLUMN.fullmatch(fields[0].strip()) and DOCUMENT_COLUMN.fullmatch(fields[1].strip())
    return bool(named) and fields[2].strip().lower() in ("score", "relevance", "rel", "label", "grade")


BEIR = Format(
    name="beir",
    about="BEIR folder",
    fields="`corpus.jsonl` {`_id`, `title`, `text`; `doc` the document a passage belongs to}; `queries.jsonl` {`_id`, "
    "`text`; `answers`}; `qrels/SPLIT.tsv` query, passage, score, with or without a header",
    yields=("passages", "queries", "judgements"),
    place="folder",
    rule=is_folder,
    read=read_folder,
    write=write_folder,
    sample={
        "corpus.jsonl": '{"_id": "4983", "title": "Matter", "text": "Alterations"}\n',
        "queries.jsonl": '{"_id": "1", "text": "who"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\t4983\t1\n",
    },
)
PASSAGES = Format(
    name="passages",
    about="passages as BEIR's corpus has them",
    fields="{`_id`, `title`, `text`, `doc`}",
    yields=("passages",),
    rule=is_passages,
    read=read_passages,
    sample={"corpus.jsonl": '{"_id": "4983", "title": "Matter", "text": "Alterations"}\n'},
)
QUESTIONS = Format(
    name="questions",
    about="questions, with answers or without",
    fields="{`_id` or `id`, `text` or `question`, `answers`}",
    yields=("queries",),
    rule=is_questions,
    read=read_questions,
    sample={"dev.jsonl": '{"_id": "nq-dev-0", "text": "who", "answers": ["Bill Nighy"]}\n'},
)
QRELS = Format(
    name="beir-qrels",
    about="BEIR's judgements",
    fields="query, passage, score with tabs; quotes are ordinary characters",
    yields=("judgements",),
    rule=is_qrels,
    read=read_qrels,
    sample={"test.tsv": "query-id\tcorpus-id\tscore\n1\t31715818\t1\n"},
)
QRELS_ROWS = Format(
    name="qrels-rows",
    about="judgements as a table",
    fields="{`query-id`, `corpus-id`, `score`}: the tables of Hugging Face data sets",
    yields=("judgements",),
    rule=is_qrels_rows,
    read=read_qrels_rows,
    sample={"test.jsonl": '{"query-id": "q", "corpus-id": "d", "score": 1}\n'},
)
