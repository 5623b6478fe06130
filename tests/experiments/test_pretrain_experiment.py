"""What the comparison of objectives rests on: the recipe, its logs, the tables and the figure made of them."""

import sys
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.stages import STAGES

HOME = Path(__file__).parents[2] / "experiments" / "pretraining"


@pytest.fixture
def summary(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import summary

    yield summary
    for name in ("summary", "curves", "logs"):
        sys.modules.pop(name, None)


def line(step, loss, **metrics):
    return {
        "step": step,
        "loss": loss,
        "losses": {"contrast": loss},
        "metrics": metrics,
        "tokens": 100 * step,
    }


def run(summary, name):
    """A first step, 20 steps, and a last one."""
    log = [
        line(1, 9.0, partner_accuracy=0.1),
        line(21, 4.0, partner_accuracy=0.5),
        line(22, 2.0, partner_accuracy=0.7),
    ]
    evaluated = {"step": 22, "evaluation": {"contrast": 3.5}}
    return summary.Run(name, [*log, evaluated], [1e3, 2e3, 1e3])


def test_the_recipe_compares_every_objective_from_one_encoder():
    planned = {
        stage.name: stage.config
        for stage in pipeline.plan(STAGES, HOME / "objectives.toml", [], Path("runs"))
    }
    kinds = {config.objective.kind for config in planned.values()}
    assert kinds == {"mlm", "condenser", "cocondenser", "cotmae", "simclr", "moco"}
    starts = {str(config.model.path) for name, config in planned.items() if name != "cocondenser"}
    assert starts == {"runs/mini-v0/model/model"}
    assert planned["cocondenser"].model.path == Path("runs/condenser/model")
    assert len({(str(c.stores), c.loop.minutes, c.optim.lr, c.loop.seed) for c in planned.values()}) == 1


def test_rows_stand_in_the_order_of_the_recipe(summary):
    names = ["moco", "mlm", "other", "condenser"]
    ordered = summary.in_order([summary.Run(name) for name in names], list(summary.stages()))
    assert [found.name for found in ordered] == ["mlm", "condenser", "moco", "other"]


def test_the_end_is_the_mean_of_the_last_steps_and_seconds_are_those_of_all(summary):
    found = run(summary, "moco")
    assert found.end("loss") == (2.0 + 20 * 4.0) / 21
    assert found.end("loss", most=1) == 2.0
    assert found.seconds == 1.2  # 0.1 + 1 + 0.1


def test_the_accuracy_of_a_contrast_is_that_of_partners(summary):
    (row,) = summary.term_rows(run(summary, "moco"))
    assert row == ["moco", "contrast", "9.000 -> 3.905", "3.500", "0.100 -> 0.510", ""]


def test_a_partner_is_looked_for_among_as_many_vectors_as_the_papers_say(summary):
    found = {name: summary.candidates(stage) for name, stage in summary.stages().items()}
    assert found["cocondenser"] == 2 * 1024 - 1
    assert found["simclr-crops"] == found["simclr-cloze"] == 2048
    assert found["moco"] == 65536 + 1
    assert found["mlm"] is found["condenser"] is found["cotmae"] is None


def test_the_tables_are_those_of_the_kept_logs(summary):
    runs = summary.in_order(summary.read_kept(HOME / "logs.jsonl.xz"), list(summary.stages()))
    assert [found.name for found in runs] == list(summary.stages())
    text = summary.report(runs)
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    assert all(part.strip() in readme for part in text.split("\n\n"))


def test_logs_are_kept_as_they_are_and_drawn(summary, tmp_path):
    runs = [run(summary, name) for name in ("simclr-crops", "moco")]
    summary.keep(runs, tmp_path / "logs.xz")
    again = summary.read_kept(tmp_path / "logs.xz")
    assert again == runs
    masked = summary.read_kept(HOME / "logs.jsonl.xz")
    summary.draw(masked, {"moco": 65537}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
