"""Functions in processes of their own, side by side: processors cut texts while the GPU trains."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from typing import Any


def run_and_exit(function: Callable[..., None], calls: Sequence[tuple[Any, ...]]) -> None:
    """Run the function once with each tuple of arguments, all at the same time; leave with the worst exit code."""
    spawn = multiprocessing.get_context("spawn")
    running = [spawn.Process(target=function, args=call) for call in calls]
    for process in running:
        process.start()
    for process in running:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in running))
