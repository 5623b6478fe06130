"""Values of hybrids with larger encoders."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.builder.questions import OWN, Question

SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("builds", "teachers"):
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

    from liebig.builder.judge import SystemJudge

    one = JudgedSet.__new__(JudgedSet)
    one.name, one.out = "set", tmp_path
    asked = [Question("what?", ("1",), OWN), Question("which?", ("1",), OWN)]
    one.judges = {split: SystemJudge(asked) for split in ("test", "made")}
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
