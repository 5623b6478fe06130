"""What the ladder of claims rests on: recipes of all arms, jobs, verdicts, and one run from start to page."""

import json
import lzma
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.base import pipeline
from liebig.ragged import Ragged
from liebig.stages import STAGES
from liebig.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
HOME = ROOT / "experiments" / "claims"
OURS = (
    "pretrained", "tuned", "ladder", "verdicts", "run", "pool", "results", "splits",
    "methods", "prepared", "searching", "stopwatch", "teacher", "sets", "table",
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for folder in (HOME.parent, HOME.parent / "finetuning", HOME):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in OURS:
        sys.modules.pop(name, None)


def test_every_arm_is_a_recipe_of_liebig_pretrain(tmp_path):
    import pretrained

    places = pretrained.Places(tmp_path)
    tree = {}
    for name, arm in pretrained.ARMS.items():
        made = pretrained.recipe(arm, places.start, 1, places)
        tree[name] = {**made, "loop": {**made["loop"], "steps": 1}}
    planned = pipeline.plan_stages(STAGES, tree, tmp_path)
    assert [item.name for item in planned] == list(pretrained.ARMS)


def test_a_rung_follows_the_one_before_and_cocondenser_follows_condenser():
    from pretrained import chain

    assert chain("mlm@300M-2") == ["mlm@30M-2", "mlm@100M-2", "mlm@300M-2"]
    assert chain("cocondenser@300M-1") == ["condenser@30M-1", "cocondenser@100M-1", "cocondenser@300M-1"]
    with pytest.raises(SystemExit, match="begins after condenser's 30M"):
        chain("cocondenser@30M-1")


def test_the_ladder_names_arms_and_methods_that_exist():
    import ladder
    from pretrained import ARMS

    found = ladder.read(HOME / "ladder.toml")
    rows = found.rows([claim.number for claim in found.claims])
    assert {row.arm for row in rows} <= {*ARMS, ladder.BM25, ladder.START}
    ways = {row.method.partition(":")[0] for row in rows}
    assert ways == {
        "random", "mined", "mined-by", "noisy", "soft", "entropy", "neighbours",
        "inbatch", "inbatch-abs", "inbatch-sequential", "inbatch-abs-bm25",
    }  # fmt: skip
    with pytest.raises(SystemExit, match="is not `ONE > OTHER"):
        list(ladder.parse("1", "condenser is better", "100M", found.all))


def little(tmp_path, *checks: str) -> Path:
    """A ladder of one claim."""
    listed = ", ".join(json.dumps(check) for check in checks)
    path = tmp_path / "ladder.toml"
    path.write_text(
        'rung = "30M"\nseeds = 2\n'
        f'[[claim]]\nnumber = "1"\nsays = "It helps"\npaper = "It does."\nchecks = [{listed}]\n'
    )
    return path


def result(runs, job, values, dev) -> None:
    import results

    runs.path(job).parent.mkdir(parents=True, exist_ok=True)
    results.store(runs.path(job), {job.set: values}, {"job": str(job), "dev": dev})


def test_settings_are_chosen_on_dev_before_other_seeds_begin(tmp_path):
    import ladder

    found = ladder.read(little(tmp_path, "crops > mlm | scifact | all | RR@10"))
    runs = ladder.Runs(tmp_path, found)
    rows, models = found.rows(["1"]), {"crops@30M-1", "mlm@30M-1"}
    trials = runs.trials(rows[0])
    assert runs.open(rows[:1], models, ()) == list(map(str, trials))
    assert runs.open(rows[:1], {"mlm@30M-1"}, ()) == [], "its model is not there yet"
    for job, dev in zip(trials, (0.1, 0.3, 0.2, 0.2)):
        result(runs, job, np.zeros((5, 3)), dev)
    assert runs.chosen(rows[0]) == (trials[1].pooling, trials[1].lr)
    assert runs.open(rows[:1], models, ()) == [str(replace(trials[1], seed=2))]
    assert runs.models(rows, {"30M": 1.0}) == ["crops@30M-1", "mlm@30M-1"]


def test_another_pretraining_and_a_changed_arm_take_the_settings_that_were_chosen_before(tmp_path):
    import ladder

    path = little(tmp_path, "condenser-skip-3 > condenser | scifact | all | RR@10")
    path.write_text(path.read_text() + "pretrainings = [1, 2]\n")
    found = ladder.read(path)
    runs = ladder.Runs(tmp_path, found)
    for job, dev in zip(runs.trials(ladder.Row("condenser", "30M", "scifact", 651)), (0.1, 0.2, 0.3, 0.2)):
        assert job.model == "condenser@30M-1"
        result(runs, job, np.zeros((5, 3)), dev)
    settings = ("mean", 1e-4)
    for row in found.rows(["1"]):
        assert {(job.pooling, job.lr) for job in runs.jobs(row)} == {settings}, row
    models = ["condenser-skip-3@30M-1", "condenser@30M-1", "condenser-skip-3@30M-2", "condenser@30M-2"]
    assert runs.models(found.rows(["1"]), {"30M": 1.0}) == models
    assert len(found.claim("1").checks) == 2, "one in each pre-training"
    assert {check.line for check in found.claim("1").checks} == {found.claim("1").checks[0].line}


def test_a_claim_over_rungs_draws_a_curve(tmp_path):
    import ladder
    import verdicts

    path = little(tmp_path, "crops > mlm | medquad | 0 | RR@10", "cocondenser > mlm | medquad | 1000 | RR@10")
    path.write_text(
        path.read_text().replace('number = "1"', 'number = "tokens"')
        + 'rungs = ["30M", "300M"]\npretrainings = [3]\n'
    )
    found = ladder.read(path)
    runs = ladder.Runs(tmp_path, found)
    assert [str(check.one[0]) for check in found.claim("tokens").checks] == [
        "crops@30M-3", "crops@300M-3", "cocondenser@300M-3",
    ], "coCondenser begins after Condenser's 30 M"  # fmt: skip
    rows = found.rows(["tokens"])
    for row in rows:
        assert {job.model for job in runs.trials(row)} == {f"{row.arm}@30M-1"}, "tried at the ladder's rung"
        for job in runs.trials(row):
            result(runs, job, np.zeros((5, 3)), 0.5)
        for job in runs.jobs(row):
            result(runs, job, np.full((5, 3), 0.3 if row.rung == "30M" else 0.4), 0.5)
    untuned, tuned, over_labels, *_ = verdicts.CURVES
    measured = verdicts.Measured(runs, tmp_path)
    curves = verdicts.series(found, measured, "medquad", "RR@10", untuned)
    assert [(one.name, list(one.x)) for one in curves] == [("mlm", [0.03, 0.3]), ("crops", [0.03, 0.3])]
    assert curves[0].y == pytest.approx([0.3, 0.4])
    assert [one.name for one in verdicts.series(found, measured, "medquad", "RR@10", tuned)] == [
        "mlm", "cocondenser",
    ]  # fmt: skip
    curves = verdicts.series(found, measured, "medquad", "RR@10", over_labels)
    assert {one.name: list(one.x) for one in curves} == {
        "mlm": [10, 1000], "crops": [10], "cocondenser": [1000],
    }, "none is drawn at ten"  # fmt: skip
    verdicts.figures(found, measured, tmp_path)
    assert (tmp_path / "tokens-untuned-medquad.svg").exists()


def test_processes_share_a_gpu_where_mps_is_there(tmp_path, monkeypatch):
    import run as claims

    monkeypatch.setenv("PATH", str(tmp_path))
    claims.share_gpu()  # nothing is there
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\nexit 1\n')
    program.chmod(0o755)
    claims.share_gpu()
    assert (tmp_path / "called").read_text() == "-d\n"


def test_a_run_waits_for_those_whose_weights_it_needs(tmp_path):
    import ladder

    found = ladder.read(little(tmp_path, "crops/mined > crops | scifact | all | RR@10"))
    runs, rows = ladder.Runs(tmp_path, found), found.rows(["1"])
    for job in runs.trials(rows[0])[1:]:
        result(runs, job, np.zeros((5, 3)), 0.1)
    result(runs, runs.trials(rows[0])[0], np.zeros((5, 3)), 0.2)
    ready = runs.open(rows, {"crops@30M-1"}, ())
    assert [line.split(" ")[3::3] for line in ready] == [["mined", "1"], ["random", "2"]]


def stored_check(
    verdicts,
    difference,
    *,
    start=1,
    labels=1000,
    other=0.4,
    test="squad",
    error=0.001,
    documents=0.0,
    says="crops@30M",
):
    name = "" if start == 1 else f"-{start}"
    half = np.hypot(error, documents) * verdicts.WIDTH / 2
    values = (other + difference, other, difference, difference - half, difference + half, documents)
    return verdicts.StoredCheck(f"{says}{name} > mlm@30M{name}", test, labels, "RR@10", 3, *values)


def test_what_differs_between_starts_is_fitted_beyond_seeds():
    import verdicts

    random = np.random.default_rng(0)
    checks = [
        stored_check(
            verdicts, shared + random.normal(0, np.hypot(0.008, 0.005)), start=start, error=0.005, documents=0.02,
            says=f"a{n}@1M",
        )
        for n, shared in enumerate(random.normal(0.02, 0.02, size=400))  # by documents, which both starts are asked
        for start in (1, 2)
    ]  # fmt: skip
    spread = verdicts.between_starts(checks)
    assert spread["ranking", "squad", True][0] == pytest.approx(0.008, abs=0.001)
    assert spread["ranking", "squad", True][1] == 400
    full = [stored_check(verdicts, random.normal(0, 0.1), start=start, other=0.93) for start in (1, 2)]
    assert not verdicts.between_starts(full), "sets without headroom say nothing"


def test_an_interval_includes_the_start_and_leaves_out_sets_without_headroom(tmp_path):
    import ladder
    import verdicts

    found = ladder.read(little(tmp_path, "crops > mlm | wiki:squad medquad | 1000 | RR@10 | .05"))
    checks = [stored_check(verdicts, 0.01), stored_check(verdicts, 0.03, other=0.93, test="medquad")]
    stored = {(c.check, c.test, c.labels, c.measure): c for c in checks}
    spread = {("ranking", "all", True): (0.008, 18)}
    [said] = verdicts.statements(found.claims[0], stored, spread)
    assert (said.mean, said.tests) == (pytest.approx(0.01), ("squad",))
    assert said.high - said.low > 2 * 1.96 * 0.008
    assert said.verdict == verdicts.EXCLUDED, "zero is inside, the paper's .05 is not"
    [alone] = verdicts.statements(found.claims[0], stored, {("ranking", "all", True): (0.0, 18)})
    assert alone.verdict == "holds, smaller than the paper's", (
        "what the interval without the start would have said"
    )
    [untested] = verdicts.statements(found.claims[0], {}, spread)
    assert untested.verdict == verdicts.UNTESTED


def test_more_starts_leave_what_documents_differ_by(tmp_path):
    import ladder
    import verdicts

    path = little(tmp_path, "crops > mlm | wiki:squad | 1000 | RR@10 | .05")
    spread = {("ranking", "all", True): (0.008, 1000)}

    def half(starts, documents):
        path.write_text(path.read_text().partition("pretrainings")[0] + f"pretrainings = {starts}\n")
        found = ladder.read(path)
        checks = [stored_check(verdicts, 0.01, start=n, error=0.006, documents=documents) for n in starts]
        stored = {(c.check, c.test, c.labels, c.measure): c for c in checks}
        [said] = verdicts.statements(found.claims[0], stored, spread)
        assert said.starts == tuple(starts)
        return (said.high - said.low) / 2

    assert half([1], 0.0) == pytest.approx(1.96 * 0.01, rel=0.01)
    assert half([1, 2, 3, 4], 0.0) == pytest.approx(half([1], 0.0) / 2)
    assert half([1, 2, 3, 4], 0.02) == pytest.approx(1.96 * np.hypot(0.02, 0.005), rel=0.01)


def test_a_start_counts_with_what_it_ran_and_every_number_of_labels_is_there_from_some(tmp_path):
    import ladder
    import verdicts

    path = little(tmp_path, "crops > mlm | wiki:squad | 100 1000 | RR@10 | .05")
    path.write_text(path.read_text() + "pretrainings = [1, 2]\n")
    claim = ladder.read(path).claims[0]
    checks = [
        stored_check(verdicts, d, start=s, labels=n)
        for d, s, n in [(0.02, 1, 100), (0.04, 1, 1000), (0.05, 2, 1000)]
    ]
    stored = {(c.check, c.test, c.labels, c.measure): c for c in checks}
    [said] = verdicts.statements(claim, stored, {})
    assert (said.mean, said.starts) == (pytest.approx(0.04), (1, 2))
    del stored["crops@30M > mlm@30M", "squad", 100, "RR@10"]
    [untested] = verdicts.statements(claim, stored, {})
    assert untested.verdict == verdicts.UNTESTED


def test_a_slope_compares_the_margins_of_two_numbers_of_labels(tmp_path):
    import ladder
    import verdicts

    found = ladder.read(
        little(tmp_path, "crops#100 - mlm#100 > crops - mlm | wiki:squad | 1000 | RR@10 | .007")
    )
    [check] = found.claims[0].checks
    assert [(row.arm, row.labels) for row in check.rows] == [
        ("crops", 100), ("mlm", 100), ("crops", 1000), ("mlm", 1000),
    ]  # fmt: skip
    name = "crops@30M less mlm@30M > crops@30M, 1,000 labels less mlm@30M, 1,000 labels"
    assert verdicts.sides(check) == name
    one = verdicts.StoredCheck(name, "squad", 100, "RR@10", 2, 0.03, 0.01, 0.02, 0.02, 0.02, 0.0)
    spread = {("ranking", "all", True): (0.01, 1000)}
    [said] = verdicts.statements(found.claims[0], {(name, "squad", 100, "RR@10"): one}, spread)
    assert (said.high - said.low) / 2 == pytest.approx(1.96 * 0.01 * 2**0.5, rel=0.01), "of two differences"


@pytest.mark.parametrize(
    ("sign", "low", "high", "effect", "said"),
    [
        (">", 0.01, 0.05, 0.03, "holds"),
        (">", 0.01, 0.02, 0.03, "holds, smaller than the paper's"),
        (">", -0.01, 0.02, 0.03, "paper's size excluded"),
        (">", -0.01, 0.04, 0.03, "undecided"),
        (">", -0.02, -0.01, None, "does not hold"),
        (">", -0.02, 0.01, None, "undecided"),
        ("=", -0.01, 0.02, 0.03, "holds"),
        ("=", -0.05, 0.02, 0.03, "undecided"),
        ("=", -0.05, -0.04, 0.03, "does not hold"),
    ],
)
def test_a_verdict_is_held_against_the_papers_own_difference(sign, low, high, effect, said):
    import verdicts

    assert verdicts.decided(sign, low, high, effect) == said


def test_the_page_is_that_of_the_stored_checks():
    import ladder
    import verdicts

    made = verdicts.page(ladder.read(HOME / "ladder.toml"), verdicts.load(HOME / "checks.csv"))
    assert (HOME / "claims.md").read_text(encoding="utf-8") == made, (
        "run python experiments/claims/verdicts.py"
    )


def test_correlations_are_compared_over_pairs_and_seeds(monkeypatch):
    import verdicts

    monkeypatch.setattr(verdicts, "DRAWS", 100)
    scores = np.linspace(0, 1, 80).astype(np.float32)
    right, none = np.tile(scores, (2, 1)), np.zeros((2, 80))
    samples, means = verdicts.correlations(right, none, scores)
    assert means == pytest.approx((1, 0))
    assert samples.min() > 0.9
    assert not verdicts.correlations(none, none, scores)[0].any()


def test_pairs_of_sts_b_and_triplets_of_articles_are_prepared(tmp_path):
    import run
    from tuned import gold

    (tmp_path / "stsb").mkdir()
    for split in ("train", "dev", "test"):
        with lzma.open(tmp_path / "stsb" / f"{split}.csv.xz", "wt") as file:
            file.write("A river.,A stream.,4.0\nbroken,row\nA river.,A loaf.,0.5\n")
    sentence = "The {} of this place was old and very well known."
    article = {
        "id": "1",
        "title": "Place",
        "sections": [
            {"h": heading, "p": [" ".join(sentence.format(f"{heading} {n}") for n in range(4))]}
            for heading in ("bridge", "tower", "market")
        ],
    }
    (tmp_path / "wiki").mkdir()
    with lzma.open(tmp_path / "wiki" / "articles-0.jsonl.xz", "wt") as file:
        file.write("".join(json.dumps({**article, "id": str(n)}) + "\n" for n in range(6)))
    run.texts(tmp_path, tmp_path, encoders.folder(), 3)
    assert gold(tmp_path).tolist() == pytest.approx([0.8, 0.1])
    with np.load(tmp_path / "sections.npz") as file:
        assert len(file["test/2/lengths"]) == 3


def test_a_training_is_told_to_stop_when_its_minutes_are_over():
    import run

    assert run.limited([sys.executable, "-c", "pass"], 1) == 0
    assert run.limited([sys.executable, "-c", "import time; time.sleep(60)"], 0.005) != 0


def test_from_a_start_to_the_page_on_a_tiny_case(tmp_path, monkeypatch, capsys):
    import ladder
    import prepared
    import pretrained
    import results
    import run
    import tuned
    import verdicts

    monkeypatch.setattr(tuned, "ATTENTION_TEXTS", 4)
    monkeypatch.setattr(ladder, "POOLINGS", ("cls",))
    monkeypatch.setattr(ladder, "RATES", (1e-3,))
    monkeypatch.setattr("methods.LEAST_STEPS", 2)
    out, data = tmp_path / "out", tmp_path / "data"
    for name in ("wiki", "novels", "win32"):
        (data / name).mkdir(parents=True)
        rows = [
            {"_id": f"{name}-{i}", "title": "", "text": f"Rivers of {name} run to the sea. " * 12}
            for i in range(6)
        ]
        (data / name / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {
        "model.layers": 2, "model.width": 16, "model.heads": 2, "batch_tokens": 128, "loop.steps": 2, "max_length": 32,
        "schedule.warmup_steps": 1, "loop.workers": 0, "evaluation.share": 0.2,
    }  # fmt: skip
    given = Namespace(
        data=data,
        out=out,
        stages=[*run.STORES, "start"],
        set=[f"stages.start.{k}={v}" for k, v in changes.items()],
    )
    run.stages(given)

    places = pretrained.Places(out, {"30M": 200.0, "100M": 300.0}, batch=0.001, length=32)
    sizes = {"scifact": 4, "wiki": 4, "far": 4}
    found = ladder.read(
        little(
            tmp_path,
            "condenser > mlm | scifact | 0 all | RR@10",
            "mlm/entropy > condenser/entropy | scifact | all | movement",
            "condenser/inbatch > start | far | all | RR@10",
            "condenser/inbatch-abs > condenser/inbatch | far:rise | all | RR@10",
        ),
        all=sizes,
    )
    runs = ladder.Runs(out, found)
    for name in runs.models(found.rows(["1"]), places.rungs):
        pretrained.train(name, places)

    tokenizer = Tokenizer.from_folder(encoders.folder())
    texts = prepared.tokenised([f"river {i} runs to sea {i}" for i in range(8)], tokenizer, 32)
    none = np.zeros((4, 0))
    asked = prepared.Asked(texts.take(np.arange(4)), Ragged.from_lists([[0], [1], [2], [3]]), none, none)
    hits = np.array([[4, 5], [5, 6], [6, 7], [7, 4]])
    train = prepared.Asked(asked.bare, asked.relevant, hits, hits.astype(np.float32))
    whole = prepared.Prepared(
        "scifact",
        texts,
        np.arange(8),
        train,
        asked,
        {"scifact": asked},
        np.arange(8),
        prepared.digest(tokenizer),
    )
    for name in ("scifact", "wiki", "cosqa", "vaswani", "trec-dl21"):
        prepared.save(tmp_path / "prepared" / name, replace(whole, name=name, tests={name: asked}), {})
    prepared.save(tmp_path / "prepared" / "far", replace(whole, name="far", tests={"squad-far": asked}), {})
    worker = tuned.Worker(places, tmp_path / "prepared", torch.device("cpu"), 1, 4)
    there = {path.name for path in (out / "models").iterdir()} | {"start"}
    while jobs := runs.open(found.rows(["1"]), there, ()):
        for line in jobs:
            done = worker.do(tuned.Job.of(line))
            results.store(
                runs.path(tuned.Job.of(line)), done.tests, {"job": line, "dev": done.dev, **done.about}
            )

    verdicts.store(found, verdicts.Measured(runs, tmp_path / "prepared"), tmp_path / "checks.csv")
    stored = verdicts.load(tmp_path / "checks.csv")
    assert [check.seeds for check in stored.values()] == [1, 2, 2, 2, 2, 2, 2, 2]
    assert [check.test for check in stored.values()][3:] == ["squad-far", *tuned.ZERO_SHOT, "rise"]
    assert all(-1 <= check.one <= 1 for check in stored.values())
    assert "It helps" in verdicts.page(found, stored)
    assert any(
        line.startswith("| condenser@30M | scifact | 4 | cls 0.001 | 2 |") for line in verdicts.table(runs)
    )
