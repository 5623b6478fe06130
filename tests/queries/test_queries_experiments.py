"""What the comparison of spans and queries rests on: pairs, tasks as files, processes that fail, the table."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.data.batch_row import Frame
from liebig.data.collection import Collection
from liebig.pretrain.pairs import read_pairs
from liebig.text.tokenizer import Tokenizer
from liebig.train.labelled.examples import Ragged
from liebig.train.labelled.texts import Shape, Texts

HOME = Path(__file__).parents[2] / "experiments" / "queries"
OURS = ("arms", "tasks", "pool", "table", "comparison")


@pytest.fixture
def home(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    yield
    for name in OURS:
        sys.modules.pop(name, None)


def write_generated(folder: Path) -> None:
    """Three passages: with two queries, with none, with one."""
    texts = {"a": "rivers run to the sea", "b": "nobody asks", "c": "stones lie still"}
    queries = {"a": ["where do rivers run?", "what runs to the sea?"], "b": [], "c": ["do stones move?"]}
    (folder / "judgements").mkdir()
    rows = [{"id": i, "title": f"On {i}", "text": text, "doc": "d"} for i, text in texts.items()]
    named = [(f"{p}-{n}", p, text) for p, found in queries.items() for n, text in enumerate(found)]
    generated = [{"passage": p, "queries": found} for p, found in queries.items()]
    asked = [{"id": i, "text": text, "answers": []} for i, _, text in named]
    for name, lines in (("passages", rows), ("generated", generated), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "judgements" / "generated.tsv").write_text("".join(f"{i}\t{p}\t1\n" for i, p, _ in named))


@pytest.mark.parametrize("most", [None, 1])
def test_the_comparison_draws_the_pairs_that_the_recipe_would(home, tmp_path, most):
    import arms

    write_generated(tmp_path)
    tokenizer = Tokenizer.from_folder(encoders.folder())
    usual = read_pairs(Collection(tmp_path), "generated", tokenizer, 126, anchor="passage", most=most)
    made = arms.read_pairs(tmp_path / "passages.jsonl", tmp_path / "generated.jsonl", tokenizer)
    arms.save_pairs(made, tmp_path / "pairs.npz")
    kept = arms.load_pairs(tmp_path / "pairs.npz", Frame.of(tokenizer))
    kept = arms.first_only(kept) if most == 1 else kept
    assert len(kept) == len(usual) == 2
    for epoch in range(4):
        one, two = (source.draw(np.arange(2), epoch, 5) for source in (usual, kept))
        assert np.array_equal(one.tokens, two.tokens)
        assert np.array_equal(one.offsets, two.offsets)


def test_a_task_is_the_same_from_its_file_and_knows_the_right_passages(home, tmp_path):
    import tasks

    shape = Shape(Tokenizer.from_folder(encoders.folder()), 16)
    texts = Texts.of(["one", "two two", "three"], shape)
    asked = tasks.Questions(texts, Ragged.of([[0], [1, 2], [2]]))
    made = tasks.Task(texts, np.arange(3), asked, Ragged.of([[1], [0], [0, 1]]), {"set": asked})
    tasks.save(made, tmp_path / "task.npz")
    kept = tasks.load(tmp_path / "task.npz")
    assert kept.passages.sequences(range(3)) == made.passages.sequences(range(3))
    assert kept.examples().negatives[2].tolist() == [0, 1]
    vectors = np.eye(3, dtype=np.float32)
    values = kept.values({"": 2 * vectors, "set": vectors}, torch.device("cpu"), cosine=True)["set"]
    assert values[[0, 2]].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert values[1, 1:].tolist() == [1, 1]


def test_a_job_that_fails_and_a_process_that_dies_cost_nothing_else(home, tmp_path):
    import pool

    (tmp_path / "worker.py").write_text(
        "import os, pool\n"
        "def does(job):\n"
        "    print('noise')\n"
        "    if job == 'die': os._exit(3)\n"
        "    return str(1 // int(job))\n"
        "pool.work(does)\n"
    )
    command = ["env", f"PYTHONPATH={HOME}", sys.executable, str(tmp_path / "worker.py")]
    queue = pool.run(command, ["1", "0", "die", "1"], 1, tmp_path, minutes=5)
    assert (queue.jobs, queue.failed) == ([], ["0", "die"])
    assert pool.run(command, ["1"], 1, tmp_path, minutes=0).jobs == ["1"]


def test_the_table_holds_arms_against_the_spans_of_their_objective(home, tmp_path):
    import table

    (tmp_path / "results").mkdir()
    for arm, better in (("cocondenser-spans", 0), ("cocondenser-queries", 1000), ("start", 0)):
        for seed in (1, 2):
            path = tmp_path / "results" / f"{arm}-{seed}.npz"
            np.savez(path, **{"tuned|squad": np.full((30, 3), 5000 + better, np.uint16)})
            path.with_suffix(".json").write_text("{}")
    lines = {line["arm"]: line for line in table.lines(table.read(tmp_path))}
    assert lines["cocondenser-queries"]["difference"]["mean"] == pytest.approx(0.1)
    assert lines["cocondenser-queries"]["p_holm"] < 0.01
    assert lines["cocondenser-queries"]["runs"] == 2
    assert "p" not in lines["start"]
