"""Pairs, triplets and n-tuples of texts, and scored pairs, in the columns sentence-transformers users have.

Order decides, as it does there: the first text column is the anchor, the second the positive, the rest negatives;
a column named label or score makes two texts a scored pair. JSON lines may also be lists of texts, or {"query",
"pos": […], "neg": […]}. CSV has a header; STS benchmark's `sentence,sentence,score` has none.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

from liebig.base.records import ScoredPair, Tuple
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import (
    Item,
    Options,
    Row,
    Where,
    as_list,
    as_row,
    as_score,
    as_text,
    as_texts,
    field,
    split_in,
)
from liebig.formats.preview import Preview
from liebig.formats.rows import check_text, container_of, csv_rows, rows, values

SCORES = ("label", "score", "labels", "scores", "similarity")
IGNORED = ("idx", "index", "id", "_id", "split", "genre", "dataset", "year", "source", "__index_level_0__")
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?([-_ ]?\d+)?", re.IGNORECASE)
# The names that the data sets of sentence-transformers give their first two columns.
PAIRS = re.compile(
    r"anchor (positive|pos|entailment)|(query|question) (positive|pos)|premise hypothesis"
    r"|(sentence|text|sent|question)[-_ ]?(1|a) (sentence|text|sent|question)[-_ ]?(2|b)",
    re.IGNORECASE,
)


def is_tuples(preview: Preview) -> bool:
    """Rows with the columns anchor and positive, sentence1 and sentence2 or the like, or a negative; lists of texts."""
    if isinstance(preview.first, list):
        return len(preview.first) > 1 and all(isinstance(text, str) for text in preview.first)
    if isinstance(preview.row.get("pos"), list):
        return preview.has("query") or preview.has("anchor")
    names = list(_text_columns(preview.row))
    is_named = bool(names[2:]) or PAIRS.fullmatch(" ".join(names)) is not None
    return is_named and all(map(NEGATIVE.fullmatch, names[2:]))


def read_tuples(source: InputSource, options: Options) -> Iterator[Item]:
    """Tuples or scored pairs of a file's rows."""
    split = options.split_of(source, "train")
    for where, value in _values(source):
        for record in _records(value, where):
            yield Item(record, where, split)


def _values(source: InputSource) -> Iterator[tuple[Where, Any]]:
    if container_of(source) in ("parquet", "arrow", "csv"):
        return rows(source)
    return values(source)


def _records(value: Any, where: Where) -> Iterator[Tuple | ScoredPair]:
    if isinstance(value, list):
        yield _tuple([as_text(text, where) for text in value], where)
        return
    row = as_row(value, where)
    if "pos" in row:
        yield from _with_lists(row, where)
        return
    scores = [row[name] for name in SCORES if name in row]
    texts = columns(row, where)
    if not scores:
        yield _tuple(texts, where)
    elif len(texts) == 2:
        yield ScoredPair(texts[0], texts[1], as_score(scores[0], where))
    else:
        where.refuse(f"the row has a score and {len(texts)} texts; a score goes with two texts")


def columns(row: Row, where: Where) -> list[str]:
    """The texts of a row, in the order of its columns; from the third on they must be named as negatives."""
    texts = _text_columns(row)
    for name in list(texts)[2:]:
        if not NEGATIVE.fullmatch(name):
            where.refuse(
                f"column {name!r} is not named like a negative",
                f"rename it negative_1, or drop it, in {where.file}",
            )
    return list(texts.values())


def _text_columns(row: Row) -> dict[str, str]:
    """The columns of a row that hold texts, scores and numbers of rows left out."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, str) and name not in SCORES and name.lower() not in IGNORED
    }


def _with_lists(row: Row, where: Where) -> Iterator[Tuple]:
    """{"query", "pos": […], "neg": […]}: one tuple for each positive."""
    anchor = as_text(field(row, ("query", "anchor"), where), where, "query")
    negatives = as_texts(row.get("neg"), where, "neg")
    for positive in as_list(row["pos"], where, "pos"):
        yield _tuple([anchor, as_text(positive, where, "pos"), *negatives], where)


def _tuple(texts: list[str], where: Where) -> Tuple:
    if len(texts) < 2:
        where.refuse(
            f"the row has {len(texts)} texts; a tuple has an anchor, a positive and perhaps negatives"
        )
    for text in texts:
        check_text(text, where)
    return Tuple(texts[0], texts[1], tuple(texts[2:]))


def is_sts(preview: Preview) -> bool:
    """CSV without a header: two sentences and a number from 0 to 5; any two texts in a file named after a split."""
    if preview.container != "csv" or not preview.lines:
        return False
    try:
        first = next(csv.reader(preview.lines[:1]), [])
    except csv.Error:
        return False
    are_texts = all(len(text.split()) > 1 for text in first[:2]) or split_in(preview.name) is not None
    return len(first) == 3 and are_texts and preview.numbers([first], 2) and 0 <= float(first[2]) <= 5


def read_sts(source: InputSource, options: Options) -> Iterator[Item]:
    """Scored pairs of `sentence,sentence,score` CSV without a header."""
    split = options.split_of(source, "train")
    for where, row in csv_rows(source):
        if len(row) != 3:
            where.refuse(f"the row has {len(row)} columns instead of 3 (sentence, sentence, score)")
        yield Item(ScoredPair(row[0], row[1], as_score(row[2], where)), where, split)


TUPLES = Format(
    name="tuples",
    about="pairs, triplets, n-tuples or scored pairs",
    fields="columns in order: anchor, positive, negatives (`negative`, `negative_1`, …); two texts and `score` or "
    "`label` make a scored pair. Also lists of texts, and {`query`, `pos`: […], `neg`: […]}. JSON lines, CSV with a "
    "header, Parquet, Arrow",
    yields=("tuples", "pairs"),
    rule=is_tuples,
    read=read_tuples,
    sample={"train.jsonl": '{"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"}\n'},
)
STS = Format(
    name="sts",
    about="scored pairs as STS benchmark has them",
    fields="CSV: sentence, sentence, score",
    yields=("pairs",),
    rule=is_sts,
    read=read_sts,
    sample={"train.csv": 'A plane is taking off.,"An air plane, taking off.",5.0\nA man,A "man",3.8\n'},
)
