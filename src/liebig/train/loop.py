"""The training loop: one function for every objective, resumable at any moment.

A step is a pure function of the weights and the step number: its batch, its learning rate and its random numbers
all follow from them (in a run of minutes the learning rate follows the clock). So a checkpoint needs few
kinds of values (weights, moments, averages, counters), and a run that was killed and resumed ends with the same weights
and log as one that was not. The first process writes and prints.

Before the first step the number of steps and the chunk budget are fixed and written to `plan.json`, so a restart does
the same. A run in minutes has no fixed number of steps: its clock decides (`stopping.py`). Ctrl-C and SIGTERM are
noted; the step is finished and stored before the run ends, and a second signal acts at once.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from liebig.base.config import Config
from liebig.base.durable import atomic_write
from liebig.base.errors import TrainingError
from liebig.base.json_file import read_json
from liebig.base.rng import key
from liebig.model.kernels.captured import forget
from liebig.train.batch import Batch
from liebig.train.checkpoint import (
    Checkpoints,
    Snapshot,
    put_module,
    put_optimiser,
    take_module,
    take_optimiser,
)
from liebig.train.distributed import ALONE, World
from liebig.train.guards import Watch
from liebig.train.log import Recorder
from liebig.train.memory import Budget, find_budget, fitting
from liebig.train.objective import Objective
from liebig.train.optim import (
    AdamWConfig,
    Gradient,
    OptimConfig,
    ScheduleConfig,
    build_optimiser,
    build_schedule,
)
from liebig.train.precision import DTYPES, LossScaler, choose
from liebig.train.prefetch import Batches, Feed
from liebig.train.step import StepResult, forked, step as run_step
from liebig.train.stopping import UNKNOWN, Best, Clock, EarlyStopping


class LoopConfig(Config):
    """How long, in what pieces and how watched a model is trained."""

    steps: int | None = Field(
        default=None,
        ge=1,
        description="Training length in steps; give one of steps, epochs and minutes. With minutes: the maximum",
    )
    epochs: float | None = Field(
        default=None,
        gt=0,
        description="Training length in passes over the data [default: 1, if no length is given]",
    )
    minutes: float | None = Field(
        default=None,
        gt=0,
        description="Training length in minutes of wall-clock time; the learning rate schedule follows the clock, or "
        "the steps where all of them fit into the time",
    )
    batch: int = Field(default=64, ge=1, description="Number of examples per step, over all processes")
    chunk_tokens: int | Literal["auto", "whole"] = Field(
        default="auto",
        description="Number of tokens per forward pass; auto finds a good number, whole never splits a batch",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto",
        description="Autocast precision; weights stay in fp32. auto is bf16 on a GPU and fp32 on a CPU",
    )
    clip: float | None = Field(default=1.0, gt=0, description="Maximum global norm of the gradient")
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers of the run")
    log_every: int = Field(default=20, ge=1, description="Number of steps between log lines")
    eval_every: int | None = Field(
        default=None, ge=1, description="Number of steps between evaluations; there is always one at the end"
    )
    best: str | None = Field(
        default=None, description="Measure that decides which checkpoint is best [default: the first]"
    )
    best_is: Literal["highest", "lowest"] = Field(
        default="highest", description="Whether a higher or a lower value of the measure is better"
    )
    patience: int | None = Field(
        default=None, ge=1, description="Stop after this many evaluations without an improvement"
    )
    checkpoint_every: int = Field(
        default=1000, ge=1, description="Number of steps between checkpoints; there is always one at the end"
    )
    keep: int = Field(
        default=2, ge=1, description="Number of latest checkpoints to keep, besides the best one"
    )
    collapse: float = Field(
        default=0.05, ge=0, description="Warn of a collapse when the spread of the vectors falls below this"
    )
    workers: int = Field(
        default=2,
        ge=0,
        description="Number of threads that prepare batches in advance; 0 prepares them in the training thread",
    )
    compile: bool = Field(default=False, description="Compile the model with torch.compile")

    @model_validator(mode="after")
    def _one_length(self) -> LoopConfig:
        given = [name for name in ("steps", "epochs", "minutes") if getattr(self, name) is not None]
        if len(given) > 1 and given != ["steps", "minutes"]:
            raise ValueError(f"give one of steps, epochs and minutes, not {' and '.join(given)}")
        if isinstance(self.chunk_tokens, int) and self.chunk_tokens < 1:
            raise ValueError("chunk_tokens must be at least 1")
        return self


TIMED_STEPS, TIMED_SECONDS = 6, 20.0  # steps that are timed at most, and the time after which no other is
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """While entered, notes a signal in `requested` instead of ending. Only the main thread can listen."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self.__exit__()

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


