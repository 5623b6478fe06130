"""Everything a run says: the log, the progress line, announcements. Only the first process speaks.

Values are averaged between two lines of the log without waiting for the device. A collapse of the vectors and a
second pass that does not repeat the first are announced on the screen and in the log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from liebig.progress import Progress, quantity
from liebig.train.distributed import World
from liebig.train.log import Means, RunLog
from liebig.train.optim import Update
from liebig.train.watch import Collapse

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

    def open(self, step: int, total: int | None, trackers: tuple[str, ...], resumed: bool) -> None:
        """Begin after `step` steps."""
        if not self._world.first:
            return
        self._log = RunLog(self._folder, step, trackers)
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
        """Take in one step."""
        if self._log is None:
            return
        found = update.result
        self._means.add({"loss": found.loss})
        if update.made:  # the norm of an overflow says nothing, and no number in JSON can say it
            self._means.add({"norm": update.norm})
        self._means.add({f"losses/{name}": x for name, x in found.losses.items()})
        self._means.add({f"metrics/{name}": x for name, x in found.metrics.items()})
        self._tokens += found.counts["tokens"]
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
        """Make sure the log is on disk."""
        if self._log is not None:
            self._log.sync()

    def close(self, done: bool) -> None:
        """End the line on the screen, and the files."""
        if self._log is not None:
            self._bar.__exit__(None if done else KeyboardInterrupt, None, None)
            self._log.close()
            self._log = None

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "means": self._means.state(),
            "collapsed": self._collapse.collapsed,
            "began": self._collapse.began,
            "warned": self._warned,
        }

    def load(self, facts: Mapping[str, Any]) -> None:
        """Go on from stored facts."""
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
        found = {
            "tokens_per_second": self._tokens / seconds,
            "seconds_per_step": seconds / max(1, self._steps),
            "waiting": min(1.0, (waited - self._waited) / seconds),
        }
        self._began, self._tokens, self._steps, self._waited = now, 0, 0, waited
        return found


def _group(means: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name[len(prefix) :]: x for name, x in means.items() if name.startswith(prefix)}


def _memory(device: torch.device) -> dict[str, float]:
    if device.type != "cuda":
        return {}
    return {"peak_gib": torch.cuda.max_memory_allocated(device) / 2**30}
