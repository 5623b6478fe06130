"""Every format written and read back gives the same records."""

import csv
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, Section
from liebig.formats import (
    beir,
    detect,
    documents,
    dpr,
    msmarco,
    tevatron,
    trec,
)
from liebig.formats.items import Options
from liebig.formats.output import collapse, csv_line, json_array, write_lines

CHARACTERS = st.characters(exclude_categories=["Cs"])
PLAIN = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff")
WORD = st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="\ufeff")
anything = st.text(CHARACTERS, max_size=40)
no_nul = anything.filter(lambda text: "\0" not in text and not text.startswith("\ufeff"))
one_line = st.text(PLAIN, max_size=40)
ids = st.text(PLAIN, min_size=1, max_size=12).filter(lambda text: not text.isspace())
words = st.text(WORD, min_size=1, max_size=12)
numbers = st.integers(0, 10**9).map(str)
scores = st.floats(-1e6, 1e6, width=32)
grades = st.integers(-3, 5)


def unique(strategy, **limits):
    return st.lists(strategy, unique_by=lambda record: record.id, max_size=5, **limits)


def some(strategy):
    return st.lists(strategy, min_size=1, max_size=5)


def passages(texts, names=ids, titles=None):
    return unique(st.builds(Passage, names, texts, texts if titles is None else titles), min_size=1)


def sections(texts):
    return st.lists(st.builds(Section, texts, st.lists(texts, max_size=3).map(tuple)), max_size=3).map(tuple)


def groups(names, scored=False):
    def build(query, found, cut):
        cut = 1 + cut % (len(found) - 1)
        numbers = [float(len(name)) for name in found] if scored else []
        positives, negatives = tuple(found[:cut]), tuple(found[cut:])
        return Group(query, positives, negatives, tuple(numbers[:cut]), tuple(numbers[cut:]))

    return st.builds(build, names, st.lists(names, min_size=2, max_size=6, unique=True), st.integers(0, 5))


def run_of(names):
    """Hits of a few queries, best first, scores strictly decreasing."""

    def build(queries, found):
        steps = enumerate(found, 1)
        return [Hit(query, name, 100.0 - rank, rank) for rank, name in steps for query in [queries[0]]] + [
            Hit(query, found[0], 0.5, 1) for query in queries[1:]
        ]

    return st.builds(
        build,
        st.lists(names, min_size=1, max_size=3, unique=True),
        st.lists(names, min_size=1, max_size=4, unique=True),
    )


def back(name, file, lines, **options):
    """The records of a file with these lines, read as the format."""
    with tempfile.TemporaryDirectory() as folder:
        write_lines(Path(folder) / file, lines)
        return [
            item.record
            for found in detect(Path(folder) / file, name)
            for item in found.items(Options(**options))
        ]


