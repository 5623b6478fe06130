"""Values of hybrids with larger encoders, and texts that a student learns from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig.base.records import Passage
from liebig.builder.pseudo_queries import OPENERS
from liebig.builder.questions import OWN, Question
from tests.worlds.models import small_encoder

WORDS = "boundary layers separate from heated plates where shock waves move along cold walls"
SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("builds", "corpus", "teachers", "students"):
        monkeypatch.delitem(sys.modules, name, raising=False)


class Found:
    """An index that has passage 1 first, whatever is asked."""

    def search(self, queries):
        numbers, scores = np.array([[1, 2, 3]], np.int32), np.array([[0.9, 0.4, 0.0]], np.float32)
        return numbers.repeat(len(queries), axis=0), scores.repeat(len(queries), axis=0)


@pytest.fixture
def kept(tmp_path):
    """The values of two questions about passage 1: BM25 has it second, vectors have it first."""
    from teachers import JudgedSet

    from liebig.builder.judge import Judge

    one = JudgedSet.__new__(JudgedSet)
    one.name, one.out = "set", tmp_path
    asked = [Question("what?", ("1",), OWN), Question("which?", ("1",), OWN)]
    one.judges = {split: Judge(asked) for split in ("test", "made")}
    one.words = {split: [[("2", 2.0), ("1", 1.5)]] * 2 for split in one.judges}
    vectors = np.zeros((2, 4), np.float32)
    one.keep("minilm", (Found(), Found()), {"test": vectors, "made": vectors})
    return tmp_path


def test_every_system_of_a_set_has_its_values(kept):
    from teachers import read_values

    values = read_values(kept, "set")
    assert all(name.startswith("test: ") for name in values), "made-up questions give the unit and no values"
    assert values["test: minilm"].tolist() == [1, 1]
    assert values["test: BM25"].tolist() == pytest.approx([1 / np.log2(3)] * 2)
    assert values["test: BM25 + minilm and its sentences"].tolist() == [1, 1]


def test_the_table_is_in_points_over_the_plain_hybrid(kept, capsys):
    from teachers import table

    table(kept, ["set"], "dev")  # there is none: the test questions
    rows = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| BM25 + minilm, plain")
    ]
    assert rows
    assert "(+0.00 ± 0.00)" in rows[0]


def test_a_document_without_words_stays_relevant_and_is_never_found():
    from teachers import ABSENT, _numbered

    question = _numbered(Question("what?", ("a", "empty"), OWN), {"a": 7})
    assert question.passages == ("7", str(ABSENT))


def test_texts_of_a_student_are_of_three_kinds():
    import students

    words = ["boundary layers separate from a heated plate", "shock waves move along a cold flat plate"]
    passages = [
        Passage(str(i), f"{text}. {text} again and again.", f"plates {i}", "") for i, text in enumerate(words)
    ]
    texts = students.short_texts(passages, 50)
    assert set(texts) == set(students.ALL)
    assert not set(texts[students.SPANS]) & set(texts[students.PRESENT])
    openers = tuple(OPENERS["english"])
    assert all(text.lower().startswith(openers) for text in texts[students.QUESTIONS])
    assert texts == students.short_texts(passages, 50)


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_a_student_comes_nearer_to_its_teacher(start, small_model, tmp_path):
    import students

    words = WORDS.split()
    texts = [" ".join(words[i : i + n]) for n in (2, 4, 8) for i in range(len(words) - n)]
    school = students.School(small_model, small_encoder(tmp_path / "teacher", layers=2), "cpu", None, 60)
    lessons = school.texts(texts)
    drawn = torch.cat([batch for batch, _ in zip(lessons.batches(6), range(len(texts) // 6))]).tolist()
    assert len(drawn) == len(set(drawn)) == len(texts) // 6 * 6
    model = school.student(lessons)
    torch.nn.init.normal_(next(model.tail[0].parameters()), generator=torch.Generator().manual_seed(0))

    def cosine():
        return float((torch.from_numpy(model.encode_texts(texts)) * lessons.targets).sum(1).mean())

    before = cosine()
    ranked = lessons.targets, lessons.own
    school.train(model, students.Arm((), 1e-2, 40, batch=8, start=start), [lessons], ranked)
    assert cosine() > before + 0.2
    found = torch.from_numpy(model.encode_texts(texts)) @ lessons.targets.T

    def divergence(share):
        aim = (1 - share) * lessons.targets @ lessons.targets.T + share * lessons.own @ lessons.own.T
        logs = [(one / 0.05).log_softmax(1) for one in (found, aim)]
        return float(torch.nn.functional.kl_div(*logs, log_target=True, reduction="batchmean"))

    assert divergence(start) < divergence(0.5 - start)
