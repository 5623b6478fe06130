"""What a reader yields (a record, its place and its split), what it may be told, and checks of the values it reads.

Every reader is a function `(source, options) -> Iterator[Item]`. An item knows the file and line of its record, so
that later errors can name them. Sources write ids as numbers, grades as "1.0" and titles as null: `as_id`, `as_grade`,
`as_text` and the like take each as what it means, and refuse what means nothing, with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field as field_
from typing import Any, NamedTuple, NoReturn

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.formats.inputs import InputSource
from liebig.formats.ledger import Ledger
from liebig.formats.read_before import ReadBefore, ReadingLog

Record = Document | Passage | Query | Judgement | Group | ScoredPair | Tuple | Hit
SPLIT = re.compile(r"(?<![a-z])(?:doc)?(train|dev|validation|valid|val|test|eval)(?:[._-]?(small))?(?![a-z])")
NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
SAME = {"validation": "dev", "valid": "dev", "val": "dev"}


class Where(NamedTuple):
    """A place in a file; lines count from 1, and 0 stands for the file as a whole."""

    file: str
    line: int = 0

    def error(self, what: str, fix: str | None = None) -> DataError:
        return DataError(what, file=self.file, line=self.line or None, fix=fix)

    def refuse(self, what: str, fix: str | None = None) -> NoReturn:
        raise self.error(what, fix) from None


class Item(NamedTuple):
    """A record, its place, its split ("" if the source has none), and whether an earlier reading left it."""

    record: Record
    where: Where
    split: str = ""
    read_before: bool = False


@dataclass(frozen=True)
class Options:
    """What a reader may be told: the split, a prefix of ids, the field of topics.

    `columns` names the columns of a table that hold the id, title and text of documents; `format` that of the files
    of a data set that is only named. Without `passages`, a reader may leave passages out; BEIR's does. `converters`
    are commands by suffix; `before` is an earlier reading, and `log` what the next one will know of this one.
    """

    split: str | None = None
    id_prefix: str = ""
    topic: str = "title"
    columns: Mapping[str, str] = field_(default_factory=dict)
    format: str | None = None
    passages: bool = True
    converters: Mapping[str, tuple[str, ...]] = field_(default_factory=dict)
    before: ReadBefore = field_(default_factory=ReadBefore, compare=False)
    log: ReadingLog = field_(default_factory=ReadingLog, compare=False)
    ledger: Ledger = field_(default_factory=Ledger, compare=False)

    def split_of(self, source: InputSource, default: str) -> str:
        """The split given, else the one in the file's name, or its folder's if that is all of it, else the default."""
        split = self.split or split_in(source.name)
        if not split and SPLIT.fullmatch(source.parent.lower()):
            split = split_in(source.parent)
        return split or default


def split_in(name: str) -> str | None:
    """The split that a file's name mentions: `queries.dev.small.tsv` -> `dev.small`, `validation-00000` -> `dev`."""
    match = SPLIT.search(name.lower())
    if match is None:
        return None
    base = SAME.get(match[1], match[1])
    return f"{base}.small" if match[2] and base == "dev" else base


def check_split(split: str, where: Where) -> str:
    """The name of a split, if it can be the name of a file: letters, digits, dots and dashes."""
    if not NAME.fullmatch(split):
        where.refuse(f"{split!r} cannot be the name of a split", "use letters, digits, dots and dashes")
    return split


Row = Mapping[str, Any]
BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")
MAX_ID = 4096


def field(row: Row, names: Sequence[str], where: Where) -> Any:
    for name in names:
        if name in row:
            return row[name]
    expected = " or ".join(map(repr, names))
    raise where.error(f"the record has no field {expected} (it has {_listed(row)})")


def as_id(value: Any, where: Where) -> str:
    """An id: a string or a whole number, not empty, without control characters, not too long."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        where.refuse(f"an id must be a string or a whole number, not {_shown(value)}")
    text = str(value)
    if not text or text.isspace():
        where.refuse("an id is empty")
    if BREAKS.search(text):
        where.refuse(f"the id {text[:60]!r} contains a control character, line break or byte order mark")
    if len(text) > MAX_ID:
        where.refuse(f"an id is {len(text):,} characters long; is this the right column?")
    return text


def as_text(value: Any, where: Where, name: str = "text") -> str:
    """A text; null stands for an empty one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        where.refuse(f"{name} must be a string, not {_shown(value)}")
    return value


def as_texts(value: Any, where: Where, name: str) -> tuple[str, ...]:
    """A list of texts; null stands for none, and one text for a list of it."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        where.refuse(f"{name} must be a list of strings, not {_shown(value)}")
    return tuple(as_text(text, where, name) for text in value)


def as_list(value: Any, where: Where, name: str) -> list[Any]:
    """A list; null stands for an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        where.refuse(f"{name} must be a list, not {_shown(value)}")
    return value


def as_row(value: Any, where: Where, name: str = "the line") -> Row:
    if not isinstance(value, Mapping):
        where.refuse(
            f"{name} must be a JSON object, not {_shown(value)}",
            fix="if this file is not data, move it out of the folder, or name the files to read one by one",
        )
    return value


def as_grade(value: Any, where: Where) -> int:
    """A relevance grade: a whole number, possibly negative, possibly written as 1.0."""
    number = as_score(value, where, "relevance")
    if number != int(number) or abs(number) > 1 << 31:
        where.refuse(f"the relevance {_shown(value)} is not a whole number")
    return int(number)


def as_score(value: Any, where: Where, name: str = "score") -> float:
    """A finite number, possibly written as a string."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or "_" in str(value):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        where.refuse(f"{name} must be a number, not {_shown(value)}")
    if not math.isfinite(number):
        where.refuse(f"{name} must be finite, not {_shown(value)}")
    return number


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _listed(row: Row) -> str:
    names = [repr(name)[:40] for name in list(row)[:8]]
    return ", ".join(names) + (", …" if len(row) > 8 else "") if names else "none"
