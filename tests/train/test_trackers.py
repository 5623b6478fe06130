"""TensorBoard and W&B get the numbers of the log; a resumed run goes on in the tracker's own run."""

import json
import sys
from types import SimpleNamespace
from typing import get_args

import pytest

from liebig.base.errors import MissingDependency, TrainingError
from liebig.train.log import TRACKERS, RunLog, TrackerName

LINES = [{"loss": 2.0, "losses": {"mlm": 1.5}, "event": "words are no numbers"}, {"loss": 1.0}]


class FakeRun:
    def __init__(self, **settings):
        self.settings, self.lines, self.finished, self.metrics = settings, [], False, []

    def define_metric(self, name, step_metric):
        self.metrics.append((name, step_metric))

    def log(self, numbers, step=None):
        self.lines.append((numbers, step))

    def finish(self):
        self.finished = True


@pytest.fixture
def runs(monkeypatch):
    """The runs that a fake module began."""
    made: list[FakeRun] = []

    def init(**settings):
        made.append(FakeRun(**settings))
        return made[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return made


def train(folder, step, *trackers):
    log = RunLog(folder, step, trackers)
    for number, values in enumerate(LINES, step + 1):
        log.line(number, **values)
    log.close()


def test_every_name_of_a_recipe_has_a_tracker():
    assert set(TRACKERS) == set(get_args(TrackerName))


def test_wandb_gets_the_numbers_over_our_own_steps(tmp_path, runs):
    train(tmp_path / "run.partial", 0, "wandb")
    (run,) = runs
    assert (run.settings["project"], run.settings["name"], run.settings["resume"]) == (
        "liebig",
        "run",
        "allow",
    )
    assert run.metrics == [("*", "step")]
    assert run.lines == [
        ({"step": 1, "loss": 2.0, "losses/mlm": 1.5}, None),
        ({"step": 2, "loss": 1.0}, None),
    ]
    assert run.finished


def test_a_resumed_run_goes_on_and_a_new_one_begins_anew(tmp_path, runs):
    train(tmp_path, 0, "wandb")
    train(tmp_path, 2, "wandb")
    train(tmp_path, 0, "wandb")
    first, resumed, again = (run.settings["id"] for run in runs)
    assert first == resumed != again


def test_tensorboard_gets_the_log_and_takes_back_steps_that_are_done_again(tmp_path, monkeypatch):
    train(tmp_path / "a", 0, "tensorboard")
    assert list((tmp_path / "a" / "tensorboard").glob("events*"))
    assert len((tmp_path / "a" / "log.jsonl").read_text().splitlines()) == 2
    asked = []
    writer = SimpleNamespace(add_scalar=lambda *line: None, flush=lambda: None, close=lambda: None)

    def fake(folder, purge_step):
        asked.append(purge_step)
        return writer

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", fake)
    train(tmp_path / "a", 1, "tensorboard")
    assert asked == [2]


@pytest.mark.parametrize(
    ("tracker", "module", "extra"),
    [
        ("tensorboard", "torch.utils.tensorboard", "track"),
        ("wandb", "wandb", "wandb"),
    ],
)
def test_a_missing_tracker_is_one_sentence(tmp_path, monkeypatch, tracker, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"the tracker {tracker} needs .*pip install .*\[{extra}\]'"):
        RunLog(tmp_path, 0, [tracker])


def test_wandb_without_an_account_is_one_sentence(tmp_path, monkeypatch):
    def init(**settings):
        raise RuntimeError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with pytest.raises(TrainingError, match=r"W&B cannot start: No API key configured.*wandb login"):
        RunLog(tmp_path, 0, ["wandb"])


def test_the_log_is_the_same_with_a_tracker_and_without(tmp_path, runs):
    train(tmp_path / "with", 0, "wandb")
    train(tmp_path / "without", 0)
    texts = [(tmp_path / name / "log.jsonl").read_text() for name in ("with", "without")]
    assert texts[0] == texts[1]
    assert json.loads(texts[0].splitlines()[0])["step"] == 1
