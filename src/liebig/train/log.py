"""The log of a run: JSON lines that a resumed run continues as if nothing had happened.

`log.jsonl` holds step, losses, metrics, evaluations and events; it is the source of truth and is
equal, byte for byte, for an interrupted and an uninterrupted run. `timing.jsonl` holds times and speeds.

Values are averaged between two lines without waiting for the device. A collapse of the vectors, and a second pass that
does not repeat the first, are announced on the screen and in the log. Only the first process writes and prints.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from liebig.base.durable import atomic_write
from liebig.base.errors import CorruptError
from liebig.base.progress import Progress, quantity
from liebig.train.distributed import World
from liebig.train.guards import Collapse
from liebig.train.optim import Update
from liebig.train.precision import wide

LOG, TIMING = "log.jsonl", "timing.jsonl"


class RunLog:
    """Writes both files; lines of steps after `step` are taken back when a run is resumed from there.

    With `evaluates`, the evaluation of `step` is taken back too: it will be made again.
    """

    def __init__(self, folder: Path, step: int, evaluates: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _cut(folder / LOG, step, evaluates)
        self._log = (folder / LOG).open("a", encoding="utf-8")
        self._timing = (folder / TIMING).open("a", encoding="utf-8")

    def line(self, step: int, **values: Any) -> None:
        _write(self._log, {"step": step, **values})

    def timing(self, step: int, **values: Any) -> None:
        """One line about time, speed and memory."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        _write(self._timing, {"step": step, "time": now, **values})

    def sync(self) -> None:
        """Make sure the log is on disk, so that no checkpoint is ahead of it."""
        os.fsync(self._log.fileno())

    def close(self) -> None:
        self._log.close()
        self._timing.close()