QUERIES = unique(st.builds(Query, ids, anything, st.lists(anything, max_size=3).map(tuple)), min_size=1)
LINE_QUERIES = unique(st.builds(Query, ids, one_line), min_size=1)
TOPICS = unique(
    st.builds(Query, words, one_line.map(collapse).filter(lambda t: t and not trec.LABEL.match(t))),
    min_size=1,
).filter(lambda found: not any(trec.LABEL.match(q.id) for q in found))
DOCUMENTS = unique(
    st.builds(Document, ids, anything, sections(anything), st.dictionaries(words, anything, max_size=2)),
    min_size=1,
)
MARCO_DOCUMENTS = unique(
    st.builds(
        lambda name, title, text, url: Document(name, title, (Section("", (text,) if text else ()),), url),
        ids,
        one_line,
        one_line,
        one_line.map(lambda url: {"url": url} if url else {}),
    ),
    min_size=1,
)
JUDGED, TREC_JUDGED = (
    some(st.builds(Judgement, ids, ids, grades)),
    some(st.builds(Judgement, words, words, grades)),
)
ID_GROUPS = st.lists(
    st.builds(
        lambda q, p, n: Group(q.strip() or "q", (p.strip() or "p",), tuple(x.strip() or "n" for x in n)),
        words,
        words,
        st.lists(words, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda group: group.query,
)
NUMBERED = some(groups(numbers))
SCORED = some(groups(numbers, scored=True))

CASES = {
    "passages": ("corpus.jsonl", passages(anything), beir.passage_lines),
    "questions": ("queries.jsonl", QUERIES, beir.question_lines),
    "beir-qrels": ("test.tsv", JUDGED, beir.qrels_lines),
    "trec-qrels": ("qrels.txt", TREC_JUDGED, trec.qrels_lines),
    "trec-qrels ": ("qrels.tsv", TREC_JUDGED, msmarco.tab_qrels_lines),
    "trec-topics": ("trec.txt", TOPICS, trec.sgml_lines),
    "msmarco-queries": ("queries.tsv", LINE_QUERIES, msmarco.query_lines),
    "msmarco-titled": ("corpus.tsv", passages(one_line), msmarco.titled_lines),
    "msmarco-id-triples": ("qidpidtriples.tsv", ID_GROUPS, msmarco.id_triple_lines),
    "dpr-passages": ("psgs.tsv", passages(no_nul), dpr.passage_lines),
    "tevatron-v2": ("corpus.jsonl", passages(anything), tevatron.second_passage_lines),
    "documents": ("documents.jsonl", DOCUMENTS, documents.document_lines),
    "trec-run": ("run.trec", run_of(words), trec.run_lines),
    "tevatron-run": ("run.txt", run_of(words), tevatron.run_lines),
}
QUICK = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@QUICK
def test_records_come_back_equal(case, data):
    file, strategy, lines = CASES[case]
    records = data.draw(strategy)
    assert back(case.strip(), file, lines(records)) == records


@given(run_of(numbers))
@QUICK
def test_msmarco_run_comes_back_in_its_order(hits):
    found = back("msmarco-run", "run.tsv", msmarco.run_lines(hits))
    assert [(h.query, h.passage, h.rank) for h in found] == [(h.query, h.passage, h.rank) for h in hits]


@given(unique(st.builds(Query, ids, one_line, st.lists(anything, max_size=3).map(tuple)), min_size=1))
@QUICK
def test_dpr_questions_come_back_with_the_ids_of_their_lines(queries):
    assume(all(query.text for query in queries))
    found = back("dpr-questions", "dev.qa.csv", dpr.question_lines(queries))
    assert found == [replace(query, id=f"dev-{n}") for n, query in enumerate(queries)]


def world(draw, texts):
    """A few passages and queries, and groups over them."""
    found = draw(
        st.lists(st.builds(Passage, ids, texts, texts), min_size=2, max_size=5, unique_by=lambda p: p.id)
    )
    asked = draw(unique(st.builds(Query, ids, texts, st.lists(texts, max_size=2).map(tuple)), min_size=1))
    names = [passage.id for passage in found]
    made = [Group(query.id, (names[0],), tuple(names[1:])) for query in asked]
    return {p.id: p for p in found}, {q.id: q for q in asked}, made


@given(st.data())
@QUICK
def test_dpr_training_data_comes_back(data):
    found, asked, made = world(data.draw, anything)
    rows = dpr.training_rows(made, asked.__getitem__, found.__getitem__)
    records = back("dpr-train", "train.json", json_array(rows))
    assert [r for r in records if isinstance(r, Group)] == made
    assert [r for r in records if isinstance(r, Query)] == list(asked.values())
    assert {r.id: r for r in records if isinstance(r, Passage)} == found


@given(st.data())
@QUICK
def test_tevatron_training_data_comes_back(data):
    _, asked, made = world(data.draw, anything)
    lines = tevatron.second_training_lines(made, asked.__getitem__)
    records = back("tevatron-v2", "train.jsonl", lines)
    assert [r for r in records if isinstance(r, Group)] == made
    assert [r for r in records if isinstance(r, Query)] == list(asked.values())


@given(st.data(), st.booleans())
@QUICK
def test_dpr_results_come_back(data, has_answer):
    found, asked, _ = world(data.draw, anything)
    hits = [Hit(q, p, 10.0 - rank, rank) for q in asked for rank, p in enumerate(found, 1)]
    rows = dpr.result_rows(hits, asked.__getitem__, found.__getitem__, lambda q, p: has_answer, "wiki:")
    records = back("dpr-results", "results.json", json_array(rows), id_prefix="wiki:")
    assert [r for r in records if isinstance(r, Hit)] == hits
    assert [r for r in records if isinstance(r, Query)] == list(asked.values())


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2+3", "@SUM(A1)", "=HYPERLINK('x')"])
def test_csv_keeps_what_a_spreadsheet_takes_for_a_formula(text):
    """It is data and is read back; an apostrophe before it would be part of the text."""
    assert next(csv.reader([csv_line([text, "b"])])) == [text, "b"]
