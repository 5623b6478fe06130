"""Early stopping: which evaluation was best so far, and whether patience has run out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from liebig.base.errors import TrainingError


@dataclass(frozen=True)
class Best:
    """The best value of the deciding measure, and its step."""

    step: int
    value: float


@dataclass
class Judge:
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
        """What a checkpoint keeps."""
        return {"best": None if self.best is None else asdict(self.best), "worse": self.worse}

    def load(self, facts: Mapping[str, Any]) -> None:
        """Go on from stored facts."""
        self.best = None if facts["best"] is None else Best(**facts["best"])
        self.worse = facts["worse"]
