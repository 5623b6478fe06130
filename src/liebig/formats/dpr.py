"""DPR: passages, questions, training data and results; and Pyserini's results.

Passages: CSV with tabs, `id text title` (text before title); questions: `question <tab> [answer, …]`, the list being
a Python literal, which is parsed and never evaluated; training data: one JSON array of {"question", "answers",
"positive_ctxs", "negative_ctxs", "hard_negative_ctxs"}, read an element at a time. Questions have no ids: they are
numbered within their file. Contexts without an id are named after their contents. Results: an array of {"question",
"answers", "ctxs": [{"id", "title", "text", "score", "has_answer"}]}, scores being strings; Pyserini writes {id:
{"question", "answers", "contexts": [{"docid", "score", …}]}}. Both are read, DPR's is written.
"""

from __future__ import annotations

import ast
import csv
import warnings
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Group, Hit, Passage, Query
from liebig.formats.base import Export, Format, RunExport, RunFile
from liebig.formats.encoding import HEAD
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
from liebig.formats.output import csv_line, json_array
from liebig.formats.preview import Preview
from liebig.formats.rows import check_text, container_of, csv_rows, elements, json_lines, text_lines, values
from liebig.formats.trec import by_query, by_rank, digits

COLUMNS = ("id", "text", "title")
CONTEXT_IDS = ("psg_id", "passage_id", "id", "docid")
MAX_LITERAL = 1 << 20


def is_passages(preview: Preview) -> bool:
    """Three tab-separated columns under the header id, text, title, in any order."""
    return _is_header(preview.lines[0].split("\t") if preview.lines else [])


def _is_header(row: list[str]) -> bool:
    return sorted(name.strip().lower() for name in row) == sorted(COLUMNS)


def read_passages(source: InputSource, options: Options) -> Iterator[Item]:
    """Passages; the header says the order of the columns, and without one it is id, text, title."""
    order = list(COLUMNS)
    for where, row in csv_rows(source, "\t"):
        if where.line == 1 and _is_header(row):
            order = [name.strip().lower() for name in row]
            continue
        if len(row) != 3:
            where.refuse(f"the row has {len(row)} tab-separated columns instead of 3 ({', '.join(order)})")
        named = dict(zip(order, row))
        yield Item(Passage(as_id(named["id"], where), named["text"], named["title"]), where)


def passage_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """The file of passages, header first; quoted where it must be."""
    yield "\t".join(COLUMNS)
    for record in passages:
        yield csv_line((record.id, record.text, record.title), "\t")


def write_passages(export: Export) -> None:
    """psgs.tsv with the columns id, text, title."""
    export.lines("psgs.tsv", passage_lines(export.passages()))


def is_questions(preview: Preview) -> bool:
    """Two tab-separated columns, the second a list in brackets."""
    table = preview.tabs
    lists = [row[1].strip().strip('"') for row in table] if table and len(table[0]) == 2 else []
    return bool(lists) and all(text.startswith("[") and text.endswith("]") for text in lists)


def read_questions(source: InputSource, options: Options) -> Iterator[Item]:
    """Questions with their answers, numbered from 0 within the file."""
    split, prefix = options.split_of(source, ""), question_prefix(source)
    for count, (number, line) in enumerate(text_lines(source)):
        where = Where(source.label, number)
        question, answers = _two_columns(line, where)
        yield Item(Query(f"{prefix}-{count}", question, _literal(answers, where)), where, split)


def question_prefix(source: InputSource) -> str:
    """What the ids of a file's questions start with: `nq-test.qa.csv` -> `nq-test`."""
    return source.plain.split(".")[0].lstrip("-") or "question"


def _two_columns(line: str, where: Where) -> tuple[str, str]:
    """Question and list; where the quoting is not that of CSV, the quotes are the text's own."""
    try:
        row = next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error:
        row = line.split("\t")
    if len(row) != 2:
        where.refuse(f"the line has {len(row)} tab-separated columns instead of 2 (question, answers)")
    return row[0], row[1]


def _literal(text: str, where: Where) -> tuple[str, ...]:
    """The answers in a Python or JSON list literal. Nothing is evaluated."""
    if len(text) > MAX_LITERAL:
        where.refuse("the list of answers is longer than 1 MiB")
    try:
        with warnings.catch_warnings(action="ignore"):  # a backslash in an answer is no mistake of ours
            value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        where.refuse(f"the answers are not a list of strings: {text[:60]!r}")
    answers = as_texts(value, where, "answers")
    for answer in answers:
        check_text(answer, where)
    return answers


