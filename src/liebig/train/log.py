"""The log of a run: JSON lines that a resumed run continues as if nothing had happened.

`log.jsonl` holds what the numbers are: step, losses, metrics, evaluations, events; it is the source of truth and
is equal, byte for byte, for an interrupted and an uninterrupted run. `timing.jsonl` holds what the clock says.
TensorBoard and trackio get the same values when asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from liebig.errors import MissingDependency
from liebig.workspace import atomic_write

LOG, TIMING = "log.jsonl", "timing.jsonl"
Tracker = Callable[[int, Mapping[str, float]], None]


class RunLog:
    """Writes both files; lines of steps after `step` are taken back when a run is resumed from there."""

    def __init__(self, folder: Path, step: int, trackers: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _cut(folder / LOG, step)
        self._log, self._timing = (folder / LOG).open("a"), (folder / TIMING).open("a")
        self._trackers = [TRACKERS[name](folder, step) for name in trackers]

    def line(self, step: int, **values: Any) -> None:
        """One line of the log; numbers in it go to the trackers too."""
        _write(self._log, {"step": step, **values})
        numbers = dict(_flat(values))
        for tracker in self._trackers:
            tracker(step, numbers)

    def timing(self, step: int, **values: Any) -> None:
        """One line about time, speed and memory."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        _write(self._timing, {"step": step, "time": now, **values})

    def sync(self) -> None:
        """Make sure the log is on disk, so that no checkpoint is ahead of it."""
        os.fsync(self._log.fileno())

    def close(self) -> None:
        """Close both files."""
        self._log.close()
        self._timing.close()


class Means:
    """Means of named values since the last line, added up where they are so that nothing waits for them."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        """One step's values."""
        for name, value in values.items():
            value = value.detach().double()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means, and begin anew."""
        found = {name: total / self._counts[name] for name, total in self._floats().items()}
        self._sums, self._counts = {}, {}
        return found

    def state(self) -> dict[str, tuple[float, int]]:
        """Sums and counts, for a checkpoint between two lines."""
        return {name: (total, self._counts[name]) for name, total in self._floats().items()}

    def load(self, state: Mapping[str, Sequence[Any]], device: torch.device) -> None:
        """Go on from stored sums."""
        self._counts = {name: count for name, (_, count) in state.items()}
        self._sums = {
            name: torch.tensor(total, dtype=torch.float64, device=device)
            for name, (total, _) in state.items()
        }

    def _floats(self) -> dict[str, float]:
        if not self._sums:
            return {}
        return dict(zip(self._sums, torch.stack(list(self._sums.values())).tolist()))


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; a last line cut off by a kill is left out."""
    path = folder / LOG
    return _lines(path.read_text(encoding="utf-8")) if path.is_file() else []


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _cut(path: Path, step: int) -> None:
    if path.is_file():
        kept = [line for line in _lines(path.read_text(encoding="utf-8")) if line["step"] <= step]
        atomic_write(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def _write(file: TextIO, value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found.append((prefix + name, float(value)))
    return found


def _tensorboard(folder: Path, step: int) -> Tracker:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependency("tensorboard", "track", "the tracker tensorboard") from None
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def track(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return track


def _trackio(folder: Path, step: int) -> Tracker:
    try:
        import trackio
    except ImportError:
        raise MissingDependency("trackio", "track", "the tracker trackio") from None
    trackio.init(project="liebig", name=folder.parent.name)
    return lambda step, numbers: trackio.log(dict(numbers), step=step)


TRACKERS: dict[str, Callable[[Path, int], Tracker]] = {"tensorboard": _tensorboard, "trackio": _trackio}


def warnings_of(folder: Path) -> list[str]:
    """What a training run announced that its user must know."""
    events = [str(line["event"]) for line in read_log(folder) if "event" in line]
    return [event for event in events if event.startswith("WARNING")]
