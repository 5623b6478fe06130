"""The next epoch's schedule, made in a thread while this one trains, from the vectors at this epoch's start.

Vectors are encoded when an epoch begins (training waits for that) and lie in `schedule/vectors-N.npy`, in half
precision, until the schedule of epoch N + 1 is written; it is made from what the file holds, so that a run which was
interrupted makes the same one. The first epoch is scheduled before it begins. On a GPU the thread works on a stream of
its own. Cost: 4 D bytes a pair on disk; on a CPU the thread takes processor time from training, as any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.finetune.adaptive import Adaptive, path_of
from liebig.finetune.hardness import Similarity, Vectors
from liebig.workspace import atomic_write


class Cancelled(Exception):
    """Nobody waits for this schedule any more."""


@dataclass
class Ahead:
    """Schedules epoch N + 1 while epoch N goes on, from `similarity(N + 1)` asked when epoch N begins.

    That is the model as it is then, or a run; `twin` and `device` are those of the model's vectors, and `last` is the
    last epoch there will be, where that is known.
    """

    how: Adaptive
    folder: Path
    similarity: Callable[[int], Similarity]
    twin: torch.Tensor
    device: torch.device
    last: int | None = None
    _thread: threading.Thread | None = None
    _error: BaseException | None = None
    _cancel: threading.Event = field(default_factory=threading.Event)

    def begin(self, epoch: int) -> None:
        """Have this epoch's schedule, and start making the next one's."""
        self._join()
        if not path_of(self.folder, epoch).exists() and _vectors(self.folder, epoch - 1).exists():
            self._start(epoch, self._kept(epoch - 1))  # an interrupted run had begun it
            self._join()
        self.how.now(self.folder, self.similarity)(epoch)
        if (self.last is None or epoch < self.last) and not path_of(self.folder, epoch + 1).exists():
            self._start(epoch + 1, self._kept(epoch))

    def close(self) -> None:
        """Give up what is being made."""
        self._cancel.set()
        if self._thread is not None:
            self._thread.join()

    def _kept(self, epoch: int) -> Similarity:
        """What the next epoch is scheduled by; vectors by way of their file, which a later start finds."""
        path = _vectors(self.folder, epoch)
        if not path.exists():
            found = self.similarity(epoch + 1)
            if not isinstance(found, Vectors):
                return found
            out = BytesIO()
            np.save(out, found.own.cpu().numpy().astype(np.float16))
            atomic_write(path, out.getvalue())
        stored: NDArray[np.float16] = np.load(path)
        own = torch.from_numpy(stored.astype(np.float32)).to(self.device)
        return Vectors(own, self.twin.to(self.device))

    def _start(self, epoch: int, similarity: Similarity) -> None:
        def make() -> None:
            try:
                with _beside(similarity.device):
                    self.how.store(self.folder, epoch, similarity, self._advance)
                _vectors(self.folder, epoch - 1).unlink(missing_ok=True)
            except Cancelled:
                return
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=make, name="schedule", daemon=True)
        self._thread.start()

    def _advance(self, batches: int) -> None:
        if self._cancel.is_set():
            raise Cancelled

    def _join(self) -> None:
        """Wait for what is being made; its error is raised here."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error


def _vectors(folder: Path, epoch: int) -> Path:
    return folder / f"vectors-{epoch:03d}.npy"


def _beside(device: torch.device) -> AbstractContextManager[object]:
    """A stream of its own where there are streams, which begins when what is under way has ended."""
    if device.type != "cuda":
        return nullcontext()
    torch.cuda.synchronize(device)
    return torch.cuda.stream(torch.cuda.Stream(device))
