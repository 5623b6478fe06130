"""What a reader yields: a record, and where it stood.

Every reader is a function `(source, options) -> Iterator[Item]`. An item says which file and line its record
comes from, so that anything found wrong with it later can be said in the same words, and the split it belongs to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from liebig.data.sources import Source
from liebig.errors import DataError
from liebig.records import Document, Group, Hit, Judgement, Passage, Query, ScoredPair, Tuple

Record = Document | Passage | Query | Judgement | Group | ScoredPair | Tuple | Hit

SPLIT = re.compile(r"(?<![a-z])(train|dev|validation|valid|val|test|eval)(?:[._-]?(small))?(?![a-z])")
NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
SKIPPED = "skipped.txt"  # where a stage lists the files it went on without
SAME = {"validation": "dev", "valid": "dev", "val": "dev"}


class Where(NamedTuple):
    """A place in a file; lines count from 1, and 0 stands for the file as a whole."""

    file: str
    line: int = 0

    def error(self, what: str, fix: str | None = None) -> DataError:
        """What is wrong here, as an error to raise."""
        return DataError(what, file=self.file, line=self.line or None, fix=fix)

    def refuse(self, what: str, fix: str | None = None) -> NoReturn:
        """Say what is wrong here."""
        raise self.error(what, fix) from None


class Item(NamedTuple):
    """A record, where it stood, and its split ("" where the source has none)."""

    record: Record
    where: Where
    split: str = ""


class Skipped:
    """Files that a reader went on without, with the reason; `strict` refuses the first one instead."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.errors: list[DataError] = []
        self.guessed: dict[str, str] = {}  # files that are not UTF-8, with the encoding they were read in

    def add(self, error: DataError) -> None:
        """Go on without a file."""
        if self.strict:
            raise error
        self.errors.append(error)


@dataclass(frozen=True)
class Options:
    """What a reader may be told: the split of all it reads, how ids and token ids are meant, and bad files."""

    split: str | None = None
    tokenizer: Path | None = None
    id_prefix: str = ""
    topic: str = "title"
    skipped: Skipped = field(default_factory=Skipped, compare=False)

    def split_of(self, source: Source, default: str) -> str:
        """The split given, else the one that the file's name says, or its folder's as a whole, else the default."""
        found = self.split or split_in(source.name)
        if not found and SPLIT.fullmatch(source.parent.lower()):
            found = split_in(source.parent)
        return found or default


def split_in(name: str) -> str | None:
    """The split a file's name speaks of: `queries.dev.small.tsv` -> `dev.small`, `validation-00000` -> `dev`."""
    found = SPLIT.search(name.lower())
    if found is None:
        return None
    base = SAME.get(found[1], found[1])
    return f"{base}.small" if found[2] and base == "dev" else base


def check_split(split: str, where: Where) -> str:
    """The split's name, which becomes a file's name: letters, digits, dots, dashes."""
    if not NAME.fullmatch(split):
        where.refuse(f"{split!r} cannot be the name of a split", "use letters, digits, dots and dashes")
    return split
