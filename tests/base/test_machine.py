"""Threads follow what a person says, else how busy the cores are."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from liebig.base import machine


@pytest.mark.parametrize(
    ("cores", "others", "expected"), [(2, 0, 2), (2, 0.4, 2), (2, 1.2, 1), (2, 9, 1), (64, 8, 57), (1, 5, 1)]
)
def test_a_busy_machine_gets_fewer_threads(cores: int, others: float, expected: int) -> None:
    assert machine.fair_share(cores, others) == expected


def test_what_is_said_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "others_load", lambda: 100.0)
    monkeypatch.setattr(machine, "_fixed", [])
    machine.fix_threads("3")
    assert (machine.threads(), machine.threads(5)) == (3, 5)
    monkeypatch.setattr(machine, "_fixed", [])
    machine.fix_threads(None)
    machine.fix_threads("many")
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert machine.threads() == 1


@pytest.mark.skipif(machine.WINDOWS, reason="Windows tells no load")
def test_the_load_of_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour with two cores busy by ourselves leaves nothing for others."""
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "BEGAN", 0)
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: 3600))
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 2.0, 2.0))
    monkeypatch.setattr(os, "times", lambda: (7200.0, 0.0, 0.0, 0.0, 0.0))
    assert machine.others_load() == pytest.approx(0, abs=1e-6)
    monkeypatch.setattr(os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
    assert machine.others_load() == 2.0


def test_torch_gets_its_threads_back() -> None:
    import torch

    before = torch.get_num_threads()
    with machine.computing_threads(1) as count:
        assert count == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/cpuinfo is not there."""
    there = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: path.parts[1:2] != ("proc",) and there(path))
    machine.instructions.cache_clear()


def test_apple_silicon_has_the_dot_product(monkeypatch: pytest.MonkeyPatch, no_proc: None) -> None:
    monkeypatch.setattr(machine, "MACOS", True)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.instructions() == (machine.DOT,)
    machine.instructions.cache_clear()


def test_windows_has_the_instructions_that_llvm_tells(monkeypatch: pytest.MonkeyPatch, no_proc: None) -> None:
    import llvmlite.binding

    told = {"avx512vnni": True, "avx2": True, "amx-int8": False, "sse": True}
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: told)
    assert machine.instructions() == ("avx2", machine.VNNI)
    machine.instructions.cache_clear()


def test_llvm_and_linux_call_the_same_instructions_by_their_names() -> None:
    machine.instructions.cache_clear()
    if Path("/proc/cpuinfo").is_file():
        assert set(machine.INSTRUCTIONS) & machine._llvm_flags() == set(machine.instructions())


def test_memory_without_sysconf_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LIMITS", ())
    import psutil  # needs sysconf itself where there is one

    told = machine.memory()
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory() == told == psutil.virtual_memory().total


def test_a_parent_runs_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for windows in (False, True):
        monkeypatch.setattr(machine, "WINDOWS", windows)
        assert machine.is_running(os.getppid())
        assert not machine.is_running(2**22 + 1)  # no process has this number


@pytest.mark.parametrize(("told", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "None")])
def test_one_question_is_multiplied_by_one_thread_unless_a_person_says_more(
    told: dict[str, str], threads: str
) -> None:
    """numpy reads it when it is imported, so the commands that answer one question must not have done that."""
    code = (
        "import liebig.commands.search, liebig.commands.ask, liebig.commands.mcp, os, sys\n"
        "assert 'numpy' not in sys.modules\n"
        "from liebig.base.machine import prefer_numpy\n"
        "prefer_numpy()\n"
        "print(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names} | told
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == threads
