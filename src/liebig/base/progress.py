"""Progress for people: a bar with rate and remaining time on a terminal, plain lines elsewhere.

Everything goes to standard error, so that standard output stays a program's own. A plain line is printed
every few seconds at the most.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress as RichProgress, TaskID, TextColumn, TimeRemainingColumn

T = TypeVar("T")
PLAIN_SECONDS = 5.0


class Progress:
    """Counts `unit`s done, of `total` where it is known; `note` adds a few words such as the loss."""

    def __init__(self, label: str, total: float | None = None, unit: str = "steps", start: float = 0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self._start, self._done, self._note = start, start, ""
        self._began = self._printed = time.monotonic()
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._began = self._printed = time.monotonic()
        if sys.stderr.isatty():
            self._rich = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._rich.start()
            self._task = self._rich.add_task(
                self.label, total=self.total, completed=int(self._start), state=""
            )
        return self

    def advance(self, amount: float = 1) -> None:
        """`amount` more is done."""
        self._done += amount
        if self._rich is not None and self._task is not None:
            self._rich.update(self._task, total=self.total, completed=self._done, state=self._state())
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._print(self._remaining())

    def skip(self, amount: float = 1) -> None:
        """`amount` more was done before: it counts, but not for the rate and the time that is left."""
        self._start += amount
        self.advance(amount)

    def note(self, text: str) -> None:
        """A few words shown behind the count."""
        self._note = text

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self._rich is not None:
            self._rich.console.print(visible(text), markup=False, highlight=False)
        else:
            print(visible(text), file=sys.stderr, flush=True)  # noqa: T201  plain progress is lines on standard error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif kind is None:
            self._print(f"in {duration(time.monotonic() - self._began)}")

    def _state(self) -> str:
        count = f"{self._done:,.0f}" + (f"/{self.total:,.0f}" if self.total else "")
        elapsed = time.monotonic() - self._began
        rate = (self._done - self._start) / elapsed if elapsed > 0 else 0.0
        return f"{count} {self.unit}, {quantity(rate)}/s" + (f", {self._note}" if self._note else "")

    def _remaining(self) -> str:
        done = self._done - self._start
        if not self.total or done <= 0:
            return ""
        return f"{duration((time.monotonic() - self._began) * (self.total - self._done) / done)} left"

    def _print(self, rest: str) -> None:
        self._printed = time.monotonic()
        line = f"{self.label}: {self._state()}" + (f", {rest}" if rest else "")
        print(line, file=sys.stderr, flush=True)  # noqa: T201  plain progress is lines on standard error


def say(text: str) -> None:
    """A line for the user on standard error, beside the results."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Text from documents and names for a terminal: controls, which could move the cursor or retitle it, as U+FFFD."""
    return CONTROL.sub("\ufffd", text)


def track(items: Iterable[T], label: str, total: float | None = None, unit: str = "items") -> Iterator[T]:
    """The items, counted."""
    with Progress(label, total, unit) as bar:
        for item in items:
            yield item
            bar.advance()


def quantity(value: float) -> str:
    """`1.3 k`, `25 M`: a number short enough for a progress line."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * size:  # from there on three digits round up to it
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
