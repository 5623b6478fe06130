"""Progress: counts, rates and remaining time, on a clock that the tests set."""

from __future__ import annotations

import pytest

from liebig.base import progress
from liebig.base.progress import Progress, duration, quantity, track


@pytest.fixture
def clock(monkeypatch):
    """`clock.now` is the time."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_a_line_has_count_rate_note_and_remaining_time(clock, capsys):
    with Progress("training", 100, "steps", start=20) as bar:
        bar.note("loss 2.5")
        clock.now += 10
        bar.advance(20)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "training: 40/100 steps, 2/s, loss 2.5, 30 s left"
    assert last == "training: 40/100 steps, 2/s, loss 2.5, in 10 s"


def test_lines_are_some_seconds_apart_and_an_interrupted_count_has_no_last_one(clock, capsys):
    with pytest.raises(KeyboardInterrupt), Progress("reading", None, "texts") as bar:
        for _ in range(7):
            clock.now += 1
            bar.advance()
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines() == ["reading: 5 texts, 1/s"]


def test_tracked_items_are_the_items(clock, capsys):
    assert list(track("abc", "letters", unit="letters")) == ["a", "b", "c"]
    assert "letters: 3 letters" in capsys.readouterr().err


def test_numbers_are_short():
    assert [quantity(x) for x in (0.25, 7, 999.4, 999.7, 1300, 999_900, 2.5e7)] == [
        "0.25",
        "7",
        "999",
        "1 k",
        "1.3 k",
        "1 M",
        "25 M",
    ]
    assert [duration(x) for x in (4.26, 42, 59.7, 185, 7800)] == [
        "4.3 s",
        "42 s",
        "1 min 0 s",
        "3 min 5 s",
        "2 h 10 min",
    ]
