"""JSON for programs: the one writer behind `--json` and the server's replies.

A command with `--json` prints one document on one line of standard output and nothing else there; what people read
instead (tables, sentences) is left out, and progress and warnings go to standard error as always. An error leaves
standard output empty: its sentence is on standard error, and the exit code says that it failed.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson


def to_json(value: Any) -> bytes:
    """A value as JSON: dataclasses and numpy arrays too; numbers that are not finite become null."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return printable(str(value))
    raise TypeError(f"{type(value).__name__} has no JSON")


def printable(text: str) -> str:
    """A text without halves of characters, which names of files and words of a command line may have."""
    return text.encode("utf-8", "replace").decode()


def print_json(value: Any) -> None:
    """One document on a line of its own, written at once so that a pipe can be read while the command runs."""
    sys.stdout.write(to_json(value).decode() + "\n")
    sys.stdout.flush()


class _Nowhere(io.TextIOBase):
    """A stream that forgets what is written; never closed, because libraries loaded meanwhile may keep it."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def without_text(silent: bool = True) -> Iterator[None]:
    """Keep what is printed for people from standard output, where a document takes its place."""
    if not silent:
        yield
        return
    with contextlib.redirect_stdout(_Nowhere()):
        yield
