"""The loader: in order, ahead, with errors where they belong, and an end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from liebig.data.loader import Loader


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_out_in_order_whatever_takes_longer(workers):
    def make(step: int) -> int:
        time.sleep(0.002 * (step % 3))
        return step * step

    with Loader(make, 5, 25, ahead=6, workers=workers) as loader:
        assert list(loader) == [s * s for s in range(5, 25)]


def test_it_works_ahead_and_no_further():
    made, enough = [], threading.Event()

    def make(step: int) -> int:
        made.append(step)
        if step == 3:
            enough.set()
        return step

    with Loader(make, 0, 100, ahead=3) as loader:
        assert next(loader) == 0
        assert enough.wait(60), "three more were made while nobody asked"
        time.sleep(0.02)
        assert made == [0, 1, 2, 3]


def test_an_error_is_raised_where_its_result_would_come_out():
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("broken step")
        return step

    seen = []
    with pytest.raises(ValueError, match="broken step"), Loader(make, 0, 9) as loader:
        for value in loader:
            seen.append(value)
    assert seen == [0, 1]


def test_closing_ends_the_threads():
    loader = Loader(lambda step: step, 0, 10**9, ahead=2, workers=2)
    next(loader)
    loader.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("loader")]
    assert list(loader) == []


@pytest.mark.parametrize("data, consumer", [(1, 0), (0, 1), (1, 3)])
def test_waiting_is_measured(monkeypatch, data, consumer):
    """By a clock of our own, whatever the machine is busy with: `data` seconds for a result, `consumer` for its use."""

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock = Clock()

    def result(future: Future[int]) -> None:
        clock.now += data

    monkeypatch.setattr("liebig.data.loader.time", clock)
    monkeypatch.setattr(Future, "result", result)
    with Loader(lambda step: step, 0, 4) as loader:
        for _ in loader:
            clock.now += consumer
        assert loader.waited == data / (data + consumer)
