"""When a run stops: at its time limit (`Clock`), or when evaluations no longer improve (`EarlyStopping`).

With a time limit, the number of remaining steps is estimated after every step from how long the last ones took. The
learning rate follows the share of the time that has passed, so it decays in time whether steps become slower or faster.
A step starts only if one like those before it fits into the remaining time; the first two start while any time is left,
because the first is slower than all others. Everything up to the last step counts, including evaluations; the last
evaluation and the last checkpoint do not. All processes use the first one's clock. A run may also have a maximum
number of steps, which ends it if it is reached first; the schedule then follows the steps.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import monotonic as now
from typing import Any, Literal

from liebig.base.errors import TrainingError
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
        self._most, self._first = (sys.maxsize, UNKNOWN) if most is None else (most, most)
        self._start, self._began = now(), 0.0
        self._elapsed = self._trained = 0.0
        self._step: float | None = None  # mean of a step; that of the first alone until there is a second
        self._last = 0.0  # 0 until the second step: the first says little about it

    def begin(self) -> None:
        """A step begins, with waiting for its batch."""
        self._began = now()

    def end(self) -> None:
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

    def factor(self, schedule: ScheduleConfig, step: int) -> float:
        """Share of the highest learning rate for the coming step; of time only where not all steps fit into it."""
        if self._step is None:
            return build_schedule(schedule, self._first)(0)
        a_step = max(self._step, 1e-9)
        if (self._most - step) * a_step <= self._left:
            return build_schedule(schedule, self._most)(step)
        # The first step is no measure of time, so neither number counts it.
        total = max(1, min(self._most - 1, round((self._trained + max(0.0, self._left)) / a_step)))
        return build_schedule(schedule, total)(self._trained / a_step)

    def warning(self, step: int) -> str | None:
        """What a user must know of a run that had too few steps."""
        if step >= min(FEW, self._most) or self._step is None:
            return None
        steps = "step" if step == 1 else "steps"
        return (
            f"WARNING: only {step} {steps} fitted into {self._seconds / 60:.3g} min, too few for the training to "
            f"mean anything; give it {max(1, round(ENOUGH * self._step / 60))} min or more (about {ENOUGH} "
            "steps), or smaller batches"
        )

    def facts(self) -> dict[str, float | None]:
        spent = {"elapsed": now() - self._start, "trained": self._trained}
        return {**spent, "step": self._step, "last": self._last}

    def load(self, facts: Mapping[str, float]) -> None:
        """Resume from stored values: time since then is not counted."""
        self._start, self._elapsed = now() - facts["elapsed"], facts["elapsed"]
        self._trained, self._step, self._last = facts["trained"], facts["step"], facts["last"]

    @property
    def _left(self) -> float:
        return self._seconds - self._elapsed


@dataclass(frozen=True)
class Best:
    """The best value of the deciding measure, and its step."""

    step: int
    value: float


@dataclass
class EarlyStopping:
    """Compares evaluations by one `measure` (the first it sees if none is named)."""

    measure: str | None = None
    good: Literal["highest", "lowest"] = "highest"
    patience: int | None = None
    best: Best | None = None
    worse: int = 0

    def name(self, measured: Mapping[str, float]) -> str:
        """The measure that decides."""
        name = next(iter(measured)) if self.measure is None else self.measure
        if name not in measured:
            raise TrainingError(
                f"the evaluation has no measure {name!r}", fix=f"set best to one of {', '.join(measured)}"
            )
        return name

    def look(self, step: int, measured: Mapping[str, float]) -> bool:
        """Is this the best so far? NaN (a correlation of collapsed vectors) never is."""
        value = measured[self.name(measured)]
        sign = 1 if self.good == "highest" else -1
        better = not math.isnan(value) and (self.best is None or sign * value > sign * self.best.value)
        self.best = Best(step, value) if better else self.best
        self.worse = 0 if better else self.worse + 1
        return better

    @property
    def exhausted(self) -> str | None:
        """Why to stop, if patience has run out."""
        if self.patience is None or self.best is None or self.worse < self.patience:
            return None
        return f"the last {self.worse} evaluations were no better than that of step {self.best.step}"

    def facts(self) -> dict[str, Any]:
        return {"best": None if self.best is None else asdict(self.best), "worse": self.worse}

    def load(self, facts: Mapping[str, Any]) -> None:
        self.best = None if facts["best"] is None else Best(**facts["best"])
        self.worse = facts["worse"]
