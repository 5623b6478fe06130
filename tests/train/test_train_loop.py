"""The loop: what it logs, keeps, announces and refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from liebig.base.config import parse
from liebig.base.errors import CorruptError, RecipeError, TrainingError
from liebig.train import log as record, memory
from liebig.train.batch import Batch
from liebig.train.checkpoint import load_checkpoint
from liebig.train.distributed import ALONE
from liebig.train.gradients import global_norm
from liebig.train.guards import Collapse
from liebig.train.log import read_log
from liebig.train.loop import Epochs, LoopConfig, Trained, train
from liebig.train.objective import Objective, Represented
from liebig.train.optim import AdamWConfig, ASAMConfig, ScheduleConfig, Update
from liebig.train.step import StepResult
from tests.worlds.toy import Local, Toy, spans

OPTIM = AdamWConfig(lr=0.01)


def settings(**changes: Any) -> LoopConfig:
    values = {"steps": 6, "log_every": 2, "checkpoint_every": 3, "chunk_tokens": 40, "workers": 0}
    return LoopConfig(**(values | changes))


def batches(step: int) -> Batch:
    return spans(4, seed=1, step=step)


def run(objective: Objective, folder: Path, **changes: Any) -> Trained:
    arguments = {k: changes.pop(k) for k in ("evaluate", "epochs", "schedule") if k in changes}
    source = changes.pop("batches", batches)
    return train(objective, source, folder, loop=settings(**changes), optim=OPTIM, **arguments)


def weights(module: Objective) -> dict[str, torch.Tensor]:
    return {name: x.clone() for name, x in module.state_dict().items()}


def same(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_the_log_holds_every_loss_metric_and_setting_of_a_step(tmp_path: Path) -> None:
    found = run(Toy(), tmp_path, epochs=Epochs(3))
    lines = read_log(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 4, 6]
    last = lines[-1]
    assert set(last["losses"]) == {"mlm", "correct", "contrast"}
    assert {"accuracy", "alignment", "spread", "uniformity"} <= set(last["metrics"])
    assert last["loss"] == pytest.approx(0.7 * last["losses"]["mlm"] + 1.3 * last["losses"]["contrast"])
    assert (last["epoch"], last["chunk_tokens"], last["tokens"]) == (2.0, 40, found.tokens)
    assert 0 < last["lr"] < OPTIM.lr
    assert last["norm"] > 0
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert {"tokens_per_second", "seconds_per_step", "waiting", "chunks", "time"} <= set(timing[-1])


def test_the_gradient_is_clipped_as_the_recipe_says_and_its_norm_before_is_logged(tmp_path: Path) -> None:
    for limit in (1e-3, None):
        objective = Toy()
        run(objective, tmp_path / str(limit), steps=1, clip=limit)
        norm = global_norm([p.grad for p in objective.parameters() if p.grad is not None])
        logged = read_log(tmp_path / str(limit))[-1]["norm"]
        assert logged > 0.01
        assert norm.item() == pytest.approx(limit or logged, rel=1e-4)


def test_speed_and_waiting_are_those_since_the_line_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=50.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(record, "time", clock)
    recorder = record.Recorder(tmp_path, ALONE, "training", 0.0)
    recorder.open(0, 9, resumed=False)
    one = torch.ones(())
    update = Update(StepResult(one, {}, {}, {"tokens": 500}, chunks=1), norm=one, made=True)
    for step, seconds, waited in ((2, 4.0, 1.0), (4, 8.0, 7.0)):
        recorder.count(update)
        recorder.count(update)
        clock.now += seconds
        recorder.line(step, {}, 1, waited)
    recorder.close(done=True)
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    names = ("tokens_per_second", "seconds_per_step", "waiting")
    assert [tuple(line[name] for name in names) for line in timing] == [(250, 2, 0.25), (125, 4, 0.75)]


def test_a_line_holds_the_mean_since_the_line_before(tmp_path: Path) -> None:
    run(Toy(), tmp_path / "each", log_every=1)
    run(Toy(), tmp_path / "some", log_every=3)
    each = {line["step"]: line["loss"] for line in read_log(tmp_path / "each")}
    some = {line["step"]: line["loss"] for line in read_log(tmp_path / "some")}
    assert some[6] == pytest.approx((each[4] + each[5] + each[6]) / 3)


def test_a_run_continued_from_a_checkpoint_ends_like_one_that_never_stopped(tmp_path: Path) -> None:
    straight = Toy(dropout=0.2)
    run(straight, tmp_path / "straight", evaluate=lambda o: {"x": 1.0}, eval_every=2)

    def interrupting(step: int) -> Batch:
        if step == 4:
            raise OSError("pulled the plug")
        return batches(step)

    with pytest.raises(OSError, match="plug"):
        run(Toy(dropout=0.2), tmp_path / "broken", batches=interrupting,
            evaluate=lambda o: {"x": 1.0}, eval_every=2)  # fmt: skip
    resumed = Toy(dropout=0.2)
    run(resumed, tmp_path / "broken", evaluate=lambda o: {"x": 1.0}, eval_every=2)
    assert same(weights(straight), weights(resumed))
    assert read_log(tmp_path / "straight") == read_log(tmp_path / "broken")
    again = Toy(dropout=0.2)
    run(again, tmp_path / "broken")
    assert same(weights(straight), weights(again)), "a finished run is only loaded"


def test_a_damaged_checkpoint_costs_steps_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = Toy()
    run(straight, tmp_path)
    (tmp_path / "checkpoints" / "step-00000006" / "optimiser.safetensors").write_bytes(b"")
    resumed = Toy()
    run(resumed, tmp_path)
    assert same(weights(straight), weights(resumed))
    assert "step 6 is damaged" in capsys.readouterr().err
    for path in (tmp_path / "checkpoints").glob("step-*/state.json"):
        path.unlink()
    with pytest.raises(CorruptError):
        run(Toy(), tmp_path)


def test_there_is_always_a_checkpoint_at_the_end(tmp_path: Path) -> None:
    objective = Toy()
    run(objective, tmp_path, steps=5, checkpoint_every=1000)
    loaded = Toy()
    assert load_checkpoint(loaded, tmp_path, "newest") == 5
    assert same(weights(objective), weights(loaded))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stores_everything_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    straight = Toy(dropout=0.2)
    run(straight, tmp_path / "straight")

    def signalling(step: int) -> Batch:
        if step == 3:
            os.kill(os.getpid(), number)
        return batches(step)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 4 of 6"):
        run(Toy(dropout=0.2), tmp_path / "x", batches=signalling, checkpoint_every=1000)
    assert "the same command resumes" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    resumed = Toy(dropout=0.2)
    run(resumed, tmp_path / "x", checkpoint_every=1000)
    assert same(weights(straight), weights(resumed))
    assert read_log(tmp_path / "straight") == read_log(tmp_path / "x")


def test_a_loss_that_is_not_finite_stops_the_run_and_saves_the_batch(tmp_path: Path) -> None:
    class Broken(Local):
        def represent(self, chunk: Batch) -> Represented:
            found = super().represent(chunk)
            bad = torch.inf if self.steps == 3 else 1.0
            return Represented(found.vectors, {**found.terms, "mlm": found.terms["mlm"] * bad})

    with pytest.raises(TrainingError, match="mlm became infinite or NaN at step 4"):
        run(Broken(), tmp_path)
    saved = load_file(tmp_path / "bad-batch-step-4-rank-0.safetensors")
    assert torch.equal(saved["text.tokens"], batches(3).sides["text"].packed.tokens)
    assert load_checkpoint(Broken(), tmp_path, "newest") == 3


def test_a_collapse_is_announced_in_the_log_and_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Collapsing(Toy):
        def represent(self, chunk: Batch) -> Represented:
            found = super().represent(chunk)
            assert found.vectors is not None
            return found if self.steps < 3 else Represented(found.vectors * 1e-6 + 1, found.terms)

    run(Collapsing(), tmp_path, chunk_tokens="whole")
    events = [line["event"] for line in read_log(tmp_path) if "event" in line]
    assert len(events) == 1
    assert "collapsed" in events[0]
    assert "collapsed" in capsys.readouterr().err


def test_a_second_pass_that_does_not_repeat_the_first_is_announced_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Careless(Toy):
        def vectors(self, chunk: Batch) -> torch.Tensor:
            torch.rand(1)
            return super().vectors(chunk)

    run(Toy(dropout=0.4), tmp_path / "right", chunk_tokens=1)
    assert not [line for line in read_log(tmp_path / "right") if "event" in line]
    run(Careless(dropout=0.4), tmp_path / "wrong", chunk_tokens=1)
    assert [line["event"] for line in read_log(tmp_path / "wrong") if "event" in line] == [record.REPLAY]
    assert record.REPLAY in capsys.readouterr().err


def test_vectors_that_begin_alike_are_no_collapse() -> None:
    collapse = Collapse(0.05)
    assert "begin nearly alike" in (collapse.look(0.01) or "")
    assert collapse.look(0.01) is None
    assert "spread out again" in (collapse.look(0.5) or "")
    assert "have collapsed" in (collapse.look(0.01) or "")


def test_the_best_checkpoint_is_kept_and_can_be_loaded(tmp_path: Path) -> None:
    values = iter([0.1, 0.9, 0.3, 0.2])
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(objective: Objective) -> dict[str, float]:
        assert not objective.training
        seen.append(weights(objective))
        return {"other": 1.0, "mrr": next(values)}

    found = run(Toy(), tmp_path, steps=8, evaluate=evaluate, eval_every=2, best="mrr", keep=1)
    assert found.best is not None
    assert (found.best.step, found.best.value) == (4, 0.9)
    loaded = Toy()
    assert load_checkpoint(loaded, tmp_path, "best") == 4
    assert same(weights(loaded), seen[1])


def test_patience_ends_a_run_and_stays_ended(tmp_path: Path) -> None:
    values = iter([0.5, 0.6, 0.7, 0.4, 0.3])
    evaluate = lambda objective: {"loss": next(values)}  # noqa: E731
    options: dict[str, Any] = {"steps": 20, "eval_every": 2, "best_is": "lowest", "patience": 2}
    found = run(Toy(), tmp_path, evaluate=evaluate, **options)
    assert found.step == 6
    assert found.stopped is not None
    assert "no better than that of step 2" in found.stopped
    again = run(Toy(), tmp_path, evaluate=evaluate, **options)
    assert (again.step, again.stopped) == (6, found.stopped)


def test_an_unknown_measure_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="mrr, recall"):
        run(Toy(), tmp_path, evaluate=lambda o: {"mrr": 1, "recall": 2}, best="ndcg")


def test_running_out_of_memory_halves_the_budget_says_so_and_goes_on_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(Toy):
        def represent(self, chunk: Batch) -> Represented:
            if self.steps >= 1 and chunk.n > 2:
                raise torch.OutOfMemoryError("full")
            return super().represent(chunk)

    limited, plain = Full(), Toy()
    run(limited, tmp_path / "limited", chunk_tokens="whole")
    run(plain, tmp_path / "plain", chunk_tokens="whole")
    for name, x in weights(plain).items():
        torch.testing.assert_close(weights(limited)[name], x, rtol=1e-10, atol=1e-10)
    lines = read_log(tmp_path / "limited")
    events = [(line["step"], line["event"]) for line in lines if "event" in line]
    assert events
    assert events[0][0] == 2
    assert "out of memory" in capsys.readouterr().err
    budgets = [line["chunk_tokens"] for line in lines if "loss" in line]
    assert budgets[0] is None
    assert budgets[-1] is not None
    state = json.loads((tmp_path / "limited" / "checkpoints" / "step-00000006" / "state.json").read_text())
    assert state["facts"]["budget"]["tokens"] == budgets[-1]


@pytest.mark.parametrize("optim", [OPTIM, ASAMConfig(lr=0.01)])
def test_memory_that_comes_back_is_used_again_and_a_restart_waits_as_long(
    optim: AdamWConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shared(Toy):
        """Something else fills the memory from the second step to the fourth."""

        def represent(self, chunk: Batch) -> Represented:
            if 1 <= self.steps < 4 and chunk.n > 2:
                raise torch.OutOfMemoryError("full")
            return super().represent(chunk)

    class Killed(Exception):
        pass

    def killed(step: int) -> Batch:
        if step == 4:
            raise Killed
        return batches(step)

    monkeypatch.setattr(memory, "WAIT", 3)
    monkeypatch.setitem(globals(), "OPTIM", optim)
    options: dict[str, Any] = {"chunk_tokens": "whole", "steps": 12, "log_every": 1, "checkpoint_every": 1}
    once, twice = Shared(), Shared()
    run(once, tmp_path / "once", **options)
    said = capsys.readouterr().err
    assert "out of memory" in said
    assert "memory was sufficient for 3 steps: trying larger chunks again" in said
    with pytest.raises(Killed):
        run(Shared(), tmp_path / "twice", batches=killed, **options)
    run(twice, tmp_path / "twice", **options)
    assert same(weights(once), weights(twice))

    def budgets(folder: str) -> list[int | None]:
        return [line["chunk_tokens"] for line in read_log(tmp_path / folder) if "loss" in line]

    assert budgets("once") == budgets("twice")
    assert budgets("once")[0] is budgets("once")[-1] is None
    assert None not in budgets("once")[1:4]


def test_one_example_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    class Full(Toy):
        def represent(self, chunk: Batch) -> Represented:
            raise torch.OutOfMemoryError("full")

    with pytest.raises(TrainingError, match="one example alone"):
        run(Full(), tmp_path)


def test_epochs_begin_before_their_first_batch_and_once_after_a_restart(tmp_path: Path) -> None:
    happened: list[Any] = []

    def noted(step: int) -> Batch:
        happened.append(step)
        return batches(step)

    epochs = Epochs(2, lambda epoch: happened.append(f"epoch {epoch}"))
    run(Toy(), tmp_path, batches=noted, epochs=epochs, workers=0)
    assert happened == ["epoch 0", 0, 1, "epoch 1", 2, 3, "epoch 2", 4, 5]
    happened.clear()
    (tmp_path / "checkpoints" / "step-00000006" / "state.json").unlink()
    run(Toy(), tmp_path, batches=noted, epochs=epochs, workers=4)
    assert happened == ["epoch 1", 3, "epoch 2", *happened[3:]]
    assert sorted(happened[3:]) == [4, 5]


def test_epochs_give_the_number_of_steps(tmp_path: Path) -> None:
    loop = LoopConfig(epochs=1.5, workers=0, chunk_tokens="whole")
    found = train(Toy(), batches, tmp_path / "a", loop=loop, epochs=Epochs(4))
    assert found.step == 6
    with pytest.raises(TrainingError, match="the data is infinite"):
        train(Toy(), batches, tmp_path / "b", loop=loop)


def test_without_a_gpu_nothing_is_compiled_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Compiled(Toy):
        def compile(self, *args: Any, **kwargs: Any) -> None:
            raise AssertionError("needs a compiler, takes a minute, gains nothing")

    run(Compiled(), tmp_path, steps=1, compile=True)
    assert "not compiled" in capsys.readouterr().err


def test_threads_that_prepare_batches_change_nothing(tmp_path: Path) -> None:
    found = []
    for workers in (0, 3):
        objective = Toy(dropout=0.1)
        run(objective, tmp_path / str(workers), workers=workers)
        found.append(weights(objective))
    assert same(*found)


def test_recipes_with_two_lengths_or_two_warmups_are_refused() -> None:
    with pytest.raises(RecipeError, match="epochs and minutes"):
        parse(LoopConfig, {"epochs": 3, "minutes": 1})
    with pytest.raises(RecipeError, match="not both"):
        parse(ScheduleConfig, {"warmup_steps": 3, "warmup_ratio": 0.2})
    assert all(field.description for field in LoopConfig.model_fields.values())
