"""Processes that help this one: each set up once, given tasks, and gone when it is.

They start fresh (a fork would copy the locks of this one's threads), import only what their functions need, leave
Ctrl-C to this process, and end with it however it ends. Starting one costs about a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from liebig.errors import ResourceError

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def helpers(
    count: int, set_up: Callable[..., None] | None = None, *args: Any
) -> Iterator[ProcessPoolExecutor]:
    """So many processes, in each of which `set_up` has been called with these arguments."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=_begin, initargs=(set_up, args))
    try:
        yield pool
    except BrokenProcessPool:
        raise ResourceError(
            f"one of {count} helping processes was killed, most likely for memory",
            fix="run the same command again with fewer of them (where it has no option for that, taskset gives it "
            "fewer cores); a script of your own has to start it under if __name__ == '__main__'",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(
    pool: ProcessPoolExecutor, work: Callable[[T], R], tasks: Iterable[T], ahead: int
) -> Iterator[R]:
    """The results of tasks, in their order; at most `ahead` are under way, so memory does not grow."""
    pending: deque[Future[R]] = deque()
    for task in tasks:
        pending.append(pool.submit(work, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _begin(set_up: Callable[..., None] | None, args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if set_up is not None:
        set_up(*args)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