def question_lines(queries: Iterable[Query]) -> Iterator[str]:
    """`question <tab> ['answer', …]`."""
    for record in queries:
        if "\n" in record.text or "\r" in record.text or not record.text:
            raise DataError(
                f"the question {record.id!r} is empty or contains a line break", fix="give --collapse"
            )
        yield csv_line((record.text, repr(list(record.answers))), "\t")


def write_questions(export: Export) -> None:
    """SPLIT.qa.csv; ids are not written."""
    for name, queries in export.query_files("{}.qa.csv", "questions.qa.csv"):
        export.lines(name, question_lines(queries))


def is_training(preview: Preview) -> bool:
    """Elements with question and positive_ctxs."""
    return preview.has("question", "positive_ctxs")


def read_training(source: InputSource, options: Options) -> Iterator[Item]:
    """For every question: itself, its contexts as passages, and the group of their ids."""
    split, prefix = options.split_of(source, "train"), question_prefix(source)
    for count, (where, value) in enumerate(values(source)):
        row = as_row(value, where, "an element")
        given = row.get("id", row.get("query_id"))
        name = f"{prefix}-{count}" if given is None else as_id(given, where)
        text = as_text(field(row, ("question",), where), where, "question")
        yield Item(Query(name, text, as_texts(row.get("answers"), where, "answers")), where, split)
        positives = list(_contexts(row, ("positive_ctxs",), where))
        negatives = list(_contexts(row, ("hard_negative_ctxs", "negative_ctxs"), where))
        for passage in positives + negatives:
            yield Item(passage, where)
        yield Item(Group(name, _ids(positives), _ids(negatives, positives)), where, split)


def _contexts(row: Row, names: tuple[str, ...], where: Where) -> Iterator[Passage]:
    for name in names:
        for entry in as_list(row.get(name), where, name):
            yield context(entry, where)


def context(entry: Any, where: Where) -> Passage:
    """A context: {"title", "text"} with an id under one of its names, or a plain string."""
    if isinstance(entry, str):
        return Passage(content_id("", entry), entry)
    row = as_row(entry, where, "a context")
    text = as_text(field(row, ("text",), where), where)
    title = as_text(row.get("title"), where, "title")
    given = next((row[name] for name in CONTEXT_IDS if row.get(name) not in (None, "")), None)
    return Passage(content_id(title, text) if given is None else as_id(given, where), text, title)


def content_id(title: str, text: str) -> str:
    """The id of a text that has none: the same text always gets the same one."""
    digest = blake2b(f"{title}\0{text}".encode(), digest_size=8).digest()
    return f"p{int.from_bytes(digest, 'little'):016x}"


def _ids(passages: list[Passage], without: list[Passage] | None = None) -> tuple[str, ...]:
    """Each id once, in order."""
    taken = {passage.id for passage in without or ()}
    return tuple(dict.fromkeys(passage.id for passage in passages if passage.id not in taken))


def training_rows(
    groups: Iterable[Group], query: Callable[[str], Query], passage: Callable[[str], Passage]
) -> Iterator[dict[str, Any]]:
    """The elements of a training file; all negatives are written as hard ones."""
    for group in groups:
        record = query(group.query)
        yield {
            "query_id": record.id,
            "question": record.text,
            "answers": list(record.answers),
            "positive_ctxs": [_context_row(passage(name)) for name in group.positives],
            "negative_ctxs": [],
            "hard_negative_ctxs": [_context_row(passage(name)) for name in group.negatives],
        }


def _context_row(passage: Passage) -> dict[str, str]:
    return {"title": passage.title, "text": passage.text, "psg_id": passage.id}


def write_training(export: Export) -> None:
    """SPLIT.json, an array with the passages written out."""
    for split in export.group_splits():
        rows = training_rows(export.groups(split), export.query, export.passage)
        export.lines(f"{split}.json", json_array(rows))


def is_results(preview: Preview) -> bool:
    """Elements with question and ctxs, or one object of results with contexts."""
    if preview.container != "json object":
        return preview.has("question", "ctxs")
    head = preview.source.head(HEAD)
    return b'"contexts"' in head or b'"ctxs"' in head


def read_results(source: InputSource, options: Options) -> Iterator[Item]:
    """For every question: itself, then its hits in the order of the file."""
    prefix = question_prefix(source)
    for count, (where, key, value) in enumerate(_entries(source)):
        row = as_row(value, where, "an element")
        given = key or row.get("query_id", row.get("id", row.get("qid")))
        name = f"{prefix}-{count}" if given in (None, "") else as_id(given, where)
        text = as_text(field(row, ("question",), where), where, "question")
        yield Item(Query(name, text, as_texts(row.get("answers"), where, "answers")), where)
        contexts = as_list(field(row, ("ctxs", "contexts"), where), where, "ctxs")
        for rank, entry in enumerate(contexts, 1):
            yield Item(_hit(name, entry, rank, where, options.id_prefix), where)


