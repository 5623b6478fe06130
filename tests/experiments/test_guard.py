"""The experiment that holds the guard of a build to judged questions, on a corpus of a few documents."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from liebig.builder.check import Difference

SCRIPT = Path(__file__).parents[2] / "experiments" / "guard" / "run.py"
TOPICS = ["barley", "steam", "comet", "violin", "glacier", "harbour", "pepper", "mirror", "falcon", "copper"]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data" / "tiny"
    (folder / "qrels").mkdir(parents=True)
    passages, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for d in range(40):
        topic = TOPICS[d % len(TOPICS)]
        text = f"The {topic} of village {d} came from the north. Every house in it keeps a {topic} and two lamps."
        passages.append({"_id": f"d{d}", "title": f"History of {topic} {d}", "text": text})
        queries.append({"_id": f"q{d}", "text": f"which village has the {topic} {d}"})
        judged.append(f"q{d}\td{d}\t1")
    for name, rows in (("corpus", passages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")
    return folder


def test_guard_and_judged_questions_are_compared(data, small_model, tmp_path, monkeypatch):
    shutil.copytree(small_model, tmp_path / "models" / "tiny" / "same")
    out = tmp_path / "out"
    command = [str(SCRIPT), f"{data}:test", "--models", str(tmp_path / "models"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, "--start", str(small_model)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    result = json.loads((out / "guard.json").read_text())
    rows = {row["system"]: row for row in result["comparisons"]}
    assert set(rows) == {"BM25", "encoder before training", "same", "BM25 + same"}
    # The same encoder under another name differs from the start in nothing, and is not taken.
    assert rows["BM25 + same"]["true"]["mean"] == rows["BM25 + same"]["predicted"]["mean"] == 0
    assert not rows["BM25 + same"]["taken"]
    assert len(result["values"]["tiny"]["BM25"]["judged"]) == 40
    assert result["chosen"][0]["baseline"] <= result["chosen"][0]["best_value"]
    assert "The guard agrees with judged questions" in (out / "guard.md").read_text()
    assert "<svg" in (out / "guard.svg").read_text()


@pytest.mark.parametrize(
    ("taken", "true", "agrees", "counts", "cost"),
    [(True, 0.05, True, True, 0.0), (True, -0.05, False, True, 0.05), (False, 0.02, False, True, 0.02),
     (False, -0.02, True, True, 0.0), (True, 0.005, True, False, 0.0)],
)  # fmt: skip
def test_a_wrong_choice_costs_what_it_loses(taken, true, agrees, counts, cost):
    comparison = runpy.run_path(str(SCRIPT))["Comparison"]
    one = comparison("c", "s", taken, Difference(0.0, 0.0, 0.0, 1.0), Difference(true, 0.0, 0.0, 1.0))
    assert (one.agrees, one.counts, one.cost) == (agrees, counts, cost)
