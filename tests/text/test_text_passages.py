"""Passages: never past their size, and nothing lost."""

import pytest
from hypothesis import given, settings, strategies as st

from liebig.text.passages import by_tokens
from tests.worlds.texts import ARABIC, CHINESE, ENGLISH, HINDI, JAPANESE, RUSSIAN, every, trained

KINDS = ("wordpiece", "bpe", "sentencepiece")
WORLD = ((ENGLISH, ENGLISH + " " + ENGLISH), (CHINESE, JAPANESE, HINDI), (), (ARABIC, RUSSIAN))


def squeezed(text):
    return "".join(text.split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 12, 50])
def test_passages_have_at_most_the_tokens_asked_for_and_hold_every_character_in_order(kind, size):
    tokenizer = every()[kind]
    cuts = by_tokens(tokenizer, size)(WORLD)
    assert max(len(tokenizer.encode(piece)) for pieces in cuts for piece in pieces) <= size
    assert [squeezed("".join(pieces)) for pieces in cuts] == [squeezed("".join(text)) for text in WORLD]


@settings(max_examples=60)
@given(st.lists(st.text("ab .!?天。\n", max_size=60), max_size=4), st.integers(3, 30))
def test_any_text_fits_and_none_is_lost(paragraphs, size):
    tokenizer = trained("bpe")
    pieces = by_tokens(tokenizer, size)([paragraphs])[0]
    assert squeezed("".join(pieces)) == squeezed("".join(paragraphs))
    assert all(len(tokenizer.encode(piece)) <= size for piece in pieces)


def test_passages_are_whole_sentences_as_many_as_fit():
    tokenizer = trained("wordpiece")
    sentences = ["the lazy dogs were quick.", "yes, they were!", "the foxes were jumping over the dogs."]
    lengths = [len(tokenizer.encode(s)) for s in sentences]
    text = [" ".join(sentences)]
    assert by_tokens(tokenizer, sum(lengths))([text]) == [[" ".join(sentences)]]
    assert by_tokens(tokenizer, sum(lengths) - 1)([text]) == [[" ".join(sentences[:2]), sentences[2]]]


def test_a_sentence_longer_than_a_passage_is_cut_at_its_size():
    tokenizer = trained("wordpiece")
    words = ["the", "quick", "brown", "foxes", "were", "jumping", "over", "dogs"]
    pieces = by_tokens(tokenizer, 3)([[" ".join(words)]])[0]
    assert pieces == ["the quick brown", "foxes were jumping", "over dogs"]


def test_sentences_without_spaces_between_them_stay_so():
    pieces = by_tokens(trained("wordpiece"), 100)([[CHINESE, JAPANESE]])[0]
    assert pieces == [CHINESE + " " + JAPANESE]
