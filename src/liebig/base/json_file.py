"""JSON files of folders, read into typed values: the one place where what a folder says of itself is checked.

`read_json` takes the type that the file has to have: a dataclass, a `FileModel`, or any type that pydantic knows. Types
are strict (a number in quotes is not a number), nesting is bounded, and the first mistake is one sentence with the
file, the place in it and the value. Nothing behind it has to look at types again. Cost: microseconds per file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from liebig.base.errors import AGAIN, CorruptError, LiebigError

T = TypeVar("T")
SHOWN = 60  # characters of a wrong value in a message


def _below(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or name == "":
        raise ValueError("it is not a path below the folder")
    return name


def _single(name: str) -> str:
    if "/" in name or name == ".":
        raise ValueError("it is not the name of a file or folder")
    return _below(name)


BelowPath = Annotated[str, AfterValidator(_below)]
FileName = Annotated[str, AfterValidator(_single)]
Nonnegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FileModel(BaseModel):
    """A JSON file of which some keys are read; the others are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def read_json(path: Path, kind: type[T], *, error: type[LiebigError] = CorruptError, fix: str = AGAIN) -> T:
    """The value in a file; a file that is missing, not JSON or of another type is an `error`."""
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise error(f"cannot be read: {reason.strerror}", file=path, fix=fix) from None
    return parse_json(data, kind, path, error=error, fix=fix)


def read_json_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """The values of a file, one per line; a last line without an end was cut off by a kill, and is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n") and line.strip():
                yield parse_json(line, kind, path, line=number)


def parse_json(
    data: bytes,
    kind: type[T],
    path: Path,
    *,
    error: type[LiebigError] = CorruptError,
    fix: str = AGAIN,
    line: int | None = None,
) -> T:
    """The same for the contents of a file, or of a line of it."""
    try:
        return cast(T, _adapter(cast(Any, kind)).validate_json(data, strict=True))
    except ValidationError as invalid:
        raise error(_sentence(invalid), file=path, line=line, fix=fix) from None


_adapter = cache(TypeAdapter)


def _sentence(invalid: ValidationError) -> str:
    """The first mistake: where it is, the value, and what is wrong with it."""
    first = invalid.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "json_invalid":
        return f"is not JSON ({message.removeprefix('invalid JSON: ')})"
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    value = repr(first["input"])
    value = value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
    return f"{place} = {value}: {message}" if place else f"{message}, got {value}"
