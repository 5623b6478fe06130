"""Measures are values whose printed name parses back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from liebig.base.errors import RecipeError
from liebig.measures import KINDS, Measure, parse, parse_all


@st.composite
def measures(draw: st.DrawFn) -> Measure:
    kind = draw(st.sampled_from(list(KINDS)))
    rules = KINDS[kind]
    cut = st.integers(1, 10_000)
    return Measure(
        kind,
        cut=draw({"required": cut, "optional": cut | st.none(), "none": st.none()}[rules.cut]),
        rel=draw(st.integers(1, 5)) if rules.threshold else 1,
        order=draw(st.sampled_from(["score", "given"])) if rules.ranked else "score",
    )


@given(measures())
def test_a_printed_name_parses_back(measure: Measure) -> None:
    assert parse(str(measure)) == measure


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("nDCG@10", "nDCG@10"),
        ("NDCG@10", "nDCG@10"),
        ("ndcg_cut_10", "nDCG@10"),
        ("MRR@10", "RR@10"),
        ("RR( rel = 2 )@10", "RR(rel=2)@10"),
        ("RR(order=given, rel=2)@10", "RR(rel=2, order=given)@10"),
        ("MAP", "AP"),
        ("recall_100", "R@100"),
        ("P_5", "P@5"),
        ("R_cap@100", "R_cap@100"),
        ("top@20", "Answer@20"),
        ("spearman", "Spearman"),
    ],
)
def test_usual_spellings_are_understood(name: str, printed: str) -> None:
    assert str(parse(name)) == printed


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nDCG@0",
        "R",
        "Spearman@3",
        "nDCG(rel=2)@10",
        "RR(rel=x)@10",
        "RR(k=1)",
        "foo@10",
        "RR(rel=0)",
        "Answer",
        "@10",
    ],
)
def test_a_name_that_means_nothing_is_an_error_with_a_fix(name: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse(name)
    assert error.value.fix


def test_a_measure_named_twice_counts_once() -> None:
    assert [str(measure) for measure in parse_all(["MRR@10", "RR@10", "R@5"])] == ["RR@10", "R@5"]