class Means:
    """Means of named values since the last line, added up where they are so that nothing waits for them."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            value = wide(value)
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means and start again from zero."""
        means = {name: total / self._counts[name] for name, total in self._floats().items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> dict[str, tuple[float, int]]:
        """Sums and counts, for a checkpoint between two lines."""
        return {name: (total, self._counts[name]) for name, total in self._floats().items()}

    def load(self, state: Mapping[str, Sequence[Any]], device: torch.device) -> None:
        self._counts = {name: count for name, (_, count) in state.items()}
        self._sums = {
            name: wide(torch.zeros((), device=device)).fill_(total) for name, (total, _) in state.items()
        }

    def _floats(self) -> dict[str, float]:
        if not self._sums:
            return {}
        return dict(zip(self._sums, torch.stack(list(self._sums.values())).tolist()))


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; a last line cut off by a kill is left out."""
    path = folder / LOG
    return _lines(path) if path.is_file() else []


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        rows = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        rows = [None]
    if not all(isinstance(row, dict) and isinstance(row.get("step"), int) for row in rows):
        raise CorruptError("is damaged: a line is not a record of a step", file=path, fix="train again")
    return rows


def _cut(path: Path, step: int, evaluates: bool) -> None:
    if path.is_file():
        kept = [line for line in _lines(path) if line["step"] <= step]
        ends = (i for i, line in enumerate(kept) if line["step"] == step and "evaluation" in line)
        kept = kept[: next(ends, None)] if evaluates else kept
        atomic_write(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def _write(file: TextIO, value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()


def warnings_of(folder: Path) -> list[str]:
    """The warnings that a training run left in its log."""
    events = [str(line["event"]) for line in read_log(folder) if "event" in line]
    return [event for event in events if event.startswith("WARNING")]


REPLAY_LIMIT = 0.05
REPLAY = (
    "the second pass over a chunk does not repeat the first: the objective's `vectors` draws other random numbers "
    "than its `represent`, and the cached gradient is wrong"
)


class Recorder:
    """Writes, shows and announces; silent in every process but the first."""

    def __init__(self, folder: Path, world: World, label: str, collapse: float) -> None:
        self._folder, self._world = folder, world
        self._bar = Progress(label)
        self._log: RunLog | None = None
        self._means, self._collapse, self._warned = Means(), Collapse(collapse), False
        self._remarks: list[str] = []
        self._began, self._tokens, self._steps, self._waited = time.monotonic(), 0, 0, 0.0

    def open(self, step: int, total: int | None, resumed: bool, evaluates: bool = False) -> None:
        """Begin after `step` steps; `evaluates` says that the last one was not evaluated yet."""
        if not self._world.first:
            return
        self._log = RunLog(self._folder, step, evaluates)
        if resumed:
            self._remarks.append(f"resumed after step {step} with {self._world.size} processes")
        for remark in self._remarks:
            self._log.timing(step, event=remark)
        self._bar = Progress(self._bar.label, total, "steps", start=step)
        self._bar.__enter__()
        self._began = time.monotonic()

    def expect(self, total: int) -> None:
        """That many steps are expected now."""
        self._bar.total = total

    def remark(self, said: str) -> None:
        """On the screen and in the timing file: true of this run of the program only."""
        if self._world.first:
            self._bar.say(said)
            self._remarks.append(said)

    def announce(self, step: int, said: str) -> None:
        """On the screen and in the log: true of the training."""
        if self._log is not None:
            self._bar.say(said)
            self._log.line(step, event=said)

    def count(self, update: Update) -> None:
        if self._log is None:
            return
        result = update.result
        self._means.add({"loss": result.loss})
        if update.made:  # the norm of an overflow says nothing, and no number in JSON can say it
            self._means.add({"norm": update.norm})
        self._means.add({f"losses/{name}": x for name, x in result.losses.items()})
        self._means.add({f"metrics/{name}": x for name, x in result.metrics.items()})
        self._tokens += result.counts["tokens"]
        self._steps += 1
        self._bar.advance()

    def line(self, step: int, facts: Mapping[str, Any], chunks: int, waited: float) -> None:
        """One line of the log, of the timing file and of the screen."""
        if self._log is None:
            return
        means = self._means.take()
        losses, metrics = _group(means, "losses/"), _group(means, "metrics/")
        self._log.line(
            step, loss=means["loss"], losses=losses, metrics=metrics, norm=means.get("norm"), **facts
        )
        speed = self._speed(waited)
        self._log.timing(step, chunks=chunks, **speed, **_memory(self._world.device))
        rate = quantity(speed["tokens_per_second"])
        self._bar.note(f"loss {means['loss']:.4g}, {rate} tokens/s, {speed['waiting']:.0%} waiting for data")
        self._look(step, metrics)

    def evaluation(self, step: int, measured: Mapping[str, float], name: str, better: bool) -> None:
        """What an evaluation found; `name` is the measure that decides."""
        if self._log is not None:
            self._log.line(step, evaluation=dict(measured), best=better)
            self._bar.say(
                f"step {step}: {name} {measured[name]:.4f}" + (", the best so far" if better else "")
            )

    def sync(self) -> None:
        if self._log is not None:
            self._log.sync()

    def close(self, done: bool) -> None:
        """End the line on the screen, and the files."""
        if self._log is not None:
            self._bar.__exit__(None if done else KeyboardInterrupt, None, None)
            self._log.close()
            self._log = None

    def facts(self) -> dict[str, Any]:
        return {
            "means": self._means.state(),
            "collapsed": self._collapse.collapsed,
            "began": self._collapse.began,
            "warned": self._warned,
        }

    def load(self, facts: Mapping[str, Any]) -> None:
        self._means.load(facts["means"], self._world.device)
        self._collapse.collapsed, self._collapse.began = facts["collapsed"], facts["began"]
        self._warned = facts["warned"]

    def _look(self, step: int, metrics: Mapping[str, float]) -> None:
        said = self._collapse.look(metrics["spread"]) if "spread" in metrics else None
        if said is not None:
            self.announce(step, said)
        if metrics.get("replay", 0.0) > REPLAY_LIMIT and not self._warned:
            self._warned = True
            self.announce(step, REPLAY)

    def _speed(self, waited: float) -> dict[str, float]:
        """Rates since the line before."""
        now = time.monotonic()
        seconds = max(1e-9, now - self._began)
        rates = {
            "tokens_per_second": self._tokens / seconds,
            "seconds_per_step": seconds / max(1, self._steps),
            "waiting": min(1.0, (waited - self._waited) / seconds),
        }
        self._began, self._tokens, self._steps, self._waited = now, 0, 0, waited
        return rates


def _group(means: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name[len(prefix) :]: x for name, x in means.items() if name.startswith(prefix)}


def _memory(device: torch.device) -> dict[str, float]:
    if device.type != "cuda":
        return {}
    return {"peak_gib": torch.cuda.max_memory_allocated(device) / 2**30}
