"""What became of every file of the sources: it was read, or it is listed with the reason why it was not.

Detection enters each file it sees; readers and the caller enter what they read, skip or ignore. A skipped file could
not be read, which `strict` makes an error; an ignored file was left out on purpose. `unexplained` is empty at the end
of a complete reading: files seen = read + skipped + ignored. `table` counts those that were not read by suffix and
reason. Memory: the name of each file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from liebig.base.errors import DataError, LiebigError

SKIPPED = "skipped.txt"  # where a stage lists the files that were not read
FILES = "files.json"  # the same as counts, beside a retriever
DETAIL = re.compile(r"\s*\([^()]*\)|[;:].*")  # what differs between files that fail for one reason
PACKED = frozenset((".gz", ".bz2", ".xz", ".zst"))


class Ledger:
    """Files seen, read, skipped and ignored, by their labels."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.seen: dict[str, None] = {}  # in the order of the source
        self.read: set[str] = set()
        self.errors: list[LiebigError] = []
        self._skipped: set[str] = set()  # the files of the errors
        self.ignored: dict[str, str] = {}  # with the reason
        self.guessed: dict[str, str] = {}  # files that are not UTF-8, with the encoding they were read in
        self.tables: dict[str, str] = {}  # tables of any columns, with those that hold text
        self.cut: dict[str, str] = {}  # files that were read in part, with the limit

    def see(self, label: str) -> None:
        """Enter a file before it is read."""
        self.seen[label] = None

    def mark_read(self, label: str) -> None:
        """Enter a file that was read to its end."""
        self.read.add(label)
        self.ignored.pop(label, None)

    def skip(self, error: LiebigError) -> None:
        """List a file that cannot be read; an error if the ledger is strict."""
        if self.strict:
            raise error
        self.errors.append(error)
        if error.file is not None:
            label = str(error.file)
            self._skipped.add(label)
            self.seen[label] = None
            self.read.discard(label)
            self.ignored.pop(label, None)

    def skip_file(self, label: str, error: LiebigError) -> None:
        """The same for an error that may name no file, or another name of it."""
        named = error.file is not None and error.file == label
        self.skip(error if named else DataError(error.what, file=label, line=error.line, fix=error.fix))

    def ignore(self, label: str, reason: str) -> None:
        """List a file that is left out on purpose, unless it is explained otherwise."""
        if label not in self.read and label not in self._skipped:
            self.ignored[label] = reason

    def is_explained(self, label: str) -> bool:
        """Whether a file was read or is listed."""
        return label in self.read or label in self._skipped or label in self.ignored

    def unexplained(self) -> list[str]:
        """Files seen that were neither read nor listed."""
        return [label for label in self.seen if not self.is_explained(label)]

    def counts(self) -> dict[str, int]:
        """How many files were seen, read, skipped and ignored."""
        return {
            "seen": len(self.seen),
            "read": len(self.read),
            "skipped": len(self._skipped),
            "ignored": len(self.ignored),
        }

    def table(self) -> list[dict[str, Any]]:
        """How many files were not read, by suffix and reason, the most first."""
        reasons = {str(error.file): error.what for error in self.errors if error.file is not None}
        rows = Counter((_suffix(label), _reason(why)) for label, why in (reasons | self.ignored).items())
        order = sorted(rows.items(), key=lambda row: (-row[1], row[0]))
        return [{"suffix": suffix, "reason": reason, "files": count} for (suffix, reason), count in order]

    def summary(self) -> dict[str, Any]:
        """The counts and the table, for a file of JSON."""
        return {**self.counts(), "not_read": self.table(), "cut": self.cut}

    def listing(self) -> Iterator[str]:
        """The lines of skipped.txt: counts, the table, and every file that was not read or not read whole."""
        yield from summary_lines(self.summary())
        yield ""
        yield from map(str, self.errors)
        yield from (f"{label}: {reason}" for label, reason in {**self.ignored, **self.cut}.items())


def summary_lines(summary: dict[str, Any], shown: int | None = None) -> list[str]:
    """The counts of a summary as a sentence, and below it the table; `shown` is its maximum number of lines."""
    rows = summary["not_read"]
    listed = sum(row["files"] for row in rows)
    lines = [f"{summary['seen']:,} files seen = {summary['read']:,} read + {listed:,} not read"]
    kept = rows if shown is None or len(rows) <= shown else rows[: shown - 1]
    lines += [f"{row['files']:>8,}  {row['suffix']:<8} {row['reason']}" for row in kept]
    if len(kept) < len(rows):
        rest = sum(row["files"] for row in rows[len(kept) :])
        lines.append(f"{rest:>8,}  of other kinds or for other reasons")
    return lines


def _suffix(label: str) -> str:
    """The suffix of a file, through that of a compressor; "(none)" where it has none."""
    path = PurePosixPath(label.rpartition("!")[2] or label)
    path = path.with_suffix("") if path.suffix.lower() in PACKED and path.stem else path
    return path.suffix.lower()[:12] or "(none)"


def _reason(why: str) -> str:
    """A reason without what differs from file to file."""
    return " ".join(DETAIL.sub("", why).split()) or why
