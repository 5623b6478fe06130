"""Other places for the numbers of the log: TensorBoard, Weights & Biases, trackio.

A recipe names them (`loop.trackers = ["wandb"]`). Each class is given the run's folder and the step that the run goes
on from, and gets every line of the log; `log.jsonl` stays the source of truth. A resumed run goes on in the same run of
the tracker, whose id lies in the folder, and curves are drawn over our own count of steps: W&B drops a step that comes
again. Whether W&B sends anything is decided by its own settings (`wandb login`, `wandb offline`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from liebig.base.errors import MissingDependency, TrainingError

TrackerName = Literal["tensorboard", "wandb", "trackio"]
PROJECT = "liebig"
ID = "tracker-id.txt"


class Tracker(Protocol):
    """Where numbers go."""

    def __init__(self, folder: Path, step: int) -> None: ...

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a line of the log."""

    def close(self) -> None:
        """End the run."""


class TensorBoard:
    """Event files below the run's folder; lines of steps that are done again are taken back."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependency("tensorboard", "track", "the tracker tensorboard") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingDependency("wandb", "wandb", "the tracker wandb") from None
        try:
            self._run = wandb.init(
                project=PROJECT,
                name=name_of(folder),
                id=id_of(folder, step),
                resume="allow",
                settings={"silent": True, "console": "off"},
            )
        except Exception as error:  # UsageError without an account, CommError without a network
            raise TrainingError(
                f"W&B cannot start: {str(error).strip().partition(chr(10))[0]}",
                fix="run `wandb login` or `wandb offline`, or leave wandb out of loop.trackers",
            ) from None
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"step": step, **numbers})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of trackio, the Hugging Face tracker, which is kept on this machine."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            import trackio
        except ImportError:
            raise MissingDependency("trackio", "track", "the tracker trackio") from None
        name = f"{name_of(folder)}-{id_of(folder, step)}"
        self._run = trackio.init(project=PROJECT, name=name, resume="allow", embed=False)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "trackio": Trackio}


def name_of(folder: Path) -> str:
    """What the run is called: its folder, which has another ending while it is written."""
    return folder.resolve().name.removesuffix(".partial")


def id_of(folder: Path, step: int) -> str:
    """The id of the tracker's run: a new one for a run that begins, the one in the folder for one that goes on."""
    path = folder / ID
    if step == 0 or not path.is_file():
        path.write_text(secrets.token_hex(4), encoding="utf-8")
    return path.read_text(encoding="utf-8")
