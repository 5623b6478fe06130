"""Progress for people: a bar on a terminal, one line that changes in a notebook, few lines in a log.

Everything goes to standard error, so that standard output stays a program's own (in a notebook, which no program reads,
to its cell). Lines in a log come after 5, 15, 35, 75 seconds and so on, at last every five minutes.

`Whole` is a work of several phases, such as a build: every bar in it says which phase of how many it belongs to and how
long all of them still take, and the remarks of its parts are left to `--verbose`. `--quiet` leaves errors alone.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress, TaskID

T = TypeVar("T")
PLAIN_SECONDS, PLAIN_LONGEST = 5.0, 300.0  # between lines of a log, at first and at last
NOTEBOOK_SECONDS = 0.5  # between changes of a line in a notebook
TELLING_SECONDS = 5.0  # a phase expected to be shorter says nothing of how fast the others will be

Volume = Literal["quiet", "normal", "verbose"]


class _Screen:
    """What this process shows: how much, and the work that its bars belong to."""

    volume: Volume = "normal"
    whole: Whole | None = None


_screen = _Screen()


def set_volume(volume: Volume) -> None:
    """Show errors alone, what users need, or also remarks of every part and the warnings of other libraries."""
    _screen.volume = volume
    if volume == "verbose":
        warnings.simplefilter("default")
    else:
        warnings.simplefilter("ignore")


def is_verbose() -> bool:
    """Whether tracebacks and remarks are wanted."""
    return _screen.volume == "verbose"


def in_notebook() -> bool:
    """Whether standard output is a cell of a notebook."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and hasattr(running, "kernel")


