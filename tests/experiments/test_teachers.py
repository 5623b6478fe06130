"""Hybrids from kept lists of hits, and texts that a student learns from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.base.records import Passage
from liebig.builder.questions import OWN, Question

SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("builds", "corpus", "teachers", "students"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def kept(tmp_path):
    """Two questions about passage 1: BM25 has it second, vectors have it first."""
    from teachers import STEPS

    asked, lists = {}, {}
    for split in ("test", "made"):
        asked |= {
            f"{split}-kinds": np.array([OWN, OWN]),
            f"{split}-relevant": np.array([1, 1]), f"{split}-relevant-of": np.array([0, 1]),
            f"{split}-bm25-ids": np.array([[2, 1, -1]] * 2, np.int16),
            f"{split}-bm25-scores": np.array([[2.0, 1.5, 0.0]] * 2, np.float32),
        }  # fmt: skip
        for part in ("dense", "sentences"):
            lists[f"{split}-{part}-ids"] = np.array([[1, 2, 3]] * 2, np.int16)
            lists[f"{split}-{part}-scores"] = np.array([[0.9 * STEPS, 0.4 * STEPS, 0]] * 2).astype(np.int16)
    np.savez(tmp_path / "set-asked.npz", **asked)
    np.savez(tmp_path / "set-lists-minilm.npz", **lists)
    return tmp_path


def test_every_system_of_the_kept_lists_has_its_values(kept):
    from teachers import Kept

    values = Kept(kept, "set", "test").values
    assert values["minilm"].tolist() == [1, 1]
    assert values["BM25"].tolist() == pytest.approx([1 / np.log2(3)] * 2)
    assert values["BM25 + minilm and its sentences"].tolist() == [1, 1]


def test_the_table_is_in_points_over_the_plain_hybrid(kept, capsys):
    from teachers import table

    table(kept, ["set"], "dev")  # there is none: the test questions
    rows = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| BM25 + minilm, plain")
    ]
    assert rows
    assert "(+0.00 ± 0.00)" in rows[0]
    assert (kept / "set-values-dev.npz").is_file()


def test_a_document_without_words_stays_relevant_and_is_never_found():
    from teachers import ABSENT, _numbered

    question = _numbered(Question("what?", ("a", "empty"), OWN), {"a": 7})
    assert question.passages == ("7", str(ABSENT))


def test_texts_of_a_student_are_of_three_kinds(monkeypatch):
    import students

    monkeypatch.setattr(students, "MORE", 50)
    words = ["boundary layers separate from a heated plate", "shock waves move along a cold flat plate"]
    passages = [
        Passage(str(i), f"{text}. {text} again and again.", f"plates {i}", "") for i, text in enumerate(words)
    ]
    texts = students.short_texts(passages)
    assert set(texts) == set(students.ALL)
    assert not set(texts[students.SPANS]) & set(texts[students.PRESENT])
    openers = tuple(students.OPENERS)
    assert all(text.lower().startswith(openers) for text in texts[students.QUESTIONS])
    assert texts == students.short_texts(passages)
