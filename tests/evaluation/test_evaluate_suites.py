"""Suites carry the conventions of their sets; published figures are data that can be checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from liebig.base.errors import RecipeError
from liebig.evaluation.suites import BY_NAME, FORUMS, GROUPS, SUITES, is_same, named, recognise
from liebig.evaluation.tables import beside, figures, papers
from liebig.measures import parse


def figure(suite: str, measure: str, system: str, paper: str, table: str) -> float:
    found = [f for f in beside(suite, [measure]) if (f.system, f.paper, f.table) == (system, paper, table)]
    assert len(found) == 1
    return found[0].value


def test_every_suite_has_measures_that_fit_its_data() -> None:
    assert len(BY_NAME) == len(SUITES)
    for suite in SUITES:
        needed = "judgements" if suite.kind == "candidates" else suite.kind
        assert {parse(measure).needs for measure in suite.measures} == {needed}


def test_the_fourteen_of_beir_count_cqadupstack_once() -> None:
    assert len(GROUPS["beir/mean"]) == 14
    assert len(GROUPS["beir/cqadupstack"]) == len(FORUMS) == 12
    assert all(member in BY_NAME for member in GROUPS["beir/cqadupstack"])


def test_only_arguana_and_quora_take_a_query_out_of_its_hits() -> None:
    assert [suite.name for suite in SUITES if suite.exclude_self] == ["beir/arguana", "beir/quora"]


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("data/scifact", "judgements", "beir/scifact"),
        ("data/SciFact", "judgements", "beir/scifact"),
        ("beir/cqadupstack/tex", "judgements", "beir/cqadupstack/tex"),
        ("x/qrels.dev.small.tsv", "judgements", "msmarco-passage/dev"),
        ("x/2019qrels-pass.txt", "judgements", "trec-dl-2019/passage"),
        ("nq", "judgements", "beir/nq"),
        ("nq", "answers", "nq-open/test"),
        ("stsb", "pairs", "stsb/test"),
    ],
)
def test_a_set_is_recognised_by_its_name_and_data(path: str, kind: str, name: str) -> None:
    found = recognise(Path(path), [kind])  # type: ignore[list-item]
    assert found is not None
    assert found.name == name


def test_an_unknown_folder_has_no_suite_and_an_unknown_suite_is_an_error() -> None:
    assert recognise(Path("my/documents"), ["judgements"]) is None
    with pytest.raises(RecipeError, match="no suite"):
        named("beir/nothing")


def test_a_set_is_the_published_one_only_with_its_numbers() -> None:
    assert is_same(named("beir/scifact"), 300, 5183)
    assert not is_same(named("beir/scifact"), 300, 5000)
    assert is_same(named("beir/scifact"), 300, None)
    assert not is_same(named("beir/scifact"), 299, None)
    assert not is_same(named("nq-open/test"), 3610, 732_630)


def test_every_figure_names_a_set_a_measure_and_a_paper() -> None:
    known = set(BY_NAME) | set(GROUPS) | {"msmarco-passage/eval", "msmarco-document/eval", "annotators"}
    largest = {"loss": 10, "Share": 1}  # which no run of ours computes as a measure
    assert set(papers()) == {"condenser", "cocondenser", "query-as-context", "condenser-abs", "contriever"}
    for found in figures():
        assert found.suite in known
        assert found.measure in largest or str(parse(found.measure)) == found.measure
        assert 0 < found.value < largest.get(found.measure, 1)
        assert found.paper in papers()
        assert found.table.startswith("Table ")


@pytest.mark.parametrize(
    ("suite", "measure", "system", "paper", "table", "value"),
    [
        ("msmarco-passage/dev", "RR@10", "BM25", "condenser", "Table 5", 0.184),
        ("msmarco-passage/dev", "RR@10", "BM25", "condenser", "Table 6", 0.189),
        ("msmarco-passage/dev", "RR@10", "BM25", "cocondenser", "Table 1", 0.187),
        ("msmarco-passage/dev", "RR@10", "coCondenser", "cocondenser", "Table 1", 0.382),
        ("msmarco-passage/dev", "RR@10", "docT5query", "query-as-context", "Table 1", 0.215),
        ("msmarco-passage/dev", "RR@10", "docT5query", "cocondenser", "Table 1", 0.277),
        ("nq-open/test", "Answer@20", "DPR", "cocondenser", "Table 1", 0.744),
        ("nq-open/test", "Answer@20", "DPR", "condenser", "Table 4", 0.784),
        ("stsb/test", "Spearman", "Condenser, all pairs", "condenser", "Table 1", 0.856),
        ("abs/dev", "RR@100", "ABS, encoder", "condenser-abs", "Table 4", 0.629),
        ("beir/scifact", "nDCG@10", "BM25", "contriever", "Table 1", 0.665),
        ("beir/trec-covid", "R_cap@100", "BM25", "contriever", "Table 7", 0.498),
    ],
)
def test_figures_are_as_printed(
    suite: str, measure: str, system: str, paper: str, table: str, value: float
) -> None:
    assert figure(suite, measure, system, paper, table) == pytest.approx(value)


def test_averages_equal_the_mean_of_their_row_unless_a_note_says_they_do_not() -> None:
    rows: dict[tuple[str, str, str, str], list[tuple[str, float, str]]] = {}
    for found in figures():
        if found.suite.startswith("beir/") and found.measure in ("nDCG@10", "R@100", "R_cap@100"):
            measure = "R@100" if found.measure == "R_cap@100" else found.measure
            rows.setdefault((found.paper, found.table, found.system, measure), []).append(
                (found.suite, found.value, found.note)
            )
    checked = 0
    for row in rows.values():
        printed = [value for suite, value, _ in row if suite == "beir/mean"]
        if printed and "more sets" not in row[0][2]:
            values = [value for suite, value, _ in row if suite != "beir/mean"]
            assert sum(values) / len(values) == pytest.approx(printed[0], abs=0.0006)
            checked += 1
    assert checked == 22


@pytest.mark.parametrize(
    ("paper", "words"),
    [
        ("cocondenser", "repeats GAR's"),
        ("condenser", ".184 (Condenser, Table 5), .187"),
        ("query-as-context", "doc2query's figure"),
        ("contriever", "more sets than the table shows"),
    ],
)
def test_known_misprints_are_noted(paper: str, words: str) -> None:
    assert any(words in found.note for found in figures() if found.paper == paper)
