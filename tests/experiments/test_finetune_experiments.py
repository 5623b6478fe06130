"""What the experiments of fine-tuning rest on: answers word for word, prepared sets, measures, jobs, the table."""

import json
import lzma
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig.base.records import Passage
from liebig.methods.abs.hardness import VectorSimilarity
from liebig.methods.labelled import Examples
from liebig.ragged import Ragged

HOME = Path(__file__).parents[2] / "experiments" / "finetuning"


@pytest.fixture
def sets(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import sets

    yield sets
    for name in (
        "sets",
        "prepared",
        "prepare",
        "methods",
        "searching",
        "stopwatch",
        "pool",
        "results",
        "table",
        "teacher",
        "jobs",
        "run",
        "baselines",
    ):
        sys.modules.pop(name, None)


def test_answers_are_found_word_for_word(sets):
    passages = [
        Passage("a", "Built in 1889, the Eiffel Tower."),
        Passage("b", "An Eiffelesque tower of 18 89 steps"),
        Passage("c", "THE EIFFEL TOWER again"),
    ]
    found = sets.answering([["eiffel tower"], ["1889", "steps"], ["nothing here"], ["."]], passages)
    assert found == [[0, 2], [0, 1], [], [0]]


def test_passages_have_a_hundred_words_and_short_rests_are_dropped(sets, tmp_path):
    article = {
        "title": "T",
        "sections": [{"h": "", "p": ["word " * 130, "word " * 80]}, {"h": "", "p": ["few"]}],
    }
    with lzma.open(tmp_path / "articles-0.jsonl.xz", "wt") as file:
        file.write(json.dumps(article) + "\n")
    assert [len(text.split()) for _, text in sets.wiki_passages(tmp_path)] == [100, 100]


def test_the_table_is_of_the_settings_that_dev_chose(sets, tmp_path, capsys):
    import table as driver
    from methods import Result, Settings

    random = np.random.default_rng(0)
    for method, gain in (("random", 0.0), ("mined", 0.2)):
        for seed in (1, 2):
            for lr, dev in ((1e-4, 0.1), (1e-3, 0.4)):
                values = np.clip(random.random((40, 3)) * 0.5 + gain + lr * 100, 0, 1)
                result = Result(dev, {"scifact": values}, [dev])
                path = driver.result_path(tmp_path, "scifact", method, Settings(lr=lr), seed)
                driver.store(path, "scifact", method, Settings(lr=lr), seed, result, 1.0)
    driver.write(tmp_path, 2)
    lines = json.loads((tmp_path / "results.json").read_text())
    assert [(line["method"], line["settings"]["lr"], line["runs"]) for line in lines] == [
        ("random", 1e-3, 2),
        ("mined", 1e-3, 2),
    ]
    assert lines[1]["difference"]["mean"] == pytest.approx(0.2, abs=0.06)
    assert lines[1]["p_holm"] < 0.01
    assert "| scifact | scifact (40) | mined | 2 |" in capsys.readouterr().out


def test_questions_of_one_document_count_as_one(sets):
    import results as driver

    random = np.random.default_rng(1)
    a, b = random.random((3, 12)), random.random((3, 12))
    copies, documents = np.tile(np.arange(12), 50), np.tile(np.arange(12), 50)
    alone, repeated = (
        driver.against(a, b, np.arange(12)),
        driver.against(a[:, copies], b[:, copies], documents),
    )
    assert repeated["p"] == alone["p"]
    assert repeated["documents"] == 12
    assert list(repeated["difference"].values()) == pytest.approx(list(alone["difference"].values()))


def test_an_interval_of_differences_counts_the_luck_of_seeds(sets):
    import results as driver

    a, b = np.repeat([[0.1], [0.5], [0.9]], 200, axis=1), np.full((3, 200), 0.5)
    found = driver.over_documents(a, b, np.arange(200))
    assert found.mean == pytest.approx(0)
    assert found.low < -0.2
    assert found.high > 0.2


def test_the_table_tells_questions_whose_passages_were_trained_on_from_others(sets, tmp_path, capsys):
    import table as driver
    from methods import Result, Settings

    shown = np.arange(20) < 5
    values = np.repeat(np.where(shown, 0.9, 0.3)[:, None], 3, axis=1)
    path = driver.result_path(tmp_path, "scifact", "random", Settings(), 1)
    driver.store(path, "scifact", "random", Settings(), 1, Result(0.5, {"scifact": values}, [0.5]), 1.0)
    known = {"bm25": np.full((20, 3), 4_000, np.uint16), "documents": np.arange(20) // 2, "seen": shown}
    np.savez(tmp_path / "baselines.npz", **{f"scifact|{key}|scifact": v for key, v in known.items()})
    driver.write(tmp_path, 1)
    bm25, tuned = json.loads((tmp_path / "results.json").read_text())
    assert bm25["method"] == "bm25"
    assert [bm25["means"][0], tuned["means"][0]] == pytest.approx([0.4, 0.45])
    assert tuned["seen"] == {"questions": 5, "seen": pytest.approx(0.9), "new": pytest.approx(0.3)}
    assert "| scifact | scifact | random | 5 | 0.9000 | 15 | 0.3000 |  |" in capsys.readouterr().out


def _asked(prepared, n, passages, random):
    from liebig.ragged import Ragged, offsets_of

    lengths = random.integers(1, 40, n)
    tokens = random.integers(5, 90, lengths.sum()).astype(np.int32)
    relevant = Ragged.from_lists(
        [random.choice(passages, random.integers(1, 15), replace=False).tolist() for _ in range(n)]
    )
    found = random.integers(-1, passages, (n, 20))
    return prepared.Asked(Ragged(tokens, offsets_of(lengths)), relevant, found, found.astype(np.float32))


def test_baselines_know_which_passages_training_showed(sets):
    import baselines
    import prepared

    from liebig.ragged import Ragged

    random = np.random.default_rng(0)
    bare = _asked(prepared, 8, 30, random).bare

    def asked(relevant):
        some = _asked(prepared, len(relevant), 30, random)
        return prepared.Asked(some.bare, Ragged.from_lists(relevant), some.found, some.scores)

    train, test = asked([[3, 1], [5]]), asked([[1], [0, 3], [5], [7]])
    made = prepared.Prepared("x", bare, np.arange(8), train, train, {"t": test}, np.arange(8), "abc")
    assert baselines.seen("x", made)["x|seen|t"].tolist() == [False, True, True, False]


def test_a_prepared_set_is_what_was_saved(sets, tmp_path):
    import prepared

    random = np.random.default_rng(1)
    train, dev, test = (_asked(prepared, n, 30, random) for n in (12, 5, 7))
    bare = _asked(prepared, 30, 30, random).bare
    made = prepared.Prepared("x", bare, np.arange(30) // 2, train, dev, {"t": test}, np.arange(9), "abc")
    prepared.save(tmp_path / "x", made, {})
    again = prepared.load(tmp_path / "x")
    assert again.tokenizer == "abc"
    np.testing.assert_array_equal(again.content, made.content)
    np.testing.assert_array_equal(again.train.found, train.found)
    for one, two in zip(prepared.splits(made).values(), prepared.splits(again).values(), strict=True):
        np.testing.assert_array_equal(one.bare.values, two.bare.values)
        np.testing.assert_array_equal(one.bare.offsets, two.bare.offsets)
        np.testing.assert_array_equal(one.relevant.values, two.relevant.values)
        np.testing.assert_array_equal(one.relevant.offsets, two.relevant.offsets)
    few, some = again.limited(3).train, again.limited(6).train
    assert {tuple(few.found[i]) for i in range(3)} <= {tuple(some.found[i]) for i in range(6)}


def test_special_tokens_are_put_around_as_when_texts_are_tokenised(sets):
    import prepared

    from liebig.text.layout import RoleLayout
    from liebig.text.tokenizer import Tokenizer

    texts = ["", "one", "a few words of a longer text", "word " * 50]
    tokenizer = Tokenizer.train(texts * 3, vocab_size=60)
    bare = prepared.tokenised(texts, tokenizer, 12)
    found, wanted = prepared.wrapped(bare, tokenizer, 12), RoleLayout(tokenizer, 12).ids(texts)
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_array_equal(found.offsets, wanted.offsets)


def test_measures_are_those_of_evaluate(sets):
    import searching

    from liebig.measures import parse
    from liebig.measures.evaluator import (
        block_from_matrix as from_matrix,
        evaluate,
        judgements_from_mapping as from_mapping,
    )
    from liebig.ragged import Ragged

    random = np.random.default_rng(2)
    relevant = [random.choice(300, n, replace=False).tolist() for n in (1, 2, 12, 30, 1)]
    found = np.stack([random.permutation(300)[:100] for _ in relevant])
    scores = np.tile(np.arange(100, 0, -1, dtype=np.float32), (5, 1))
    names = [str(p) for p in range(300)]
    block = from_matrix([f"q{i}" for i in range(5)], names, found, scores)
    judged = from_mapping({f"q{i}": {str(p): 1 for p in row} for i, row in enumerate(relevant)})
    wanted = evaluate([block], judged, [parse(m) for m in searching.MEASURES]).values
    np.testing.assert_allclose(searching.values(found, Ragged.from_lists(relevant), 300), wanted)


def test_jobs_wait_for_what_they_need(sets, tmp_path):
    import torch
    from jobs import TEACHER, Job, Task
    from methods import Plan, Result, Settings
    from table import store

    plan = Plan(tmp_path, 1, 64, torch.device("cpu"), tmp_path)
    task = Task(tmp_path, tmp_path, plan, ("scifact",), 2, 100)
    low, high = Settings(lr=3e-4), Settings(lr=1e-3)
    opened = task.open_jobs(set())
    assert opened == [Job("scifact", "random", low), Job("scifact", "random", high), Job("scifact", TEACHER)]

    def done(job, dev):
        values = {"scifact": np.zeros((2, 3))}
        store(task.path(job), job.name, job.method, job.settings, job.seed, Result(dev, values, [dev]), 1.0)

    done(opened[0], 0.2)
    assert task.open_jobs(set()) == opened[1:]
    assert Job("scifact", "mined", low) in task.open_jobs({opened[1]}), "a choice is made without what failed"
    done(opened[1], 0.3)
    now = task.open_jobs(set())
    assert Job("scifact", "random", high, 2) in now
    assert Job("scifact", "mined", high, 1) in now
    assert Job("scifact", "mined", high, 2) not in now
    assert not {"soft", "average"} & {job.method for job in now}
    assert {job.seed for job in now if job.method == "asam"} == {1}
    done(Job("scifact", "random", high, 2), 0.3)
    np.save(plan.teacher("scifact"), np.zeros(3))
    now = task.open_jobs(set())
    assert Job("scifact", "mined", high, 2) in now
    assert {job.method for job in now if job.seed == 1} >= {"soft", "average"}
    assert [Job.of(str(job)) for job in now] == now, "a line names its job"


def _toy_bench(encoder: Path, folder: Path) -> Namespace:
    """Six questions with a passage each, and the next two passages as negatives."""
    rows = Ragged.from_lists([[5 + i, 6 + i, 7] for i in range(6)])
    beside = Ragged.from_lists([[(i + 1) % 6, (i + 2) % 6] for i in range(6)])
    ids, own = tuple("abcdef"), Ragged.from_lists([[i] for i in range(6)])
    data = Examples(ids, ids, own, beside, own, np.arange(6))
    plan = Namespace(
        encoder=encoder, device=torch.device("cpu"), batch=2, teacher=lambda name: folder / f"{name}.npy"
    )
    train = Namespace(train=Namespace(bare=rows), bare=rows)
    return Namespace(name="toy", plan=plan, bm25=data, data=train)


def test_epochs_are_scheduled_and_timed(sets, tmp_path, monkeypatch):
    import methods
    from stopwatch import Stopwatch

    bench, watch = _toy_bench(tmp_path, tmp_path), Stopwatch()
    near = VectorSimilarity.of(torch.eye(6), torch.eye(6).roll(1, 0), torch.arange(6))
    monkeypatch.setattr(methods, "lexical", lambda bench, data: near)
    sampler = methods.batching(bench, "abs-bm25", bench.bm25, None, tmp_path, 0, watch)
    sampler.begin(0)
    assert sorted(np.concatenate([sampler(step) for step in range(3)])) == list(range(6))
    assert list(watch.seconds) == ["schedule"]


def test_a_teacher_scores_every_group(sets, small_model, tmp_path, monkeypatch):
    import teacher

    bench, drawn = _toy_bench(small_model, tmp_path), []

    def train(objective, batches, folder, **rest):
        folder.mkdir()
        drawn.append(batches(0))

    monkeypatch.setattr(teacher, "train", train)
    teacher.teach(bench, tmp_path / "run")
    assert drawn[0].n == 6
    assert np.load(tmp_path / "toy.npy").shape == (18,)


def test_the_readme_has_the_means_of_the_results():
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    for line in json.loads((HOME / "results.json").read_text()):
        assert f"{line['means'][0]:.4f}"[1:] in readme, (line["set"], line["method"])
