"""Sentences: right on a hard list in ten scripts, and spans that hold everything exactly once on any text."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from liebig.base.errors import RecipeError
from liebig.text import sentences
from liebig.text.sentences import spans, split

HARD = json.loads((Path(__file__).parent / "hard_sentences.json").read_text(encoding="utf-8"))
ALPHABET = " \n\t.!?…。！？「」()[]\"'”“,;-aAbIT1९。、とह।؟ن\u2028\u2029\x85é́"


@pytest.mark.parametrize("case", HARD, ids=lambda case: case["about"].replace(" ", "-"))
def test_hard_case(case):
    marked = case["marked"]
    expected = [part.strip() for part in marked.split("|")]
    assert split(marked.replace("|", ""), case.get("language")) == expected


def test_the_hard_list_has_many_cases_in_many_scripts():
    assert len(HARD) >= 100
    assert {"Latin", "Han", "Japanese", "Devanagari", "Arabic", "Cyrillic"} <= {
        case["script"] for case in HARD
    }
    assert len({case["about"] for case in HARD}) == len(HARD)


@settings(max_examples=400)
@given(st.text(ALPHABET, max_size=80) | st.text(max_size=80))
@example("")
@example(" \n ")
@example(". . .")
@example("Mr.")
def test_every_character_that_is_no_space_is_in_one_sentence(text):
    found = spans(text)
    covered = [i for start, end in found for i in range(start, end)]
    assert covered == sorted(set(covered))
    assert {i for i, c in enumerate(text) if not c.isspace()} <= set(covered)


@settings(max_examples=200)
@given(st.text(ALPHABET, max_size=80))
def test_no_sentence_is_empty_or_has_space_around_it(text):
    for start, end in spans(text):
        assert end > start
        assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize("language", [None, "en", "de", "fr", "es", "it", "pt", "nl", "ru", "hi"])
def test_an_empty_line_always_ends_a_sentence(language):
    assert split("see Dr.\n\nsmith and\n \ncf.\n\nx", language) == ["see Dr.", "smith and", "cf.", "x"]


def test_a_language_without_a_list_is_an_error_that_names_those_with_one():
    with pytest.raises(RecipeError, match="use one of en, de, fr"):
        spans("A.", "tlh")


@pytest.mark.parametrize(
    "unit", [".", ". ", "! a", "(. ", "「。", "A. ", "a.\n", "...)", "\n", " ", "?」", "e.g. "]
)
def test_long_runs_of_anything_take_linear_time(unit):
    text = unit * 40_000
    covered = sum(end - start for start, end in spans(text))
    assert covered <= len(text)


@pytest.mark.parametrize("tail", ["", "”", "[a]"])
def test_only_the_first_stop_of_a_run_looks_at_the_rest(tail):
    """At the end of a text, where no boundary follows, each would: in compiled code that no count of lines sees."""
    run = "。！." * 10 + tail
    for candidates in (sentences._CASED, sentences._UNCASED):
        assert [at for at in range(30) if candidates.match("は" + run + "x", 1 + at)] == [0]
    assert split("はい。" + run) == [("はい。" + run).strip()]
