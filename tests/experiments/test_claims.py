"""What the ladder of claims rests on: recipes of all arms, jobs, verdicts, and one run from start to page."""

import json
import sys
from argparse import Namespace
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
    assert {row.arm for row in rows} <= {*ARMS, ladder.BM25}
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
        'rung = "30M"\nseeds = 2\nmargin = 0.02\n'
        f'[[claim]]\nnumber = "1"\nsays = "It helps"\npaper = "It does."\nchecks = [{listed}]\n'
    )
    return path


def result(runs, job, values, dev) -> None:
    import results

    runs.path(job).parent.mkdir(parents=True, exist_ok=True)
    results.store(runs.path(job), {job.set: values}, {"job": str(job), "dev": dev})


def test_settings_are_chosen_on_dev_before_other_seeds_begin(tmp_path):
    from dataclasses import replace

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


def test_p_is_corrected_within_a_claim_and_pretrainings_are_averaged(tmp_path):
    import ladder
    import verdicts

    path = little(tmp_path, "crops > mlm | scifact | 100 | RR@10", "crops > cloze | scifact | 100 | RR@10")
    both = path.read_text() + "pretrainings = [1, 2]\n"
    path.write_text(both + both[both.index("[[claim]]") :].replace('"1"', '"2"'))
    found = ladder.read(path)
    runs, random = ladder.Runs(tmp_path, found), np.random.default_rng(0)
    for row in found.rows(["1"]):
        for job in runs.trials(row):
            result(runs, job, np.zeros((60, 3)), 0.5)
        for job in runs.jobs(row):
            more = 0.1 * row.pretraining * (row.arm == "crops")
            result(runs, job, 0.4 + more + 0.5 * random.random((60, 3)), 0.5)
    told = verdicts.all_statements(found, verdicts.Measured(runs, tmp_path))
    first, second = told["1"]
    assert first.difference["mean"] == pytest.approx(np.mean([line.one - line.other for line in first.lines]))
    assert {line.check.one[0].pretraining for line in first.lines} == {1, 2}
    assert "pre-trainings 1 and 2" in verdicts.title(first)
    assert sorted([first.p_holm, second.p_holm]) == pytest.approx(
        sorted([2 * min(first.p, second.p), max(2 * min(first.p, second.p), max(first.p, second.p))])
    )
    assert [said.p_holm for said in told["2"]] == [first.p_holm, second.p_holm], (
        "whatever else is on the page"
    )


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


def test_a_claim_over_rungs_has_a_statement_at_each_and_draws_a_curve(tmp_path):
    from dataclasses import replace

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
    told = verdicts.all_statements(found, verdicts.Measured(runs, tmp_path))["tokens"]
    assert len(told) == 3
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
    for paper, shown in (("", "tokens-untuned-medquad"), ("Table 1", "claim-tokens")):
        claim = replace(found.claim("tokens"), paper=paper)
        out = tmp_path / (paper or "none")
        out.mkdir()
        verdicts.page(replace(found, claims=(claim,)), runs, tmp_path, out)
        page = (out / "claims.md").read_text()
        assert f"figures/{shown}.svg" in page
        assert ("figures/claim-tokens.svg" in page) is bool(paper), "the long comparison has curves instead"


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


@pytest.mark.parametrize(
    ("sign", "gain", "said"),
    [
        (">", 0.3, "holds"),
        (">", -0.3, "does not hold here"),
        (">", 0.0, "does not hold here"),  # a gain of the margin is left out
        ("=", 0.0, "holds"),
        ("=", 0.3, "does not hold here"),
        (">=", 0.0, "holds"),
        (">=", -0.3, "does not hold here"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(tmp_path, sign, gain, said):
    import ladder
    import verdicts

    found = ladder.read(little(tmp_path, f"crops {sign} mlm | scifact | 100 | RR@10"))
    runs = ladder.Runs(tmp_path, found)
    values = 0.4 + 0.02 * np.random.default_rng(0).random((60, 3))
    for row, more in zip(found.rows(["1"]), (gain, 0.0)):
        for job in runs.trials(row):
            result(runs, job, values, 0.5)
        for job in runs.jobs(row):
            result(runs, job, values + more, 0.5)
    told = verdicts.all_statements(found, verdicts.Measured(runs, tmp_path))["1"]
    assert [one.verdict for one in told] == [said]
    assert verdicts.verdict(found.claims[0], told) == said


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("holds", "holds"), "holds"),
        (("holds", "undecided"), "undecided"),
        (("does not hold here", "undecided"), "does not hold here"),
        (("holds", "does not hold here", "undecided"), "holds in part"),
    ],
)
def test_a_claim_of_several_parts_does_not_hold_once_one_of_them_does_not(tmp_path, parts, said):
    import ladder
    import verdicts

    claim = ladder.read(little(tmp_path, "crops > mlm | scifact | 100 | RR@10")).claims[0]
    assert verdicts.verdict(claim, [verdicts.Statement((), verdict=part) for part in parts]) == said


