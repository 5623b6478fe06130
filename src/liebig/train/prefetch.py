"""Batches prepared ahead by threads while the model works, in order, with the time spent waiting for them.

A batch is a function of its step number alone, so neither the number of threads nor a restart changes it. Cost:
`workers` + 1 batches in memory, pinned where there is a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from liebig.train.batch import Batch

Batches = Callable[[int], Batch]


class Feed:
    """Gives the batch of a step; `waited` seconds were spent without one."""

    def __init__(self, batches: Batches, workers: int = 0, pin: bool = False) -> None:
        self._batches, self._pin, self._ahead = batches, pin, workers + 1
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches") if workers else None
        self._coming: dict[int, Future[Batch]] = {}
        self.waited = 0.0

    def get(self, step: int, until: int) -> Batch:
        """The batch of `step`; those after it, short of `until`, are begun."""
        began = time.monotonic()
        if self._pool is None:
            batch = self._make(step)
        else:
            for later in range(step, min(step + self._ahead, until)):
                if later not in self._coming:
                    self._coming[later] = self._pool.submit(self._make, later)
            batch = self._coming.pop(step).result()
        self.waited += time.monotonic() - began
        return batch

    def close(self) -> None:
        """Forget what is coming."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _make(self, step: int) -> Batch:
        batch = self._batches(step)
        return batch.pin() if self._pin else batch