def _entries(source: InputSource) -> Iterator[tuple[Where, str, Any]]:
    if container_of(source) == "json lines":
        return ((where, "", value) for where, value in json_lines(source))
    return elements(source)


def _hit(query: str, entry: Any, rank: int, where: Where, prefix: str) -> Hit:
    row = as_row(entry, where, "a context")
    name = as_id(field(row, ("id", "docid", "passage_id", "psg_id"), where), where)
    return Hit(query, name.removeprefix(prefix) or name, as_score(field(row, ("score",), where), where), rank)


def result_rows(
    hits: Iterable[Hit],
    query: Callable[[str], Query],
    passage: Callable[[str], Passage],
    has_answer: Callable[[Query, Passage], bool],
    prefix: str = "",
) -> Iterator[dict[str, Any]]:
    """The elements of DPR's results, queries in the order of the hits."""
    for group in by_query(hits):
        record = query(group[0].query)
        contexts = []
        for hit in group:
            context = passage(hit.passage)
            row = {
                "id": prefix + context.id,
                "title": context.title,
                "text": context.text,
                "score": digits(hit.score),
            }
            contexts.append(row | {"has_answer": has_answer(record, context)})
        yield {
            "query_id": record.id,
            "question": record.text,
            "answers": list(record.answers),
            "ctxs": contexts,
        }


def _result_lines(export: RunExport) -> Iterator[str]:
    """results.json, an array with the texts of the hits; needs --collection."""
    if export.collection is None:
        raise DataError(
            "DPR's results contain texts", fix="name the collection that has them with --collection"
        )
    query, passage = export.collection.query, export.collection.passage
    return json_array(result_rows(export.hits, query, passage, export.has_answer, export.id_prefix))


def write_all(export: Export) -> None:
    """The files of `dpr-passages`, `dpr-questions` and `dpr-train`."""
    for write in (write_passages, write_questions, write_training):
        write(export)


PASSAGES = Format(
    name="dpr-passages",
    about="DPR's passages",
    fields="`id`, `text`, `title` (text before title) with tabs, CSV quoting; the header decides the order",
    yields=("passages",),
    rule=is_passages,
    read=read_passages,
    write=write_passages,
    sample={"psgs_w100.tsv": 'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"")"\tAaron\n'},
)
QUESTIONS = Format(
    name="dpr-questions",
    about="DPR's questions with answers",
    fields="question, tab, list of answers as a Python or JSON literal; CSV quoting. Questions are numbered: "
    "`nq-test-0`, …",
    yields=("queries",),
    rule=is_questions,
    read=read_questions,
    write=write_questions,
    sample={"nq-test.qa.csv": "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n"},
)
TRAINING = Format(
    name="dpr-train",
    about="DPR's training data",
    fields="array of {`question`, `answers`, `positive_ctxs`, `negative_ctxs`, `hard_negative_ctxs`}; contexts "
    "{`title`, `text`, `psg_id` or `passage_id`} or strings. A context without an id is named after its contents; "
    "retrieval scores are not teacher scores",
    yields=("queries", "passages", "groups"),
    rule=is_training,
    read=read_training,
    write=write_training,
    sample={
        "nq-train.json": '[\n{"question": "who", "answers": ["x"], "positive_ctxs": [{"title": "T", "text": "x y", '
        '"score": 1000, "title_score": 1, "psg_id": "7"}], "negative_ctxs": [], "hard_negative_ctxs": [{"title": "U", '
        '"text": "z"}]}\n]\n'
    },
)
RESULTS = Format(
    name="dpr-results",
    about="DPR's or Pyserini's results",
    fields="DPR: array of {`question`, `answers`, `ctxs`: [{`id`, `title`, `text`, `score`, `has_answer`}]}; "
    "Pyserini: {id: {`question`, `contexts`: [{`docid`, `score`}]}}. A run: for convert, not for init",
    yields=("queries", "hits"),
    rule=is_results,
    read=read_results,
    run=RunFile("results.json", by_rank, _result_lines),
    sample={
        "results.json": '[{"question": "who", "answers": ["x"], "ctxs": [{"id": "wiki:7", "title": "T", "text": "x", '
        '"score": "81.5", "has_answer": true}]}]'
    },
)
DPR = Format(name="dpr", about="DPR's files", write=write_all)
