"""Jobs of the experiments on several processes: one that fails or dies, jobs that wait for others, time, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "experiments"
WORKER = """
import os, pathlib, sys, time, pool
here = pathlib.Path(sys.argv[1])
def begin():
    print("noise")
    def does(job):
        print("noise")
        if job == "die": os._exit(3)
        if job == "sleep":
            (here / "new").write_text(str(os.getpid()))
            (here / "new").rename(here / "asleep")
            time.sleep(60)
        (here / (job + ".done")).write_text(str(1 // (job != "fail")))
        return "well"
    return does
pool.work(begin)
"""
RUN = """
import signal, sys, pathlib, pool
signal.signal(signal.SIGTERM, signal.default_int_handler)
pool.run(sys.argv[2:], lambda failed: ["sleep"], 2, pathlib.Path(sys.argv[1]), 5)
"""


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import pool

    yield pool
    sys.modules.pop("pool")


@pytest.fixture
def command(tmp_path) -> list[str]:
    (tmp_path / "worker.py").write_text(WORKER)
    return ["env", f"PYTHONPATH={HOME}", sys.executable, str(tmp_path / "worker.py"), str(tmp_path)]


def test_a_job_that_fails_and_a_process_that_dies_cost_nothing_else(pool, command, tmp_path):
    def ready(failed):
        return [job for job in ("1", "fail", "die", "2") if not (tmp_path / f"{job}.done").exists()]

    jobs = pool.run(command, ready, 1, tmp_path, minutes=5)
    assert (jobs.left(), list(jobs.failed)) == ([], ["fail", "die"])
    assert "ZeroDivisionError" in jobs.failed["fail"]
    assert (tmp_path / "2.done").exists()


def test_jobs_wait_for_the_results_of_others_and_for_their_failure(pool, command, tmp_path):
    def ready(failed):
        return [
            "first",
            *["second"] * (tmp_path / "first.done").exists(),
            *["fail"] * ("die" in failed),
            "die",
        ]

    jobs = pool.run(command, ready, 3, tmp_path, minutes=5)
    assert jobs.given == {"first", "second", "die", "fail"}
    assert set(jobs.failed) == {"die", "fail"}
    assert (tmp_path / "second.done").exists()


def test_nothing_is_begun_that_would_end_too_late(pool, command, tmp_path):
    assert pool.run(command, lambda failed: ["1"], 2, tmp_path, minutes=0).left() == ["1"]
    assert not list(tmp_path.glob("process-*")), "nor a process"
    jobs = pool.Jobs(lambda failed: ["1", "2"], time.monotonic() + 60)
    assert jobs.take() == "1"
    jobs.done("1", 59.0, "")
    assert jobs.take() is None


def test_a_signal_ends_the_processes(command, tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    start = ["env", f"PYTHONPATH={HOME}", sys.executable, str(tmp_path / "run.py"), str(tmp_path)]
    process = subprocess.Popen([*start, *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "asleep").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert "KeyboardInterrupt" in process.communicate(timeout=30)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "asleep").read_text()), 0)
