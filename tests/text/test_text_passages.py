"""Passages: never past their size, never across a section, nothing lost, and ids that stay."""

import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.errors import DataError
from liebig.base.records import Document, Section
from liebig.text.passages import Text, by_tokens, cut_documents
from tests.worlds.texts import ARABIC, CHINESE, ENGLISH, HINDI, JAPANESE, RUSSIAN, every, trained

KINDS = ("wordpiece", "bpe", "sentencepiece")
WORLD = Document(
    "w",
    "Worlds",
    (
        Section("", (ENGLISH, ENGLISH + " " + ENGLISH)),
        Section("Asia", (CHINESE, JAPANESE, HINDI)),
        Section("Empty", ()),
        Section("Others", (ARABIC, RUSSIAN)),
    ),
)


def squeezed(text):
    return "".join(text.split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 12, 50])
@pytest.mark.parametrize("prefix", ["none", "both"])
def test_passages_have_at_most_the_tokens_asked_for(kind, size, prefix):
    tokenizer = every()[kind]
    if prefix == "both":
        size += 30
    passages = list(cut_documents([WORLD], by_tokens(tokenizer, size), prefix))
    assert max(len(tokenizer.encode(p.text)) for p in passages) <= size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 12, 50])
def test_passages_hold_every_character_in_order(kind, size):
    passages = cut_documents([WORLD], by_tokens(every()[kind], size))
    assert squeezed("".join(p.text for p in passages)) == squeezed(WORLD.text)


@settings(max_examples=60)
@given(st.lists(st.text("ab .!?天。\n", max_size=60), max_size=4), st.integers(3, 30))
def test_any_text_fits_and_none_is_lost(paragraphs, size):
    tokenizer = trained("bpe")
    pieces = by_tokens(tokenizer, size)([Text(tuple(paragraphs))])[0]
    assert squeezed("".join(pieces)) == squeezed("".join(paragraphs))
    assert all(len(tokenizer.encode(piece)) <= size for piece in pieces)


def test_passages_are_whole_sentences_as_many_as_fit():
    tokenizer = trained("wordpiece")
    sentences = ["the lazy dogs were quick.", "yes, they were!", "the foxes were jumping over the dogs."]
    lengths = [len(tokenizer.encode(s)) for s in sentences]
    text = Text((" ".join(sentences),))
    assert by_tokens(tokenizer, sum(lengths))([text]) == [[" ".join(sentences)]]
    assert by_tokens(tokenizer, sum(lengths) - 1)([text]) == [[" ".join(sentences[:2]), sentences[2]]]


def test_a_sentence_longer_than_a_passage_is_cut_at_its_size():
    tokenizer = trained("wordpiece")
    words = ["the", "quick", "brown", "foxes", "were", "jumping", "over", "dogs"]
    pieces = by_tokens(tokenizer, 3)([Text((" ".join(words),))])[0]
    assert pieces == ["the quick brown", "foxes were jumping", "over dogs"]


def test_sentences_without_spaces_between_them_stay_so():
    pieces = by_tokens(trained("wordpiece"), 100)([Text((CHINESE, JAPANESE))])[0]
    assert pieces == [CHINESE + " " + JAPANESE]


def test_overlapping_passages_repeat_the_last_sentence():
    tokenizer = trained("wordpiece")
    text = Text(("the dogs. the foxes. they were. yes.",))
    pieces = by_tokens(tokenizer, 6, overlap=3)([text])[0]
    assert pieces == ["the dogs. the foxes.", "the foxes. they were.", "they were. yes."]


def by_words(size):
    """A cutter that needs no tokenizer: pieces of `size` words."""

    def cut(texts):
        words = [" ".join(text.paragraphs).split() for text in texts]
        return [[" ".join(row[i : i + size]) for i in range(0, len(row), size)] for row in words]

    return cut


def test_ids_number_the_passages_of_a_document_whatever_is_beside_it():
    cutter = by_words(5)
    other = Document("o", "", (Section("", ("a b c d e f g",)),))
    alone = list(cut_documents([WORLD], cutter))
    together = list(cut_documents([other] * 70 + [WORLD], cutter))
    assert [p.id for p in alone] == [f"w-{i}" for i in range(len(alone))]
    assert together[-len(alone) :] == alone
    assert {(p.title, p.doc) for p in alone} == {("Worlds", "w")}


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("none", ""), ("title", "Worlds: "), ("heading", "Asia: "), ("both", "Worlds: Asia: ")],
)
def test_a_prefix_stands_in_front_of_every_passage_of_its_section(prefix, expected):
    passages = [p for p in cut_documents([WORLD], by_words(2), prefix) if CHINESE in p.text]
    assert passages
    assert all(p.text.startswith(expected + CHINESE) for p in passages)


def test_a_section_without_a_heading_has_no_empty_prefix():
    first = next(iter(cut_documents([WORLD], by_words(3), "heading")))
    assert first.text == "The quick brown"


def test_sizes_that_make_no_sense_are_errors():
    tokenizer = trained("wordpiece")
    with pytest.raises(DataError, match="cannot overlap"):
        by_tokens(tokenizer, 10, overlap=10)
    with pytest.raises(DataError, match="no room after the prefix"):
        list(cut_documents([WORLD], by_tokens(tokenizer, 3), "both"))
