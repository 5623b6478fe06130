"""Jobs on several processes that live long: on a GPU a small model waits for its host, so several share it.

A job is a line of text. What is ready is asked whenever a process is free, so a job may wait for the results of others.
Each process reads jobs, a line each, and answers each with a line. One that fails or dies costs its job and is started
anew; the others go on. No job is started that would end too late, judged by the longest one, and none twice. A signal
ends the processes; what they have finished is on disk.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from typing import IO

MARGIN = 1.1
Ready = Callable[[Collection[str]], Sequence[str]]
"""The jobs that could begin now and have no result, the most urgent first, given those that failed."""


@dataclass
class Jobs:
    """What is ready, under way and failed (with the reason), and the time there is."""

    ready: Ready
    end: float
    longest: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    changed: Condition = field(default_factory=Condition)

    def left(self) -> list[str]:
        """Jobs that are ready and were not begun."""
        return [job for job in self.ready(set(self.failed)) if job not in self.given]

    def take(self) -> str | None:
        """The next job, where there is time for it; waits while those under way may make others ready."""
        with self.changed:
            while time.monotonic() + MARGIN * self.longest <= self.end:
                if left := self.left():
                    self.given.add(left[0])
                    self.running.add(left[0])
                    return left[0]
                if not self.running:
                    return None
                self.changed.wait()
            return None

    def done(self, job: str, seconds: float, wrong: str) -> None:
        with self.changed:
            self.longest = max(self.longest, seconds)
            self.running.discard(job)
            if wrong:
                self.failed[job] = wrong
            self.changed.notify_all()

    def started(self, process: subprocess.Popen[str]) -> None:
        """Remember a process, so that it can be ended."""
        with self.changed:
            self.processes.append(process)
            if self.end == -math.inf:
                process.kill()

    def stop(self) -> None:
        """End all processes, and begin nothing more."""
        with self.changed:
            self.end = -math.inf
            for process in self.processes:
                process.kill()
                process.wait()
            self.changed.notify_all()


def run(command: Sequence[str], ready: Ready, processes: int, logs: Path, minutes: float) -> Jobs:
    """Give all jobs to so many processes of the command; returns what is left and what failed."""
    jobs = Jobs(ready, time.monotonic() + 60 * minutes)
    threads = [
        Thread(target=_serve, args=(command, jobs, logs / f"process-{i}.log")) for i in range(processes)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        jobs.stop()
        raise
    return jobs


def _serve(command: Sequence[str], jobs: Jobs, log: Path) -> None:
    """One process and its successors, as long as there are jobs."""
    process: subprocess.Popen[str] | None = None
    while (job := jobs.take()) is not None:
        began = time.monotonic()
        if process is None:
            process = _start(command, log)
            jobs.started(process)
        answer = _ask(process, job) or f"its process died, see {log}"
        seconds, right = time.monotonic() - began, answer.startswith("done")
        if not right:  # a device may be in no state to go on with
            _end(process)
            process = None
        print(f"{job}: {answer} ({seconds:.1f} s)", flush=True)
        jobs.done(job, seconds, "" if right else answer)
    if process is not None:
        _end(process)


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[str]:
    with log.open("a", encoding="utf-8") as errors:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Let a process end by itself: it has nothing more to read."""
    with suppress(BrokenPipeError):
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


def work(begin: Callable[[], Callable[[str], str]]) -> None:
    """The other end: makes itself ready, does what it reads and answers `done …` or `failed: …`."""
    answers: IO[str] = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    does = begin()
    for line in sys.stdin:
        try:
            said = "done, " + does(line.strip())
        except Exception as error:  # whatever it was, the other jobs go on
            traceback.print_exc()
            said = f"failed: {type(error).__name__} {' '.join(str(error).split())[:300]}"
        answers.write(said + "\n")
        answers.flush()
