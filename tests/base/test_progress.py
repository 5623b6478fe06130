"""Progress: counts, rates and remaining time, on a clock that the tests set."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest

from liebig.base import progress
from liebig.base.progress import (
    Progress,
    Whole,
    announce,
    complain,
    counted,
    duration,
    quantity,
    say,
    set_volume,
    track,
)


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


def test_a_log_has_few_lines(clock, capsys):
    with Progress("training", 3600, "steps") as bar:
        for _ in range(3600):
            clock.now += 1
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 5/3,600 steps, 1/s, 59 min 55 s left"
    assert len(lines) < 20


def test_a_notebook_has_one_line_that_changes(clock, capsys, monkeypatch):
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    with Progress("encode", 4, "texts") as bar:
        for _ in range(4):
            clock.now += 1
            bar.advance()
    out, err = capsys.readouterr()
    assert (out.count("\n"), out.count("\r"), err) == (1, 5, "")
    assert out.rpartition("\r")[2].rstrip() == "encode: 4/4 texts, 1/s, in 4.0 s"


PHASES = {"read": "Read the documents", "train": "Train", "encode": "Encode all passages"}


def test_a_whole_says_the_phase_what_it_does_and_the_time_for_all_of_it(clock, capsys):
    seconds = {"read": 10.0, "train": 60.0, "encode": 20.0}
    said: list[str] = []
    with Whole(PHASES, said.append, seconds.get, ["train"]) as whole:
        whole.begin("read")
        whole.works()
        clock.now += 20  # twice as slow as expected, and so will be the encoding
        whole.begin("train")
        whole.works()
        whole.works()
        with Progress("simclr", 10, "steps") as bar:
            clock.now += 15
            bar.advance(2)
            bar.say("a remark of a stage")
        whole.begin("encode")
        say("another one")
    assert said == [
        "[1/3] Read the documents (about 1 min 30 s left in all)",
        "[2/3] Train (about 1 min 40 s left in all)",
        "[3/3] Encode all passages: up to date",
    ]
    assert (
        capsys.readouterr().err
        == "[2/3] Train: 2/10 steps, 0.133/s, 1 min 0 s left, about 1 min 40 s left in all\n"
    )


def test_the_time_of_a_phase_counts_parts_that_are_to_come(clock, capsys):
    with Whole(PHASES, lambda line: None, {"encode": 20.0}.get) as whole:
        whole.begin("train")
        whole.works()
        whole.repeat(5)
        clock.now += 5  # before the part's bar begins
        with Progress("finetune", 10, "steps") as bar:
            clock.now += 15
            bar.advance(5)
    line = "[2/3] Train: 5/10 steps, 0.333/s, 15 s left, about 3 min 30 s left in all\n"
    assert capsys.readouterr().err == line, "15 s of this part, five of 35 s, 20 s of the next phase"


def test_the_time_of_a_whole_is_not_said_while_a_phase_is_unknown(clock, capsys):
    said: list[str] = []
    with Whole(PHASES, said.append, {"read": 1.0, "train": 1.0}.get) as whole:
        whole.begin("read")
        whole.works()
        clock.now += 1
        whole.drop("encode")
        whole.begin("train")
        whole.works()
    assert said == ["[1/3] Read the documents", "[2/2] Train (about 1.0 s left in all)"]


def test_a_short_phase_says_nothing_of_the_pace(clock, capsys):
    said: list[str] = []
    with Whole(PHASES, said.append, {"read": 0.5, "train": 60.0, "encode": 20.0}.get) as whole:
        whole.begin("read")
        whole.works()
        clock.now += 20  # forty times as slow, because something was compiled
        whole.begin("train")
        whole.works()
    assert said[1] == "[2/3] Train (about 1 min 20 s left in all)"


def test_a_bar_that_counts_the_whole_phase_corrects_the_estimate(clock, capsys):
    expected = {"read": 1000.0, "train": 60.0, "encode": 500.0}
    with Whole(PHASES, announce, expected.get, ["train"], one_bar=True) as whole:
        whole.begin("read")
        with Progress("read", 10, "files") as bar:
            clock.now += 10
            bar.advance(1)  # 90 s are left, a tenth of what was expected, and so will be the encoding
    assert (
        capsys.readouterr().err.splitlines()[0]
        == "[1/3] Read the documents: 1/10 files, 0.1/s, 1 min 30 s left, about 3 min 20 s left in all"
    )


def test_an_estimate_that_is_used_up_is_not_said(clock, capsys):
    said: list[str] = []
    with Whole(PHASES, said.append, {"read": 5.0, "train": 0.0, "encode": 0.0}.get, ["read"]) as whole:
        for name in PHASES:
            whole.begin(name)
            whole.works()
            clock.now += 9
    assert said[0] == "[1/3] Read the documents (about 5.0 s left in all)"
    assert said[1:] == ["[2/3] Train", "[3/3] Encode all passages"]


ON_A_TERMINAL = """
import sys
from liebig.base.json_output import without_text
from liebig.base.progress import Progress, Whole, announce
with Whole({"read": "Read the documents"}, announce) as whole:
    whole.begin("read")
    whole.works()
    with without_text(), Progress("reading", 10, "texts") as bar:
        kept = sys.stdout  # as a library does that is loaded now
        print("a table")
        bar.advance(10)
assert not kept.isatty()
"""


def test_a_terminal_shows_a_bar_below_the_phase_and_no_table():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.decode())
    assert process.returncode == 0, text
    assert "[1/1] Read the documents" in text
    assert "[1/1] reading" in text
    assert "10/10 texts" in text
    assert "a table" not in text


@pytest.fixture
def volume():
    """Whatever a test sets, the next one has the normal volume."""
    yield set_volume
    set_volume("normal")


def test_quiet_leaves_errors_alone_and_verbose_shows_the_remarks_of_parts(clock, capsys, volume):
    volume("quiet")
    with Progress("training", 100) as bar:
        clock.now += 10
        bar.advance()
        bar.say("a remark")
    announce("a line")
    complain("an error")
    assert capsys.readouterr().err == "an error\n"
    volume("verbose")
    with Whole(PHASES, announce) as whole:
        whole.begin("read")
        whole.works()
        say("a remark")
    assert capsys.readouterr().err == "[1/3] Read the documents\na remark\n"


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


@pytest.mark.parametrize(
    ("count", "units", "words"),
    [
        (1, "documents", "1 document"),
        (0, "documents", "0 documents"),
        (12_042, "passages", "12,042 passages"),
        (1, "queries", "1 query"),
        (1, "batches", "1 batch"),
        (1, "MB", "1 MB"),
        (0.16, "MB", "0.2 MB"),
    ],
)
def test_one_is_singular(count: float, units: str, words: str) -> None:
    assert counted(count, units) == words
