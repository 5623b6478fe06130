"""Chunk budgets: halved until they fit, or found by trying."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from liebig.train import memory
from liebig.train.distributed import ALONE, World
from liebig.train.memory import Budget, find_budget, fitting
from liebig.train.step import OutOfMemory
from tests.worlds.toy import spans


def test_the_budget_is_halved_until_the_step_fits_and_each_time_it_is_said() -> None:
    batch, tried, said = spans(16), [], []

    def gradient(tokens: int | None) -> str:
        tried.append(tokens)
        if max(chunk.tokens for chunk in batch.chunks(tokens)) > 40:
            raise OutOfMemory
        return "done"

    budget = Budget(None)
    assert fitting(gradient, budget, batch, ALONE, said.append) == "done"
    assert tried[0] is None
    assert tried[-1] == budget.tokens
    assert budget.tokens is not None
    assert budget.tokens <= 40
    assert len(said) == len(tried) - 1
    assert f"{batch.tokens} tokens" in said[0]


def test_a_larger_budget_that_still_does_not_fit_is_tried_more_and_more_rarely() -> None:
    batch, said, failed = spans(16), [], []
    state = {"step": 0}

    def gradient(tokens: int | None) -> str:
        if max(chunk.tokens for chunk in batch.chunks(tokens)) > batch.tokens // 2:
            failed.append(state["step"])
            raise OutOfMemory
        return "done"

    budget = Budget(None)
    for state["step"] in range(1, 1000):
        budget.again(ALONE)
        fitting(gradient, budget, batch, ALONE, said.append)
    assert failed == [1, 101, 301, 701], "after 100 steps that fitted, after 200 and after 400"
    assert budget.tokens == batch.tokens // 2
    assert (budget.larger, budget.wait) == ([None], 800)


def test_several_processes_do_not_try_again() -> None:
    budget = Budget(64, larger=[None], steps=memory.WAIT)
    assert budget.again(World(size=2)) is None
    assert budget.tokens == 64
    assert budget.again(ALONE) is not None
    assert budget.tokens is None


def test_without_a_gpu_the_budget_is_a_fixed_number() -> None:
    assert find_budget(lambda tokens: None, spans(), ALONE) == memory.CPU_TOKENS


@pytest.mark.parametrize(("fits", "room", "best"), [(40_000, 10**9, 32768), (10**6, 20_000, 16384)])
def test_on_a_gpu_the_fastest_budget_that_fits_is_found(
    monkeypatch: pytest.MonkeyPatch, fits: int, room: int, best: int
) -> None:
    state = {"now": 0.0, "used": 0}

    def gradient(tokens: int) -> None:
        if tokens > fits:
            raise OutOfMemory
        state["used"] = tokens
        state["now"] += 1 + 1e6 / tokens

    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *args: None)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: state["used"])
    properties = SimpleNamespace(total_memory=room / memory.MEMORY_SHARE)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(memory.time, "monotonic", lambda: state["now"])
    batch = SimpleNamespace(tokens=10**6)
    assert find_budget(gradient, batch, World(device=torch.device("cuda"))) == best
