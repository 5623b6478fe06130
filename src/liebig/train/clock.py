"""A run with a time limit: when it ends, how many steps that will be, and where its schedule is.

The steps left are estimated anew after every step, from how long the last ones took. The learning rate follows the
share of the training time that is over, so it comes down in time whether the steps become slower or faster. A step
begins only if one like those before it fits into what is left; the first two begin while any time is left, because
the first is slower than all others. Everything up to the last step counts, evaluations on the way too; the last
evaluation and the last checkpoint do not. The first process's clock is everybody's. A run may also have a largest
number of steps, which ends it if that is reached first; the schedule then follows the steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import monotonic as now

from liebig.train.distributed import World
from liebig.train.optim import ScheduleConfig, build_schedule

FEW = 20  # steps below which a training means nothing
UNKNOWN = 100  # steps a run is taken to have before one was timed
ENOUGH = 200  # steps that are advised to a run that had too few
SMOOTHING = 0.2  # weight of the last step in the mean of their times


class Clock:
    """Seconds of a run: those it has, those it spent, and those of a step; it ends after `most` steps in any case."""

    def __init__(self, seconds: float, world: World, most: int | None = None) -> None:
        self._seconds, self._world = seconds, world
        self._most = sys.maxsize if most is None else most
        self._start, self._began = now(), 0.0
        self._elapsed = self._trained = 0.0
        self._step: float | None = None  # mean of a step; that of the first alone until there is a second
        self._last = 0.0  # 0 until the second step: the first says little about it

    def begin(self) -> None:
        """A step begins, with waiting for its batch."""
        self._began = now()

    def end(self) -> None:
        """The step is over."""
        took = self._world.told({"took": now() - self._began})["took"]
        if self._step is None:
            self._step = took
            return
        first = self._trained == 0.0
        self._step = took if first else self._step + SMOOTHING * (took - self._step)
        self._trained, self._last = self._trained + took, took

    def total(self, step: int) -> int:
        """The steps of the whole run after `step` of them; `step` itself where no other fits."""
        self._elapsed = self._world.told({"elapsed": now() - self._start})["elapsed"]
        assert self._step is not None, "a step was timed"
        if self._left <= 0 or (self._last > 0 and max(self._step, self._last) > self._left):
            return step
        return min(self._most, step + max(1, int(self._left / max(self._step, 1e-9))))

    def factor(self, schedule: ScheduleConfig) -> float:
        """Share of the highest learning rate for the coming step."""
        if self._step is None:
            return build_schedule(schedule, min(self._most, UNKNOWN))(0)
        a_step = max(self._step, 1e-9)
        # The first step is no measure of time, so neither number counts it.
        total = max(1, min(self._most - 1, round((self._trained + max(0.0, self._left)) / a_step)))
        return build_schedule(schedule, total)(self._trained / a_step)

    def warning(self, step: int) -> str | None:
        """What a user must know of a run that had too few steps."""
        if step >= min(FEW, self._most) or self._step is None:
            return None
        steps = "step" if step == 1 else "steps"
        return (
            f"WARNING: only {step} {steps} fitted into {self._seconds / 60:.3g} minutes, too few for the training to "
            f"mean anything; give it {max(1, round(ENOUGH * self._step / 60))} minutes or more (about {ENOUGH} "
            "steps), or smaller batches"
        )

    def facts(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        spent = {"elapsed": now() - self._start, "trained": self._trained}
        return {**spent, "step": self._step, "last": self._last}

    def load(self, facts: Mapping[str, float]) -> None:
        """Go on from stored facts: what was spent since is not counted."""
        self._start, self._elapsed = now() - facts["elapsed"], facts["elapsed"]
        self._trained, self._step, self._last = facts["trained"], facts["step"], facts["last"]

    @property
    def _left(self) -> float:
        return self._seconds - self._elapsed
