"""`liebig texts`: what is made of a document, the same for any number of processes, whole after a break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.base.records import Document, Section
from liebig.base.rng import key
from liebig.collection import Collection
from liebig.stages import STAGES, texts as stage
from liebig.stages.texts import TextsConfig, texts_of

WORDS = [f"w{i}" for i in range(400)]
DOCUMENT = Document("d", "Title", (Section("Heading", (" ".join(WORDS) + ".",)),))


def config(**changes) -> TextsConfig:
    return TextsConfig(collection=Path("."), **changes)


def made(**changes) -> list[str]:
    return list(texts_of(DOCUMENT, key(1), config(**changes)))


PLAIN = {"headings": False, "sentences": 0, "spans": 0, "long": 0, "titled": 0}


def test_passages_hold_every_word_once_and_have_the_lengths_asked_for():
    found = [text.split() for text in made(**PLAIN)]
    assert [word for text in found for word in text] == [*WORDS[:-1], "w399."]
    assert all(30 <= len(text) <= 130 for text in found[:-1])
    assert len({len(text) for text in found[:-1]}) > 1


def test_long_passages_come_on_top_and_titles_before_the_share_asked_for():
    longer = made(**PLAIN | {"long": 1})
    assert [len(text.split()) for text in longer[-2:]] == [200, 200]
    assert all(text.startswith("Title w") for text in made(**PLAIN | {"titled": 1}))


def test_spans_are_neighbouring_words_and_headings_become_questions():
    whole = " ".join([*WORDS[:-1], "w399."])
    (*_, span) = made(**PLAIN | {"spans": 1, "span_words": 5})
    assert span in whole
    assert 1 <= len(span.split()) <= 5
    named = made(**PLAIN | {"headings": True})[:3]
    assert named[0] == "Title"
    assert "Title" in named[1]
    assert "Heading" in named[2]


@pytest.fixture
def collection(tmp_path) -> Path:
    folder = tmp_path / "collection"
    folder.mkdir()
    rows = [
        {
            "id": str(i),
            "title": f"T{i}",
            "sections": [{"heading": "H", "paragraphs": [f"One {i} is. Two {i} too!"]}],
        }
        for i in range(30)
    ]
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"id": f"q{i}", "text": f"what {i}?"} for i in range(4)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "splits").mkdir()
    (folder / "splits" / "train.txt").write_text("q1\nq3\n")
    return folder


def run(collection: Path, out: Path, **changes) -> bytes:
    made = TextsConfig(collection=collection, questions=(collection,), repeat=2, **changes)
    pipeline.run_stage(STAGES["texts"], made, out)
    return (out / "passages.jsonl").read_bytes()


def test_questions_of_the_split_come_as_often_as_asked_and_ids_are_unique(collection, tmp_path):
    run(collection, tmp_path / "out")
    passages = list(Collection(tmp_path / "out").passages())
    assert [p.text for p in passages[-4:]] == ["what 1?", "what 3?"] * 2
    assert len({p.id for p in passages}) == len(passages) > 60


def test_any_number_of_processes_and_a_broken_run_give_the_same_bytes(
    collection, tmp_path, monkeypatch, forked_helpers
):
    monkeypatch.setattr(stage, "PIECE", 300)
    whole = run(collection, tmp_path / "one", processes=1)
    assert run(collection, tmp_path / "two", processes=2) == whole
    real, calls = stage.TextsTask.make, []

    def broken(task):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(stage.TextsTask, "make", broken)
    with pytest.raises(KeyboardInterrupt):
        run(collection, tmp_path / "parts", processes=1)
    monkeypatch.setattr(stage.TextsTask, "make", real)
    assert run(collection, tmp_path / "parts", processes=1) == whole
