"""What became of every file of the sources: it was read, or it is listed with the reason why it was not.

Detection enters each file it sees; readers and the caller enter what they read, skip or ignore. A skipped file could
not be read, which `strict` makes an error; an ignored file was left out on purpose. `unexplained` is empty at the end
of a complete reading: files seen = read + skipped + ignored. Memory: the name of each file.
"""

from __future__ import annotations

from liebig.base.errors import DataError, LiebigError

SKIPPED = "skipped.txt"  # where a stage lists the files it skipped


class Ledger:
    """Files seen, read, skipped and ignored, by their labels."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.seen: dict[str, None] = {}  # in the order of the source
        self.read: set[str] = set()
        self.errors: list[LiebigError] = []
        self._skipped: set[str | None] = set()  # the files of the errors
        self.ignored: dict[str, str] = {}  # with the reason
        self.guessed: dict[str, str] = {}  # files that are not UTF-8, with the encoding they were read in
        self.tables: dict[str, str] = {}  # tables of any columns, with those that hold text

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
        self._skipped.add(error.file)

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
            "skipped": len(self.errors),
            "ignored": len(self.ignored),
        }
