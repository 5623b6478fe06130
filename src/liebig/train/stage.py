"""The training shell: start, data, train, keep the best, save. Every command that trains a model runs through it.

A command subclasses `TrainingStage` and writes the three steps in which trainings differ:

    class Finetuning(TrainingStage[FinetuneConfig, FinetuneObjective]):
        def start(self) -> FinetuneObjective:                     # the model before training; a function of the seed
        def data(self, objective: FinetuneObjective) -> Data:     # batches, epochs, evaluation
        def save(self, objective: FinetuneObjective) -> None:     # write `self.folder / MODEL`; first process only

    Finetuning.launch(config, folder)

The shell does the rest: it joins the processes of torchrun, resumes an interrupted run, evaluates, goes back to the
best weights, and removes the cache of tokenised texts at the end.
"""

from __future__ import annotations

import gc
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from liebig.base.machine import computing_threads
from liebig.base.progress import say
from liebig.base.workspace import Folder
from liebig.train.checkpoint import load_checkpoint
from liebig.train.distributed import World, joined
from liebig.train.loop import Epochs, LoopConfig, StepTime, Trained, time_steps, train
from liebig.train.objective import Objective
from liebig.train.optim import OptimConfig, ScheduleConfig
from liebig.train.prefetch import Batches

MODEL, CACHE = "model", "cache"


class TrainingConfig(Protocol):
    """What the shell reads from the recipe of a training."""

    @property
    def loop(self) -> LoopConfig: ...

    @property
    def optim(self) -> OptimConfig: ...

    @property
    def schedule(self) -> ScheduleConfig: ...


@dataclass(frozen=True)
class Data:
    """What a model is trained on.

    `batches(step)` is this process's share of a batch. `evaluate` runs in every process. `batch_size` replaces
    `loop.batch` where the number of examples follows from something else, such as a budget of tokens.
    """

    batches: Batches
    epochs: Epochs
    evaluate: Callable[[Objective], Mapping[str, float]] | None = None
    batch_size: int | None = None


C = TypeVar("C", bound=TrainingConfig)
Obj = TypeVar("Obj", bound=Objective)


class TrainingStage(ABC, Generic[C, Obj]):
    """One training run of a recipe in a folder, in one of the processes that share it."""

    label: str
    """What the progress bar and the log call this training; a class attribute or set in `__init__`."""

    evaluated_on: ClassVar[str] = "dev"
    """What the evaluation looks at, for the message about the best weights."""

    def __init__(self, config: C, folder: Path, world: World) -> None:
        self.config, self.folder, self.world = config, folder, world

    @property
    def cache(self) -> Path:
        """Where tokenised texts are kept during the run; removed at its end."""
        return self.folder / CACHE

    @classmethod
    def launch(cls, config: C, folder: Folder) -> None:
        """Run in the processes that torchrun started, or in this one alone."""
        with joined(mps=True) as world:
            cls(config, folder.path, world).run()

    @abstractmethod
    def start(self) -> Obj:
        """The model before training: a function of the recipe."""

    @abstractmethod
    def data(self, objective: Obj) -> Data:
        """Read what the objective is trained on."""

    @abstractmethod
    def save(self, objective: Obj) -> None:
        """Write the trained model into the folder. Called in the first process, with whole parameters."""

    @property
    def keeps_best(self) -> bool:
        """Whether the result is the best evaluated model; otherwise it is the last one."""
        return True

    def run(self) -> Trained:
        """Train and save; leaves `model/`, `log.jsonl` and the checkpoints in the folder."""
        objective, data, loop = self._opened()
        # Minutes hold as many steps as the machine has time for, so then it is shared with others; a number of steps
        # gives the same model whoever else is at work.
        shared = computing_threads() if loop.minutes is not None and loop.steps is None else nullcontext()
        with shared:
            trained = train(
                objective,
                data.batches,
                self.folder,
                loop=loop,
                optim=self.config.optim,
                schedule=self.config.schedule,
                world=self.world,
                epochs=data.epochs,
                evaluate=data.evaluate,
                label=self.label,
            )
        if data.evaluate is not None and self.keeps_best:
            step = load_checkpoint(objective, self.folder)
            self.say(f"keeping the weights of step {step:,}, the best on {self.evaluated_on}")
        if self.world.first:
            self.save(objective)
        self.world.barrier()
        if self.world.first and self.cache.exists():
            del data  # what is mapped cannot be removed on Windows
            gc.collect()
            shutil.rmtree(self.cache, ignore_errors=True)
        return trained

    def time_steps(self) -> StepTime:
        """Time a few steps of the training; leaves nothing that is of use in the folder."""
        objective, data, loop = self._opened()
        return time_steps(
            objective, data.batches, self.folder, data.epochs, loop=loop, optim=self.config.optim
        )

    def _opened(self) -> tuple[Obj, Data, LoopConfig]:
        objective, loop = self.start(), self.config.loop
        data = self.data(objective)
        return objective, data, loop.model_copy(update={"batch": data.batch_size or loop.batch})

    def say(self, text: str) -> None:
        """Tell the user something, once for all processes."""
        if self.world.first:
            say(text)
