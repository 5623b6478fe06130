"""Threads follow what a person says, else how busy the cores are."""

from __future__ import annotations

import os
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