PLAN = "plan.json"


@dataclass(frozen=True)
class StepPlan:
    """Steps of the run (None: by the clock), and tokens of a chunk at its start (None: whole batches)."""

    total: int | None
    chunk_tokens: int | None


Evaluate = Callable[[Objective], Mapping[str, float]]


@dataclass(frozen=True)
class Trained:
    """Where a run ended: its steps, its tokens, the best evaluation, and why it stopped before its end."""

    step: int
    tokens: int
    best: Best | None
    stopped: str | None = None


@dataclass(frozen=True)
class Epochs:
    """How many steps an epoch has, and what to do before one begins (and once after a restart)."""

    steps: int
    begin: Callable[[int], None] | None = None


def train(
    objective: Objective,
    batches: Batches,
    folder: Path,
    *,
    loop: LoopConfig,
    optim: OptimConfig | None = None,
    schedule: ScheduleConfig | None = None,
    world: World = ALONE,
    epochs: Epochs | None = None,
    evaluate: Evaluate | None = None,
    label: str = "training",
) -> Trained:
    """Train the objective in place; `folder` gets the log and the checkpoints, and a run in it is resumed.

    `batches(step)` is this process's share of a batch, a function of the step alone. `evaluate` runs in every
    process, with averaged weights where there are any; those are also what the objective ends with.
    """
    run = _Training(objective, folder, loop, optim or AdamWConfig(), world, epochs, label)
    done = False
    with Stop() as stop:
        try:
            run.prepare(batches, schedule or ScheduleConfig())
            stopped = run.all_steps(batches, evaluate, stop)
            done = True
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                "out of memory: weights, gradients, optimiser state and evaluation do not fit",
                fix="use a smaller model",
            ) from error
        finally:
            run.close(done)
    return Trained(run.step, run.tokens, run.stopping.best, stopped)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, steps of an epoch, and parameters of the objective."""

    seconds: float
    epoch_steps: int
    parameters: int


def time_steps(
    objective: Objective,
    batches: Batches,
    folder: Path,
    epochs: Epochs,
    *,
    loop: LoopConfig,
    optim: OptimConfig,
) -> StepTime:
    """Time a few steps of a run; the first is not counted, because it is slower than all others."""
    run = _Training(objective, folder, loop, optim, ALONE, epochs, "timing")
    seconds: list[float] = []
    try:
        run.prepare(batches, ScheduleConfig())
        while len(seconds) < 2 or (len(seconds) < TIMED_STEPS and sum(seconds) < TIMED_SECONDS):
            began = monotonic()
            run._enter(0)
            run._one(batches(run.step))
            run.watch.settle()  # waits for the device
            seconds.append(monotonic() - began)
    finally:
        run.close(True)
    return StepTime(min(seconds[1:]), epochs.steps, sum(p.numel() for p in objective.parameters()))


class _Training:
    """A run under way."""

    def __init__(
        self,
        objective: Objective,
        folder: Path,
        loop: LoopConfig,
        optim: OptimConfig,
        world: World,
        epochs: Epochs | None,
        label: str,
    ) -> None:
        self.objective = objective
        self.folder = folder
        self.loop = loop
        self.world = world
        self.epochs = epochs
        objective.to(world.device).train()
        if loop.compile and world.device.type == "cuda":
            objective.compile()
        precision = choose(loop.precision, world.device)
        self.dtype = DTYPES[precision]
        self.scaler = LossScaler(precision == "fp16")
        self.budget = Budget(None)
        self.optimiser = build_optimiser(optim, objective, clip=loop.clip, scaler=self.scaler)
        self.lr = optim.lr
        self.checkpoints = Checkpoints(folder / "checkpoints", loop.keep)
        self.watch = Watch(folder, world)
        self.stopping = EarlyStopping(loop.best, loop.best_is, loop.patience)
        self.recorder = Recorder(folder, world, label, loop.collapse)
        self.clock = None if loop.minutes is None else Clock(60 * loop.minutes, world, loop.steps)
        self.step = self.tokens = self.total = 0
        self.stored: int | None = None
        self.evaluated: int | None = None
        self.entered: int | None = None
        self.feed: Feed | None = None

    def prepare(self, batches: Batches, schedule: ScheduleConfig) -> None:
        """Resume from what the folder holds, or fix what has to be fixed before the first step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.loop.compile and self.world.device.type != "cuda":
            self.recorder.remark("not compiled: without a GPU that takes a minute and gains nothing")
        snapshot = self._newest()
        if snapshot is not None:
            self._restore(snapshot)
        else:
            self._plan(batches)
        self.factor = self._factor(schedule)
        total = self.total if self.clock is None else None  # not known before the first step
        evaluates = self.evaluated != self.step
        self.recorder.open(self.step, total, snapshot is not None, evaluates)

    def _factor(self, schedule: ScheduleConfig) -> Callable[[int], float]:
        """Share of the highest learning rate at a step."""
        clock = self.clock
        if clock is None:
            return build_schedule(schedule, self.total)
        return lambda step: clock.factor(schedule, step)

    def all_steps(self, batches: Batches, evaluate: Evaluate | None, stop: Stop) -> str | None:
        """From where the run is to its end; returns why it ended early, if it did."""
        self.feed = Feed(batches, self.loop.workers, pin=self.world.device.type == "cuda")
        if evaluate is not None and self.step and self.evaluated != self.step and self._is_due():
            self._evaluate(evaluate)  # the run ended between its checkpoint and its evaluation
        while self.step < self.total and self.stopping.exhausted is None:
            if self.clock is not None:
                self.clock.begin()
            epoch, until = self._epoch()
            self._enter(epoch)
            self._one(self.feed.get(self.step, until))
            if evaluate is not None and self._is_due():
                self._store()
                self._evaluate(evaluate)
            elif self.step % self.loop.checkpoint_every == 0:
                self._store()
            if self.world.any(stop.requested):
                self._break_off()
        self._finish()
        return self.stopping.exhausted if self.step < self.total else None

    def _epoch(self) -> tuple[int, int]:
        """The epoch of the coming step, and the first step whose batch must not be prepared yet."""
        if self.epochs is None:
            return 0, self.total
        epoch = self.step // self.epochs.steps
        ahead = self.total if self.epochs.begin is None else (epoch + 1) * self.epochs.steps
        return epoch, min(self.total, ahead)

    def _enter(self, epoch: int) -> None:
        """Let an epoch begin, once."""
        if self.epochs is not None and self.epochs.begin is not None and epoch != self.entered:
            self.epochs.begin(epoch)
        self.entered = epoch

    def _one(self, batch: Batch) -> None:
        """One step, and its line of the log where it gets one."""
        done = self.step + 1
        diagnosed = done % self.loop.log_every == 0 or done in (1, self.total)
        lr = self.lr * self.factor(self.step)
        update = self.optimiser.update(self._gradient(batch, self.step, diagnosed), lr)
        if update.made:
            self.objective.after_step()
        self.step, self.tokens = done, self.tokens + update.result.counts["tokens"]
        self.watch.put(done, batch, update)
        self.recorder.count(update)
        self._read_clock()
        if diagnosed or done == self.total:
            self.watch.settle()
            place = {} if self.epochs is None else {"epoch": done / self.epochs.steps}
            facts = {"lr": lr, "tokens": self.tokens, "chunk_tokens": self.budget.tokens, **place}
            waited = self.feed.waited if self.feed is not None else 0.0
            self.recorder.line(done, facts, update.result.chunks, waited)
        if self.clock is not None and done == self.total and (said := self.clock.warning(done)) is not None:
            self.recorder.announce(done, said)

    def _read_clock(self) -> None:
        """After a step: how many there will be, where the clock decides."""
        if self.clock is not None:
            self.clock.end()
            self.total = self.clock.total(self.step)
            self.recorder.expect(self.total)

    def _gradient(self, batch: Batch, number: int, diagnose: bool = False) -> Gradient:
        """The gradient of step `number`, with chunks that fit, as the optimiser asks for it (SAM twice)."""
        if (said := self.budget.again(self.world)) is not None:
            self._announce(said)

        def gradient(constants: Tensor | None) -> StepResult:
            return fitting(
                lambda tokens: self._run(batch, number, tokens, constants, diagnose),
                self.budget, batch, self.world, self._announce,
            )  # fmt: skip

        return gradient

    def _run(
        self,
        batch: Batch,
        number: int,
        tokens: int | None,
        constants: Tensor | None = None,
        diagnose: bool = False,
    ) -> StepResult:
        return run_step(
            self.objective,
            batch,
            self.world,
            chunk_tokens=tokens,
            dtype=self.dtype,
            scale=self.scaler.factor,
            seed=int(key(self.loop.seed, number) >> 1),
            constants=constants,
            diagnose=diagnose,
        )

    def _announce(self, said: str) -> None:
        """Something about the step under way; before the first one there is no log to write it to."""
        if self.total:
            self.recorder.announce(self.step + 1, said)
        else:
            self.recorder.remark(said)

    def _is_due(self) -> bool:
        every = self.loop.eval_every
        return self.step == self.total or bool(every and self.step % every == 0)

    def _evaluate(self, evaluate: Evaluate) -> None:
        """Evaluate the weights that were just stored, and add the result to their checkpoint."""
        self.objective.eval()
        forget()  # an evaluation may need the memory of graphs
        with torch.no_grad(), forked(self.world.device):
            measured = self.world.told(evaluate(self.objective))
        self.objective.train()
        better = self.stopping.look(self.step, measured)
        self.recorder.evaluation(self.step, measured, self.stopping.name(measured), better)
        if self.clock is not None and self.step < self.total:
            self.total = self.clock.total(self.step)  # the evaluation took its time
        if self.stopping.exhausted is not None:
            self.recorder.announce(self.step, f"stopping at step {self.step}: {self.stopping.exhausted}")
        self.evaluated = self.step
        if self.world.first:
            self.recorder.sync()
            self.checkpoints.update(self.step, self._facts(), self.stopping.best if better else None)

    def _break_off(self) -> None:
        """A signal came: store everything, say how to resume, and end."""
        if self.stored != self.step:
            self._store()
        self.checkpoints.wait()
        said = f"stopped at step {self.step} of {self.total}, all stored: the same command resumes from there"
        self.recorder.remark(said)
        raise KeyboardInterrupt(said)

    def _finish(self) -> None:
        self.watch.settle()
        if self.stored != self.step:
            self._store()
        self.checkpoints.wait()
        self.world.barrier()

    def _store(self) -> None:
        """Copy everything to host memory now, and write it in the background."""
        self.watch.settle()
        self.stored = self.step
        if not self.world.first:
            return
        tensors = {
            "objective": take_module(self.objective),
            "optimiser": take_optimiser(self.optimiser.adamw),
        }
        self.recorder.sync()
        self.checkpoints.save(Snapshot(self.step, tensors, self._facts()))

    def _facts(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "tokens": self.tokens,
            "evaluated": self.evaluated,
            "budget": asdict(self.budget),
            "random": {"seed": self.loop.seed, "step": self.step},
            "scaler": asdict(self.scaler),
            "stopping": self.stopping.facts(),
            "recorder": self.recorder.facts(),
            "processes": self.world.size,
            **({} if self.clock is None else {"clock": self.clock.facts()}),
        }

    def _newest(self) -> Snapshot | None:
        """The newest whole checkpoint, the same in every process."""
        snapshot = None
        if self.world.first:
            self.checkpoints.tidy()
            snapshot = self.checkpoints.newest(self.recorder.remark)
        step = self.world.largest(-1 if snapshot is None else snapshot.step)
        return snapshot if snapshot is not None or step < 0 else self.checkpoints.read(step)

    def _restore(self, snapshot: Snapshot) -> None:
        facts = snapshot.facts
        put_module(self.objective, snapshot.tensors["objective"], self.checkpoints.path(snapshot.step))
        put_optimiser(self.optimiser.adamw, snapshot.tensors["optimiser"])
        self.step = self.stored = snapshot.step
        self.total, self.tokens, self.evaluated = facts["total"], facts["tokens"], facts["evaluated"]
        self.budget = Budget(**facts["budget"])
        self.scaler.scale, self.scaler.good = facts["scaler"]["scale"], facts["scaler"]["good"]
        self.stopping.load(facts["stopping"])
        self.recorder.load(facts["recorder"])
        if self.clock is not None:
            self.clock.load(facts["clock"])
        if self.world.first:
            # The mark is written after the result: a kill in between leaves it one evaluation behind.
            self.checkpoints.mark(self.stopping.best)
        if facts["processes"] != self.world.size:
            self.recorder.remark(
                f"the run began with {facts['processes']} processes and continues with {self.world.size}: "
                "the same batches, but other dropout"
            )

    def _plan(self, batches: Batches) -> None:
        """Fix the chunk budget, and the number of steps where the clock does not decide it, as before or anew."""
        path = self.folder / PLAN
        if self.world.any(path.is_file()):
            plan = read_json(path, StepPlan)
        else:
            plan = StepPlan(self._steps(), self._chunk_tokens(batches))
            if self.world.first:
                atomic_write(path, (json.dumps(asdict(plan)) + "\n").encode())
            self.world.barrier()
        self.budget.tokens = plan.chunk_tokens
        self.total = min(UNKNOWN, self.loop.steps or UNKNOWN) if plan.total is None else plan.total

    def _steps(self) -> int | None:
        """The length of the run, one epoch by default; None where the clock decides."""
        if self.clock is not None:
            return None
        if self.loop.steps is not None:
            return self.loop.steps
        if self.epochs is None:
            raise TrainingError(
                "the data is infinite, so its length cannot be counted in epochs", fix="set steps or minutes"
            )
        return max(1, round((self.loop.epochs or 1.0) * self.epochs.steps))

    def _chunk_tokens(self, batches: Batches) -> int | None:
        """Tokens of a chunk at the start, by trial where the recipe leaves them open; None is the whole batch."""
        given = self.loop.chunk_tokens
        if given != "auto":
            return None if given == "whole" else given
        self._enter(0)
        batch = batches(0)
        moments = 8 * sum(p.numel() for p in self.optimiser.parameters)
        return find_budget(lambda tokens: self._run(batch, 0, tokens), batch, self.world, moments)

    def close(self, done: bool) -> None:
        if self.feed is not None:
            self.feed.close()
        self.checkpoints.close()
        self.recorder.close(done)
