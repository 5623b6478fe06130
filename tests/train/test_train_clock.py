"""Runs of minutes: they end in time, their schedule follows the clock, they are resumed, and few steps are said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from liebig.base import machine
from liebig.train import stage, stopping
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.log import read_log
from liebig.train.loop import LoopConfig, Trained, train
from liebig.train.objective import Objective
from liebig.train.optim import AdamWConfig, ScheduleConfig
from tests.worlds.toy import Toy, spans


class Time:
    """A clock that only steps and evaluations move."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(stopping, "now", found)
    return found


class Timed(Toy):
    """An objective whose step with a number takes that many seconds."""

    def __init__(self, time: Time, took: Callable[[int], float]) -> None:
        super().__init__()
        self.time, self.took, self.done = time, took, 0

    def after_step(self) -> None:
        super().after_step()
        self.time.seconds += self.took(self.done)
        self.done += 1


def batches(step: int) -> Batch:
    return spans(4, seed=1, step=step)


def run(objective: Objective, folder: Path, minutes: float = 2, **changes: Any) -> Trained:
    arguments = {k: changes.pop(k) for k in ("evaluate", "schedule", "batches") if k in changes}
    source = arguments.pop("batches", batches)
    loop = LoopConfig(
        **{"minutes": minutes, "workers": 0, "chunk_tokens": "whole", "log_every": 1, **changes}
    )
    return train(objective, source, folder, loop=loop, optim=AdamWConfig(lr=1.0), **arguments)


def rates(folder: Path) -> list[float]:
    return [line["lr"] for line in read_log(folder) if "lr" in line]


def test_a_slow_first_step_does_not_fix_the_number_of_steps(time: Time, tmp_path: Path) -> None:
    found = run(Timed(time, lambda n: 40.0 if n == 0 else 4.0), tmp_path)
    assert found.step == 1 + 20
    assert time.seconds - 1000 == 120


@pytest.mark.parametrize("seconds", [2.5, 7.0, 11.0])
def test_a_run_ends_in_time_and_has_no_room_for_another_step(
    seconds: float, time: Time, tmp_path: Path
) -> None:
    run(Timed(time, lambda n: seconds), tmp_path)
    assert 120 - seconds < time.seconds - 1000 <= 120


def test_steps_that_become_slower_end_in_time_with_the_schedule_at_its_end(
    time: Time, tmp_path: Path
) -> None:
    run(Timed(time, lambda n: 2.0 if n < 20 else 4.0), tmp_path, schedule=ScheduleConfig(warmup_ratio=0.0))
    assert time.seconds - 1000 <= 120
    found = rates(tmp_path)
    assert found == sorted(found, reverse=True)
    # The last step is one step above the schedule's end: 4 of 120 seconds, up to the first step, which the
    # schedule leaves out, and the step that did not fit any more.
    assert 0 < found[-1] <= 8 / 115


def test_equal_steps_have_the_learning_rates_of_a_run_by_steps(time: Time, tmp_path: Path) -> None:
    run(Timed(time, lambda n: 4.0), tmp_path / "minutes")
    by_steps = LoopConfig(steps=29, workers=0, chunk_tokens="whole", log_every=1)
    train(Toy(), batches, tmp_path / "steps", loop=by_steps, optim=AdamWConfig(lr=1.0))
    # The first step is no measure of time, so the other 29 are the schedule.
    assert rates(tmp_path / "minutes")[1:] == pytest.approx(rates(tmp_path / "steps"), rel=1e-6)


