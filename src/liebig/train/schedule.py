"""Learning-rate schedules as functions of the step: nothing to store, nothing to restore.

Step 0 is the first update; the warm-up rises from 1/w to 1 over w steps, and the last step of a falling schedule
is one step above its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from liebig.train.config import ScheduleConfig

Shape = Callable[[float], float]


def linear(progress: float) -> float:
    """From 1 to 0 in a straight line."""
    return 1 - progress


def cosine(progress: float) -> float:
    """From 1 to 0 along half a cosine."""
    return (1 + math.cos(math.pi * progress)) / 2


def constant(progress: float) -> float:
    """1 throughout."""
    return 1.0


def trapezoid(share: float) -> Shape:
    """1, and a straight line down to 0 over the last `share` of the way."""
    return lambda progress: min(1.0, (1 - progress) / share)


def factor(step: float, total: int, *, shape: Shape, warmup: int, final: float = 0.0) -> float:
    """Share of the highest learning rate at `step` of `total`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (1 - final) * shape(progress)


def build(config: ScheduleConfig, total: int) -> Callable[[float], float]:
    """The schedule of a recipe for a run of `total` steps."""
    warmup = config.warmup_steps if config.warmup_steps is not None else round(config.warmup_ratio * total)
    shapes: dict[str, Shape] = {
        "linear": linear,
        "cosine": cosine,
        "constant": constant,
        # The fall takes its share of all steps, while progress counts those after the warm-up.
        "trapezoid": trapezoid(min(1.0, config.decay_ratio * total / max(1, total - warmup))),
    }
    return lambda step: factor(step, total, shape=shapes[config.kind], warmup=warmup, final=config.final)
