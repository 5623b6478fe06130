"""A passage is found in its document, however it was put together."""

import pytest

from liebig.search import explain
from liebig.search.explain import Mark, locate


def test_a_passage_inside_a_paragraph_is_marked_by_its_characters():
    assert locate("b c", ["x", "a b  c d"]) == [Mark(1, 2, 6)]


def test_a_passage_over_several_paragraphs_is_marked_in_each():
    assert locate("two three four", ["one two", "three", "four five"]) == [
        Mark(0, 4, 7), Mark(1, 0, 5), Mark(2, 0, 4)
    ]  # fmt: skip


def test_a_heading_before_the_passage_does_not_hide_it():
    assert locate("Heading one two three", ["zero one two three four"]) == [Mark(0, 5, 18)]


def test_what_is_not_there_has_no_marks():
    assert locate("quite another text", ["one two three"]) == []
    assert locate("", ["one"]) == []
    assert locate("one", []) == []


def test_a_passage_of_repeated_words_is_not_looked_for_in_a_long_document(monkeypatch):
    """The longest run of common words takes time for each pair of equal words."""
    words = "a b " * 3000
    monkeypatch.setattr(
        explain, "SequenceMatcher", lambda *given, **more: pytest.fail("it compares all pairs")
    )
    assert locate("b a " * 200 + "x", [words]) == []


def test_a_role_has_a_bound_of_letters():
    """Without one, time would grow with the square of a row of colons."""
    assert explain.without_markup("see :py:func:`x`") == "see x"
    assert explain.without_markup(f":{'a' * 50}:`x`") == f":{'a' * 50}:x"
