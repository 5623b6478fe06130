"""A background loader: the next batches are made while the present one is used.

`make(step)` runs in worker threads, a few steps ahead, and its results come out in order. Threads suffice because
the kernels that build batches release the interpreter. `waited` is the share of time the consumer stood waiting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Loader(Generic[T]):
    """Yields `make(start)`, ..., `make(stop - 1)`; an error in `make` is raised where its result would come out."""

    def __init__(
        self, make: Callable[[int], T], start: int, stop: int, ahead: int = 4, workers: int = 1
    ) -> None:
        assert ahead > 0
        assert workers > 0
        self._make, self._next, self._stop, self._ahead = make, start, stop, ahead
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="loader")
        self._queue: deque[Future[T]] = deque()
        self._waiting, self._began = 0.0, time.perf_counter()

    @property
    def waited(self) -> float:
        """The share of time since the start (or the last `reset`) that was spent waiting for data."""
        return self._waiting / max(time.perf_counter() - self._began, 1e-9)

    def reset(self) -> None:
        """Measure the waiting from now on."""
        self._waiting, self._began = 0.0, time.perf_counter()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._fill()
        if not self._queue:
            self.close()
            raise StopIteration
        began = time.perf_counter()
        try:
            result = self._queue.popleft().result()
        except BaseException:
            self.close()
            raise
        self._waiting += time.perf_counter() - began
        self._fill()
        return result

    def _fill(self) -> None:
        while self._next < self._stop and len(self._queue) < self._ahead:
            self._queue.append(self._pool.submit(self._make, self._next))
            self._next += 1

    def close(self) -> None:
        """Drop what was made ahead and end the workers; what a worker is at is waited for."""
        self._next = self._stop
        self._queue.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Loader[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
