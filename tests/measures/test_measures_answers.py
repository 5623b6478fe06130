"""DPR's answer matching, on the cases where tools disagree."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
import regex
from hypothesis import given, strategies as st

from liebig.measures.answers import (
    SEPARATOR,
    accuracy_at,
    first_match,
    has_answer,
    join,
    token_matcher,
    tokens,
)


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("The cat sat.", "cat", True),
        ("The cat sat.", "CAT", True),
        ("The others", "he", False),
        ("Beyonc\u00e9 sang", "Beyonc\u00e9", True),
        ("Beyonce\u0301 sang", "Beyonc\u00e9", True),
        ("Beyonc\u00e9 sang", "Beyonce", False),
        ("a twenty-one gun salute", "twenty-one", True),
        ("a twenty - one gun salute", "twenty-one", True),
        ("a twenty one gun salute", "twenty-one", False),
        ("in the U.S.A. today", "U.S.A.", True),
        ("in the U.S.A. today", "USA", False),
        ("It costs $ 5.00.", "$5.00", True),
        ("It costs $5,00", "$5.00", False),
        ("rock 'n' roll", "rock 'n' roll", True),
        ("rock ’n’ roll", "rock 'n' roll", False),
        ("the year 1984 AD", "1984", True),
        ("item 19845", "1984", False),
        ("Tokyo (東京) is", "東京", True),
        ("東京都", "東京", False),
        ("New\nYork", "new york", True),
        ("New York", "New York", True),
        ("New\u200bYork", "new york", True),
        ("NewYork", "new york", False),
        ("York New", "new york", False),
        ("A New York Times", "new york", True),
        ("don't", "don ' t", True),
        ("C++ code", "C++", True),
        ("C+ code", "C++", False),
        ("ﬁne", "fine", False),
        ("under_score", "under", True),
        ("any text", "", False),
        ("any text", "  ", False),
        ("any text", "\u200b", False),
        ("", "text", False),
        ("nothing here", "...", False),
        ("wait... what", "...", True),
        ("ΟΔΟΣ", "οδος", True),
        ("ΟΔΟΣ'Α", "οδος", True),
        ("İstanbul", "i̇stanbul", True),
    ],
)
def test_the_hard_list(text: str, answer: str, expected: bool) -> None:
    assert has_answer(text, [answer]) is expected
    assert (bool(reference(answer)) and contains(reference(text), reference(answer))) is expected


def reference(text: str) -> list[str]:
    """DPR's tokenizer as a regular expression with Unicode classes."""
    pattern = regex.compile(
        r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
    )
    return [match.group().lower() for match in pattern.finditer(unicodedata.normalize("NFD", text))]


def contains(text: list[str], answer: list[str]) -> bool:
    return any(text[i : i + len(answer)] == answer for i in range(len(text) - len(answer) + 1))


@given(st.text(alphabet=st.characters(codec="utf-8", max_codepoint=0x2FFFF)))
def test_tokens_equal_the_unicode_expression(text: str) -> None:
    assigned = "".join(c for c in text if unicodedata.category(c) != "Cn")
    assert tokens(assigned) == reference(assigned)


@given(st.text(alphabet="ab-. É", max_size=20), st.text(alphabet="ab-. É", max_size=4))
def test_matching_equals_a_search_for_the_token_sequence(text: str, answer: str) -> None:
    wanted = reference(answer)
    assert has_answer(text, [answer]) is (bool(wanted) and contains(reference(text), wanted))


def test_any_answer_is_enough_and_none_is_not() -> None:
    assert has_answer("a b c", ["x", "b c"])
    assert not has_answer("a b c", ["", " "])
    assert not has_answer("a b c", [])


def test_joined_tokens_have_separators_around_each() -> None:
    assert join("A-b") == SEPARATOR.join(["", "a", "-", "b", ""])
    assert join(" \n") == ""
    assert not token_matcher([""])(join("a"))


def test_top_k_accuracy_counts_the_first_match() -> None:
    ranks = np.array(
        [first_match(["a", "b c", "b"], token) for token in (str.isspace, "b c".__eq__, "b".__eq__)]
    )
    assert ranks.tolist() == [0, 2, 3]
    assert [accuracy_at(ranks, cut).mean() for cut in (1, 2, 3)] == [0, 1 / 3, 2 / 3]