def test_the_most_steps_end_a_run_of_minutes_with_the_schedule_at_its_end(
    time: Time, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unsteady = [5.0, 1.0, 3.0, 2.0]  # seconds of a step
    assert run(Timed(time, lambda n: unsteady[n % 4]), tmp_path / "both", steps=11).step == 11
    by_steps = LoopConfig(steps=11, workers=0, chunk_tokens="whole", log_every=1)
    train(Toy(), batches, tmp_path / "steps", loop=by_steps, optim=AdamWConfig(lr=1.0))
    assert rates(tmp_path / "both") == rates(tmp_path / "steps"), "all fit, so the clock changes nothing"
    assert "too few" not in capsys.readouterr().err, "that many were wanted"
    assert run(Timed(time, lambda n: 4.0), tmp_path / "time", steps=1000).step == 30


def test_an_interrupted_run_goes_on_with_the_time_it_had_left(time: Time, tmp_path: Path) -> None:
    def pulled(step: int) -> Batch:
        if step == 13:
            raise OSError("pulled the plug")
        return batches(step)

    run(Timed(time, lambda n: 4.0), tmp_path / "straight")
    with pytest.raises(OSError, match="pulled the plug"):
        run(Timed(time, lambda n: 4.0), tmp_path / "broken", batches=pulled, checkpoint_every=8)
    time.seconds += 10_000
    found = run(Timed(time, lambda n: 4.0), tmp_path / "broken", checkpoint_every=8)
    assert found.step == 30
    assert (tmp_path / "broken" / "log.jsonl").read_bytes() == (
        tmp_path / "straight" / "log.jsonl"
    ).read_bytes()
    again = run(Timed(time, lambda n: 4.0), tmp_path / "broken", checkpoint_every=8)
    assert again.step == 30, "what is over stays over"


def test_evaluations_on_the_way_count_and_there_is_one_at_the_end(time: Time, tmp_path: Path) -> None:
    def evaluate(objective: Objective) -> Mapping[str, float]:
        time.seconds += 15
        return {"quality": 0.5}

    found = run(Timed(time, lambda n: 3.0), tmp_path, evaluate=evaluate, eval_every=10)
    evaluated = [line["step"] for line in read_log(tmp_path) if "evaluation" in line]
    assert evaluated == [10, 20, found.step]
    assert found.step == (120 - 2 * 15) // 3
    assert time.seconds - 1000 == 120 + 15, "the last evaluation comes after"


def test_no_number_of_steps_is_written_down_before_the_run(time: Time, tmp_path: Path) -> None:
    run(Timed(time, lambda n: 4.0), tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text()) == {"total": None, "chunk_tokens": None}


@pytest.mark.parametrize(("seconds", "said"), [(200.0, "only 1 step fitted"), (20.0, "only 6 steps fitted")])
def test_too_few_steps_are_said_loudly(
    seconds: float, said: str, time: Time, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Timed(time, lambda n: seconds), tmp_path)
    assert f"WARNING: {said} into 2 min" in capsys.readouterr().err
    events = [line["event"] for line in read_log(tmp_path) if "event" in line]
    assert any(said in event for event in events), "the log, and so the report, says it too"


def test_enough_steps_are_no_warning(time: Time, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Timed(time, lambda n: 6.0), tmp_path)
    assert "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("length", "threads"), [({"minutes": 1.0}, 1), ({"steps": 3}, 4), ({"steps": 3, "minutes": 1.0}, 4)]
)
def test_a_busy_machine_is_shared_by_a_run_of_minutes_alone(length, threads, tmp_path, monkeypatch):
    seen: list[int] = []

    class Stage(stage.TrainingStage[Any, Any]):
        label = "toy"

        def start(self) -> Any:
            return None

        def data(self, objective: Any) -> stage.Data:
            return stage.Data([], None)

        def save(self, objective: Any) -> None:
            pass

    config = SimpleNamespace(loop=LoopConfig(**length), optim=None, schedule=None)
    monkeypatch.setattr(stage, "train", lambda *args, **kwargs: seen.append(torch.get_num_threads()))
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setattr(machine, "others_load", lambda: 40.0)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        Stage(config, tmp_path, World()).run()
        assert (seen, torch.get_num_threads()) == ([threads], 4)
    finally:
        torch.set_num_threads(before)
