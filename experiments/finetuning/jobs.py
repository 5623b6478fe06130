"""What is to be done, in what order, and the processes that do it.

A job is a run of a set, method, settings and seed, or a set's teacher. Which jobs are ready follows from the results on
disk alone: settings are chosen on dev with the first seed before other seeds begin, mined negatives need random batches
of the same seed, soft labels the teacher, the average all seeds. Workers are processes (`experiments/pool.py`) that
keep the encoder, the sets and the device; a job that fails is told at the end and stops no other.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from methods import Bench, Plan, Result, Settings, Start, averaged, candidates, fine_tune
from prepared import digest, load
from searching import MEASURES
from stopwatch import said
from table import ROWS, result_path, store
from teacher import teach

from liebig.methods.abs.hardness import VectorSimilarity
from liebig.methods.abs.sampler import Adaptive, AdaptiveBatching

sys.path.append(str(Path(__file__).parents[1]))

import pool

TEACHER = "teacher"
FEW = 500


@dataclass(frozen=True)
class Job:
    """One piece of work."""

    name: str
    method: str
    settings: Settings = field(default_factory=Settings)
    seed: int = 1

    def __str__(self) -> str:
        return f"{self.name} {self.method} seed {self.seed} ({self.settings})"

    @classmethod
    def of(cls, line: str) -> Job:
        """The job that a line names."""
        name, method, _, seed, settings = line.split(" ", 4)
        told = dict(one.split(" ") for one in settings.strip("()").split(", "))
        return cls(name, method, Settings(**{key: float(value) for key, value in told.items()}), int(seed))


@dataclass(frozen=True)
class Task:
    """What the whole comparison is made of."""

    prepared: Path
    out: Path
    plan: Plan
    sets: tuple[str, ...]
    seeds: int
    train: int

    def path(self, job: Job) -> Path:
        if job.method == TEACHER:
            return self.plan.teacher(job.name)
        return result_path(self.out, job.name, job.method, job.settings, job.seed)

    def open_jobs(self, failed: Collection[Job]) -> list[Job]:
        """Jobs that could begin now and have no result, the sets' first methods first."""
        rows = [list(self._of_set(name, failed)) for name in self.sets]
        rounds = [job for step in range(max(map(len, rows))) for row in rows for job in row[step : step + 1]]
        return [job for job in rounds if job not in failed and not self.path(job).exists()]

    def _of_set(self, name: str, failed: Collection[Job]) -> Iterator[Job]:
        """A set's jobs whose needs are met, done or not."""
        start = [Job(name, "random", settings) for settings in candidates("random", Settings())]
        yield from start
        if "soft" in ROWS[name]:
            yield Job(name, TEACHER)
        base = self._chosen(start, failed)
        if base is None:
            return
        for method in ROWS[name]:
            if method == "average":
                if all(self._there(name, base, seed) for seed in range(1, self.seeds + 1)):
                    yield Job(name, method, base)
            elif method != "soft" or self.plan.teacher(name).exists():
                for job in self._of_row(name, method, base, failed):
                    if method != "mined" or self._there(name, base, job.seed):
                        yield job

    def _of_row(self, name: str, method: str, base: Settings, failed: Collection[Job]) -> Iterator[Job]:
        """The first seed with all settings, then the other seeds with the best of them."""
        settings = [base] if method == "random" else candidates(method, base)
        first = [Job(name, method, one) for one in settings]
        yield from first
        chosen = settings[0] if len(settings) == 1 else self._chosen(first, failed)
        if chosen is not None:
            yield from (Job(name, method, chosen, seed) for seed in range(2, self.seeds + 1))

    def _there(self, name: str, base: Settings, seed: int) -> bool:
        return self.path(Job(name, "random", base, seed)).exists()

    def _chosen(self, tried: list[Job], failed: Collection[Job]) -> Settings | None:
        """The settings that are best on dev, once all were tried."""
        done = [job for job in tried if self.path(job).exists()]
        if not done or any(job not in failed for job in tried if job not in done):
            return None
        return max(done, key=lambda job: json.loads(self.path(job).read_text())["dev"]).settings


class Worker:
    """What a process keeps: the encoder and the sets."""

    def __init__(self, task: Task) -> None:
        began = time.monotonic()
        torch.set_num_threads(1)
        self.task, self.benches = task, dict[str, Bench]()
        self.start = Start(task.plan.encoder, task.plan.device)
        self.folder = task.plan.work / "training" / str(os.getpid())
        print(f"process {os.getpid()}: encoder and device in {time.monotonic() - began:.1f} s", flush=True)

    def bench(self, name: str) -> Bench:
        """A set, read at its first job."""
        if name not in self.benches:
            began = time.monotonic()
            source = name.removesuffix("-few")
            if source == name:
                data = load(self.task.prepared / name)
                assert data.tokenizer == digest(self.start.encoder.tokenizer), "prepared for another encoder"
                self.benches[name] = Bench(name, data.limited(self.task.train), self.task.plan, self.start)
            else:
                self.benches[name] = self.bench(source).limited(name, min(FEW, self.task.train))
            print(f"process {os.getpid()}: {name} in {time.monotonic() - began:.1f} s", flush=True)
        return self.benches[name]

    def do(self, job: Job) -> str:
        """Do a job, store its result, and say how it went."""
        began, bench = time.monotonic(), self.bench(job.name)
        if job.method == TEACHER:
            return said(teach(bench, self.folder))
        if job.method == "average":
            result = averaged(bench, job.settings, self.task.seeds, self.folder)
        else:
            result = fine_tune(bench, job.method, job.settings, job.seed, self.folder)
        seconds = time.monotonic() - began
        store(self.task.path(job), job.name, job.method, job.settings, job.seed, result, seconds)
        return told(result)


def told(result: Result) -> str:
    means = ", ".join(f"{name} {v[:, 0].mean():.4f}" for name, v in result.tests.items())
    return f"dev {result.dev:.4f}, {MEASURES[0]} {means}; {said(dict(result.seconds))}"


def compile_kernels() -> None:
    """The kernels of adaptive batches, which a fresh machine has not compiled yet, once for all workers."""
    rows = torch.nn.functional.normalize(torch.rand(64, 8), dim=1)
    with TemporaryDirectory() as folder:
        made = Adaptive(8, AdaptiveBatching().scheduler, "shuffled", 0)
        made.store(Path(folder), 0, VectorSimilarity.of(rows, rows.flip(0), torch.arange(64)))


def do_all(task: Task, command: Sequence[str], processes: int, minutes: float) -> dict[Job, str]:
    """All jobs that the time allows, on processes of the command; returns those that failed, with the reason."""
    if task.open_jobs(set()) and minutes > 0:
        multiprocessing.get_context("spawn").Process(target=compile_kernels, daemon=True).start()

    def ready(failed: Collection[str]) -> list[str]:
        return list(map(str, task.open_jobs(set(map(Job.of, failed)))))

    done = pool.run(command, ready, processes, task.out, minutes)
    return {Job.of(line): reason for line, reason in done.failed.items()}


def work(task: Task) -> None:
    """One of the processes."""

    def begin() -> Callable[[str], str]:
        worker = Worker(task)
        return lambda line: worker.do(Job.of(line))

    pool.work(begin)
