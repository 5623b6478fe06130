"""Builds on a corpus of a few documents, and whether their check agrees with judged questions."""

import json
import lzma
import runpy
import sys
from pathlib import Path

import pytest

from liebig.builder.judge import Difference

SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"
GUARD = SCRIPTS / "guard.py"
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
        with lzma.open(folder / f"{name}.jsonl.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")
    (folder / "qrels" / "few.tsv").write_text("\n".join(judged[:11]) + "\n")
    return folder.parent


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_builds_and_judged_questions_are_compared(data, small_model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"

    def run(script, *words):
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, words)])
        runpy.run_path(str(script), run_name="__main__")

    options = ["--split", "test", "few", "--minutes", 0, "--model", small_model]
    run(SCRIPTS / "builds.py", data, out, "--sets", "tiny", *options)
    row, few = map(json.loads, (out / "builds.jsonl").read_text().splitlines())
    assert [(one["split"], one["questions"]) for one in (row, few)] == [("test", 40), ("few", 10)]
    assert sorted(path.name for path in out.glob("*.npz")) == [
        "tiny-plain-few-0.npz",
        "tiny-plain-test-0.npz",
    ]
    compared = {one["system"]: one for one in row["compared"]}
    hybrid = "BM25 + encoder before training"
    assert set(compared) == {"BM25", "encoder before training", hybrid, f"{hybrid} and its sentences"}
    assert row["baseline"] == pytest.approx(row["systems"][f"{hybrid}, plain"], abs=1e-4)  # rounded
    chosen = row["systems"][row["chosen"]]
    assert row["gain"] == pytest.approx(
        chosen - row["baseline"], abs=1e-3
    )  # scores tie where texts are alike
    run(GUARD, out / "builds.jsonl")
    assert "The guard agrees with judged questions" in capsys.readouterr().out


def test_the_stored_builds_have_the_figures_of_the_readme(monkeypatch, capsys):
    words = [
        GUARD,
        SCRIPTS / "builds.jsonl.xz",
        "--recipes",
        "default",
        "teacher and start",
        "--split",
        "test",
    ]
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--present", "--without", "after training"])
    runpy.run_path(str(GUARD), run_name="__main__")
    told = capsys.readouterr().out
    assert "in 88% of the 196 comparisons" in told
    assert "in 95% of the 249 pairs" in told


def test_labels_are_never_asked_and_come_from_the_first_split_where_there_is_no_other(data):
    script = runpy.run_path(str(SCRIPTS / "builds.py"))
    folder = data / "tiny"
    every = {split: script["judged"](folder, split) for split in ("few", "test")}
    labels, asked = script["labels_of"](folder, every, 4, 0)
    texts = {question.text for question in labels}
    assert len(texts) == 4
    assert texts <= {question.text for question in every["few"]}
    assert {split: len(questions) for split, questions in asked.items()} == {"few": 6, "test": 36}
    assert texts.isdisjoint(question.text for questions in asked.values() for question in questions)


@pytest.mark.parametrize(
    ("taken", "true", "agrees", "counts", "cost"),
    [(True, 0.05, True, True, 0.0), (True, -0.05, False, True, 0.05), (False, 0.02, False, True, 0.02),
     (False, -0.02, True, True, 0.0), (True, 0.005, True, False, 0.0)],
)  # fmt: skip
def test_a_wrong_choice_costs_what_it_loses(taken, true, agrees, counts, cost):
    comparison = runpy.run_path(str(GUARD))["Comparison"]
    one = comparison("c", "s", taken, Difference(0.0, 0.0, 0.0, 1.0), Difference(true, 0.0, 0.0, 1.0))
    assert (one.agrees, one.counts, one.cost) == (agrees, counts, cost)


@pytest.mark.parametrize(
    ("system", "predicted", "before", "now"),
    [("BM25 + encoder after training and its sentences", Difference(0.0, -0.01, 0.01, 0.9), True, False),
     ("BM25 + encoder after training", Difference(0.02, 0.01, 0.03, 0.001), False, True),
     ("BM25 + encoder trained on your questions and its sentences", Difference(-0.01, -0.03, 0.01, 0.4), False, True),
     ("BM25 + encoder trained on your questions and its sentences", Difference(-0.02, -0.03, -0.01, 0.01), True, False),
     ("BM25", Difference(0.02, 0.01, 0.03, 0.001), True, True)],
)  # fmt: skip
def test_older_builds_are_decided_by_the_rules_of_today(system, predicted, before, now):
    comparison = runpy.run_path(str(GUARD))["Comparison"]
    one = comparison("c", system, before, predicted, Difference(0.0, 0.0, 0.0, 1.0))
    assert one.by_present_rules.taken == now
