"""Jobs on several processes that live long: on a GPU a small model waits for its host, so several share it.

Each process reads jobs, a line each, and answers each with a line. One that fails or dies costs its job
and is started anew; the others go on. No job is started that would end too late, judged by the longest one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MARGIN = 1.1


@dataclass
class Queue:
    """Jobs still to be given out, and the time there is."""

    jobs: list[str]
    end: float
    longest: float = 0.0
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> str | None:
        """The next job, where there is time for it."""
        with self.lock:
            if not self.jobs or time.monotonic() + MARGIN * self.longest > self.end:
                return None
            return self.jobs.pop(0)

    def done(self, job: str, seconds: float, right: bool) -> None:
        with self.lock:
            self.longest = max(self.longest, seconds)
            if not right:
                self.failed.append(job)


def run(command: Sequence[str], jobs: Sequence[str], processes: int, logs: Path, minutes: float) -> Queue:
    """Give all jobs to so many processes of the command; returns what is left and what failed."""
    queue = Queue(list(jobs), time.monotonic() + 60 * minutes)
    threads = [
        threading.Thread(target=_serve, args=(command, queue, logs / f"process-{i}.log"))
        for i in range(min(processes, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return queue


def _serve(command: Sequence[str], queue: Queue, log: Path) -> None:
    """One process and its successors, as long as there are jobs."""
    process: subprocess.Popen[str] | None = None
    with log.open("a", encoding="utf-8") as errors:
        while (job := queue.take()) is not None:
            if process is None:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            began = time.monotonic()
            answer = _ask(process, job)
            seconds = time.monotonic() - began
            queue.done(job, seconds, answer.startswith("done"))
            if not answer.startswith("done"):  # a device may be in no state to go on with
                _end(process)
                process = None
            print(f"{job}: {answer or f'its process died, see {log}'} ({seconds:.1f} s)", flush=True)
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Let a process end by itself: it has nothing more to read."""
    process.communicate()


def _ask(process: subprocess.Popen[str], job: str) -> str:
    assert process.stdin is not None, "it was opened as a pipe"
    assert process.stdout is not None, "it was opened as a pipe"
    try:
        process.stdin.write(job + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline().strip()


def work(does: Callable[[str], str]) -> None:
    """The other end: does what it reads and answers `done …` or `failed: …`."""
    answers: IO[str] = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    for line in sys.stdin:
        try:
            said = "done, " + does(line.strip())
        except Exception as error:  # whatever it was, the other jobs go on
            traceback.print_exc()
            said = f"failed: {type(error).__name__} {' '.join(str(error).split())[:300]}"
        answers.write(said + "\n")
        answers.flush()