def test_sets_and_numbers_of_labels_speak_together_and_measures_apart(tmp_path):
    import ladder
    import verdicts

    found = ladder.read(little(tmp_path, "crops > mlm | scifact medquad | 100 200 | RR@10 R@100"))
    runs = ladder.Runs(tmp_path, found)
    for row in found.rows(["1"]):
        noise = 0.001 * np.random.default_rng(row.labels).random((60, 3))
        gain = {100: 0.01, 200: 0.03}[row.labels] * (row.arm == "crops")
        for job in runs.trials(row):
            result(runs, job, 0.4 + noise, 0.5)
        for job in runs.jobs(row):
            result(runs, job, 0.4 + gain + noise, 0.5)
    told = verdicts.all_statements(found, verdicts.Measured(runs, tmp_path))["1"]
    assert [(len(one.lines), one.lines[0].check.measure) for one in told] == [(4, "RR@10"), (4, "R@100")]
    assert told[0].difference["mean"] == pytest.approx(0.02, abs=1e-4)  # values are kept in ten thousandths
    assert told[0].difference["low"] > 0.019
    some = verdicts.stated([told[0].lines[0], verdicts.Line(told[0].lines[1].check)])
    assert (some.difference, some.missing) == (None, 1)


def test_correlations_are_compared_over_pairs_and_seeds(monkeypatch):
    import verdicts

    monkeypatch.setattr(verdicts, "DRAWS", 100)
    scores = np.linspace(0, 1, 80).astype(np.float32)
    right, none = np.tile(scores, (2, 1)), np.zeros((2, 80))
    samples, means = verdicts.correlations(right, none, scores)
    assert means == pytest.approx((1, 0))
    assert samples.min() > 0.9
    assert not verdicts.correlations(none, none, scores)[0].any()


def test_a_training_is_told_to_stop_when_its_minutes_are_over():
    import run

    assert run.limited([sys.executable, "-c", "pass"], 1) == 0
    assert run.limited([sys.executable, "-c", "import time; time.sleep(60)"], 0.005) != 0


def test_a_claim_whose_runs_are_missing_is_undecided(tmp_path, capsys):
    import ladder
    import verdicts

    found = ladder.read(little(tmp_path, "crops > mlm | scifact | all | RR@10"))
    verdicts.page(found, ladder.Runs(tmp_path, found), tmp_path, tmp_path)
    assert (
        "| 1 | It helps | **undecided** | crops@30M > mlm@30M (RR@10, scifact, 651 labels) was not run | It does. |"
        in capsys.readouterr().out
    )


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
    sizes = {"scifact": 4}
    found = ladder.read(
        little(
            tmp_path,
            "condenser > mlm | scifact | 0 all | RR@10",
            "mlm/entropy > condenser/entropy | scifact | all | movement",
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
    prepared.save(tmp_path / "prepared" / "scifact", whole, {})
    worker = tuned.Worker(places, tmp_path / "prepared", torch.device("cpu"), 1, 4)
    there = {path.name for path in (out / "models").iterdir()}
    while jobs := runs.open(found.rows(["1"]), there, ()):
        for line in jobs:
            done = worker.do(tuned.Job.of(line))
            results.store(
                runs.path(tuned.Job.of(line)), done.tests, {"job": line, "dev": done.dev, **done.about}
            )

    made = verdicts.page(found, runs, tmp_path / "prepared", tmp_path)
    lines = [line for said in made["1"] for line in said.lines]
    assert [line.questions for line in lines] == [4, 4, 4]
    assert [line.seeds for line in lines] == [1, 2, 2]
    assert (tmp_path / "claims.html").read_text().count("<svg") == 1
    assert "It helps" in capsys.readouterr().out
    assert any(
        line.startswith("| condenser@30M | scifact | 4 | cls 0.001 | 2 |") for line in verdicts.table(runs)
    )