class Progress:
    """Counts `unit`s done, of `total` where it is known; `note` adds a few words such as the loss."""

    def __init__(self, label: str, total: float | None = None, unit: str = "steps", start: float = 0) -> None:
        self.total, self.unit, self.label = total, unit, label
        self._whole = _screen.whole
        self._start, self._done, self._note = start, start, ""
        self._began = self._printed = time.monotonic()
        self._pause, self._width = PLAIN_SECONDS, 0
        self._notebook = in_notebook()
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._began = self._printed = time.monotonic()
        self._pause = NOTEBOOK_SECONDS if self._notebook else PLAIN_SECONDS
        if sys.stderr.isatty() and _screen.volume != "quiet":
            from rich.console import Console
            from rich.progress import BarColumn, Progress as RichProgress, TextColumn, TimeRemainingColumn

            self._rich = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[state]}", markup=False),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=_screen.whole is not None,
                redirect_stdout=sys.stdout.isatty(),  # what a program reads, or no one, stays where it goes
            )
            self._rich.start()
            self._task = self._rich.add_task(
                self._short, total=self.total, completed=int(self._start), state=""
            )
        return self

    def advance(self, amount: float = 1) -> None:
        """`amount` more is done."""
        self._done += amount
        if self._rich is not None and self._task is not None:
            state = ", ".join(filter(None, (self._state(), self._in_all())))
            self._rich.update(self._task, total=self.total, completed=self._done, state=state)
        elif time.monotonic() - self._printed >= self._pause:
            self._print(self._remaining(), self._in_all())

    def skip(self, amount: float = 1) -> None:
        """`amount` more was done before: it counts, but not for the rate and the time that is left."""
        self._start += amount
        self.advance(amount)

    def note(self, text: str) -> None:
        """A few words shown behind the count."""
        self._note = text

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._rich is None:
            say(text)
        elif _screen.whole is None or is_verbose():
            self._rich.console.print(visible(text), markup=False, highlight=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif kind is None and (_screen.whole is None or is_verbose() or self._width):
            self._print(f"in {duration(time.monotonic() - self._began)}")
        if self._width:
            _write("\n", notebook=True)

    @property
    def _short(self) -> str:
        """The label beside a bar: the line above it says what the phase does."""
        return self.label if self._whole is None else f"{self._whole.place} {self.label}".strip()

    def _state(self) -> str:
        done = f"{_plain(self._done)}/" if self.total else ""
        count = done + counted(self.total or self._done, self.unit)
        elapsed = time.monotonic() - self._began
        rate = (self._done - self._start) / elapsed if elapsed > 0 else 0.0
        return f"{count}, {quantity(rate)}/s" + (f", {self._note}" if self._note else "")

    def _seconds_left(self) -> float | None:
        done = self._done - self._start
        if not self.total or done <= 0:
            return None
        return (time.monotonic() - self._began) * max(0.0, self.total - self._done) / done

    def _remaining(self) -> str:
        left = self._seconds_left()
        return "" if left is None else f"{duration(left)} left"

    def _in_all(self) -> str:
        left = None if _screen.whole is None else _screen.whole.left(self._seconds_left())
        return "" if left is None else f"about {duration(left)} left in all"

    def _print(self, *rest: str) -> None:
        self._printed = time.monotonic()
        head = self.label if self._whole is None else self._whole.head or self.label
        line = ", ".join(filter(None, (f"{head}: {self._state()}", *rest)))
        if self._notebook:
            _write(f"\r{line:<{self._width}}", notebook=True)
            self._width = len(line)
        else:
            self._pause = min(2 * self._pause, PLAIN_LONGEST)
            _write(line + "\n")


class Whole:
    """A work of several phases: `[3/7] Make questions about the documents`, and how long all of them still take.

    `phases` has a sentence for each name, in order. `seconds` says how long one may take; None, where nothing
    is known yet, leaves the time for the whole unsaid. Those of `fixed` take as long as they are given; all others are
    corrected by how fast the finished ones were. With `one_bar` the bar of a phase counts all of its work, so that it
    knows better than `seconds` how long the phase takes. A phase of which nothing had to be done is up to date.
    """

    def __init__(
        self,
        phases: Mapping[str, str],
        say: Callable[[str], None],
        seconds: Callable[[str], float | None] = lambda name: None,
        fixed: Iterable[str] = (),
        one_bar: bool = False,
    ) -> None:
        self._phases, self._say, self._seconds, self._fixed = dict(phases), say, seconds, frozenset(fixed)
        self._one_bar = one_bar
        self._now, self._worked, self._began = "", False, time.monotonic()
        self._more, self._part_began = 0, self._began
        self._expected: float | None = None
        self._pace: list[tuple[float, float]] = []  # expected and true seconds of finished phases
        self._outer: Whole | None = None

    def __enter__(self) -> Whole:
        self._outer, _screen.whole = _screen.whole, self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        _screen.whole = self._outer

    @property
    def head(self) -> str:
        """`[3/7] Make questions about the documents`; nothing before the first phase."""
        return f"{self.place} {self._phases[self._now]}" if self._now in self._phases else ""

    @property
    def place(self) -> str:
        """`[3/7]`; nothing before the first phase."""
        if self._now not in self._phases:
            return ""
        number = list(self._phases).index(self._now) + 1
        return f"[{number:>{len(str(len(self._phases)))}}/{len(self._phases)}]"

    def begin(self, name: str) -> None:
        self._finish()
        self._now, self._worked, self._began = name, False, time.monotonic()
        self._more, self._part_began = 0, self._began
        self._expected = self._seconds(name)

    def repeat(self, more: int) -> None:
        """A part of this phase begins, and that many like it come after it."""
        self._more, self._part_began = more, time.monotonic()

    def works(self) -> None:
        """Something of this phase has to be done."""
        if not self._worked and self._now in self._phases:
            self._worked = True
            left = self.left()
            self._say(self.head + ("" if left is None else f" (about {duration(left)} left in all)"))

    def drop(self, *names: str) -> None:
        """Phases that are not needed after all."""
        for name in names:
            self._phases.pop(name, None)

    def left(self, of_this: float | None = None) -> float | None:
        """Seconds until everything is done; `of_this` is what the bar of this phase knows of it."""
        names = list(self._phases)
        later = [(name, self._seconds(name)) for name in names[names.index(self._now) + 1 :]]
        if any(seconds is None for _, seconds in later) or (self._expected is None and of_this is None):
            return None
        elapsed, pace = time.monotonic() - self._began, self._pace
        if of_this is not None:
            of_this += self._more * (time.monotonic() - self._part_began + of_this)
        if self._one_bar and of_this is not None:
            mine = of_this
            if self._expected and self._now not in self._fixed:
                pace = [*pace, (self._expected, elapsed + of_this)]
        else:
            mine = max(self._corrected(self._now, self._expected or 0.0, pace) - elapsed, of_this or 0.0, 0.0)
        seconds = mine + sum(self._corrected(name, seconds or 0.0, pace) for name, seconds in later)
        return seconds if seconds >= 1 else None  # an estimate that is used up says nothing

    def _corrected(self, name: str, seconds: float, pace: Sequence[tuple[float, float]]) -> float:
        """Seconds of a phase by the pace so far.

        Short phases say little of it, because most of what they take is loading and compiling.
        """
        long = [(expected, true) for expected, true in pace if expected >= TELLING_SECONDS]
        if name in self._fixed or not long:
            return seconds
        return seconds * sum(true for _, true in long) / sum(expected for expected, _ in long)

    def _finish(self) -> None:
        if self._worked and self._expected and self._now not in self._fixed:
            self._pace.append((self._expected, time.monotonic() - self._began))
        elif self._now in self._phases and not self._worked:
            self._say(f"{self.head}: up to date")


def say(text: str) -> None:
    """A line for the user on standard error, beside the results; remarks of a part are left out of a whole."""
    if _screen.whole is None or is_verbose():
        announce(text)


def announce(text: str) -> None:
    """A line for the user that a whole shows too."""
    _write(visible(text) + "\n", notebook=in_notebook())


def complain(text: str) -> None:
    """An error, which is shown whatever else is not."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


def _write(text: str, notebook: bool = False) -> None:
    if _screen.volume != "quiet":
        stream = sys.stdout if notebook else sys.stderr
        stream.write(text)
        stream.flush()


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Text from documents and names for a terminal: controls, which could move the cursor or retitle it, as U+FFFD."""
    return CONTROL.sub("\ufffd", text)


def track(items: Iterable[T], label: str, total: float | None = None, unit: str = "items") -> Iterator[T]:
    with Progress(label, total, unit) as bar:
        for item in items:
            yield item
            bar.advance()


def _plain(value: float) -> str:
    """A whole number, or a small one with a digit behind the point."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def counted(count: float, units: str) -> str:
    """`1 query`, `12,042 queries`: a number with its units, which are given in the plural."""
    one = re.sub("ies$", "y", re.sub("(?<=ch)es$", "", units)).removesuffix("s")
    return f"{_plain(count)} {one if count == 1 else units}"


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
