"""Questions made from a corpus: their kinds, what is held out of training, and what they are asked against."""

import json

import pytest

from liebig.base.records import Passage
from liebig.base.workspace import stage
from liebig.builder import questions
from liebig.builder.questions import QuestionsConfig, RestConfig, write_questions, write_rest
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where

NOUNS = [
    "barley",
    "steam",
    "comet",
    "violin",
    "glacier",
    "harbour",
    "pepper",
    "mirror",
    "falcon",
    "copper",
    "candle",
]


def write_collection(path, documents=30, parts=3):
    """Documents of several passages, with titles, and words that several passages share."""
    with CollectionWriter(path) as writer:
        for d in range(documents):
            for n in range(parts):
                first, second = NOUNS[d % len(NOUNS)], NOUNS[(d + n + 1) % len(NOUNS)]
                text = (
                    f"The {first} of house {d} part {n} was sold to the owner of a {second} mill. "
                    f"Nobody in village {d} has ever seen the {second} that lies behind the {first} number {n}."
                )
                passage = Passage(f"d{d}-{n}", text, f"History of {first} {d}", f"d{d}")
                writer.add(Item(passage, Where("test")))
    return path


@pytest.fixture
def made(tmp_path):
    source = write_collection(tmp_path / "collection")
    for name, config, write in (
        ("questions", QuestionsConfig(collection=source), write_questions),
        ("rest", RestConfig(collection=source, questions=tmp_path / "questions"), write_rest),
    ):
        with stage(tmp_path / name, kind=name, recipe={}, inputs={}, part_of="build") as folder:
            write(config, folder)
    return tmp_path


def test_all_kinds_are_asked(made):
    kinds = questions.kinds(questions.read(made / "questions"))
    assert set(kinds) == {"title", "sentence", "claim", "keywords"}
    assert kinds["title"] == 15


def test_nothing_that_is_asked_about_is_trained_on(made):
    asked = {id.partition("-")[0] for q in questions.read(made / "questions") for id in q.passages}
    trained = {passage.doc for passage in Collection(made / "rest").passages()}
    assert len(trained) == 15
    assert not asked & trained


def test_no_title_is_both_asked_and_trained_on(made, monkeypatch, tmp_path):
    monkeypatch.setattr(questions, "LEAST", 4)
    with stage(tmp_path / "again", kind="questions", recipe={}, inputs={}, part_of="build") as folder:
        write_questions(QuestionsConfig(collection=made / "collection"), folder)
    asked = {q.text for q in questions.read(tmp_path / "again")}
    rest = {json.loads(line)["text"] for line in (tmp_path / "again/pairs/queries.jsonl").open()}
    assert len(rest) == 15
    assert not asked & rest


def test_sentences_and_claims_are_taken_out_of_their_passages(made):
    pool = Collection(made / "questions")
    for question in questions.read(made / "questions"):
        (text,) = {pool.passage(id).text for id in question.passages[:1]}
        if question.kind in ("sentence", "claim"):
            assert question.cut
            assert question.cut not in text
        assert pool.passage(question.passages[0]).title == ""


def test_a_claim_has_fewer_words_in_another_order(made):
    claims = [q for q in questions.read(made / "questions") if q.kind == "claim"]
    assert claims
    for claim in claims:
        words, kept = claim.cut.split(), claim.text.split()
        assert len(kept) == len(words) - len(words) // 3
        assert " ".join(kept) not in claim.cut


def test_keywords_are_words_of_the_passage_that_others_have_too(made):
    asked = [q for q in questions.read(made / "questions") if q.kind == "keywords"]
    collection = Collection(made / "collection")
    for question in asked:
        words = question.text.split()
        text = collection.passage(question.passages[0]).text.casefold()
        assert questions.KEYWORDS[0] <= len(words) <= questions.KEYWORDS[1]
        assert all(word in text for word in words)


def test_of_a_single_document_passages_are_held_out(tmp_path):
    collection = Collection(write_collection(tmp_path / "book", documents=1, parts=40))
    held = questions.hold_out(collection, lambda _: True, 0)
    assert len(held) == 20
    assert all(id.startswith("d0-") for id in held)


@pytest.mark.parametrize(
    ("passages", "size"), [(10, 1000), (1500, 1000), (6000, 2000), (12_000, 3000), (10**6, 3000)]
)
def test_the_pool_grows_with_the_corpus(passages, size):
    assert questions.pool_size(passages, 3000) == size
