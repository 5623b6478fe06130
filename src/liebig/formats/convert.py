"""Converters: commands of the user that turn a file into text, such as OCR of scanned PDFs.

    [convert]                     # in ~/.config/liebig/config.toml ($XDG_CONFIG_HOME)
    ".pdf" = "ocrmypdf --force-ocr --sidecar {text} {path} /dev/null"
    ".doc" = "catdoc -d utf-8 {path}"

A command gets the files of its suffix that Liebig has no reader for, and those in which the reader finds no text or
fails. What it prints is the text, or what it writes to the file `{text}`; form feeds divide pages. Commands come from
the user's own configuration or the command line. A recipe, a `liebig.toml` and a retriever may be somebody else's, so
none of them can name one. Cost: a process per file, at most SECONDS and LARGEST bytes of text each.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess  # nosec B404
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.base.config import read_toml
from liebig.base.errors import DataError, RecipeError
from liebig.base.machine import WINDOWS, config_folder
from liebig.formats.compressed import BUFFER
from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_plain
from liebig.formats.on_disk import DiskSource
from liebig.formats.outline import Article, numbered_section

SECONDS = 600.0
LARGEST = 1 << 26  # bytes of text
LOOK = 0.1  # seconds between two looks at a command that is running
SAID = 200  # characters of an error that are kept
SUFFIX = re.compile(r"\.[^./\\\s=]+")
PLACES = re.compile(r"\{(path|text)\}")


@dataclass(frozen=True)
class Converter:
    """A command that turns files of a suffix into text, as a list of arguments."""

    suffix: str
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, suffix: str, command: Any, place: str | Path) -> Converter:
        if not SUFFIX.fullmatch(suffix):
            raise RecipeError(f"{suffix!r} is not a suffix", file=place, fix='write it as ".pdf"')
        try:
            arguments = tuple(shlex.split(command)) if isinstance(command, str) else ()
        except ValueError as error:
            raise RecipeError(f"{suffix} = {command!r} cannot be read ({error})", file=place) from None
        if not any("{path}" in word for word in arguments[1:]):
            fix = f'write it as text: "{suffix}" = "program {{path}}"'
            raise RecipeError(f"{suffix} = {command!r} is not a command with a {{path}}", file=place, fix=fix)
        return cls(suffix.lower(), arguments)


def only_made(value: Any) -> Any:
    """A check of configs: commands cannot be written in a recipe."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, Converter) for one in value):
        raise ValueError(f"commands come from the command line of a build, or from {config_file()}")
    return value


def given_converters(options: Iterable[str]) -> tuple[Converter, ...]:
    """Those of the command line: `.pdf=command {path}`."""
    parts = [option.partition("=") for option in options]
    return tuple(Converter.of(suffix.strip(), command, "--convert") for suffix, _, command in parts)


def config_file() -> Path:
    return config_folder() / "config.toml"


def user_converters() -> tuple[Converter, ...]:
    """Those of the user's configuration; none without one."""
    path = config_file()
    if not path.is_file():
        return ()
    tree = read_toml(path)
    table = tree.pop("convert", {})
    if tree or not isinstance(table, dict):
        wrong = f"{next(iter(tree))} is not a key" if tree else "convert is not a table"
        raise RecipeError(wrong, file=path, fix="the only table is [convert]")
    return tuple(Converter.of(suffix, command, path) for suffix, command in table.items())


def by_suffix(converters: Iterable[Converter]) -> Mapping[str, tuple[str, ...]]:
    """The command of every suffix; of two the last counts."""
    return {converter.suffix: converter.arguments for converter in converters}


def convert(command: tuple[str, ...], source: InputSource) -> Article:
    with tempfile.TemporaryDirectory(prefix="liebig-") as name:
        folder = Path(name)
        if isinstance(source, DiskSource) and source.plain == source.name:
            path = source.path.absolute()
        else:  # in an archive, or compressed
            path = folder / f"file{source.suffix}"
            try:
                with source.open() as stream, path.open("wb") as copy:
                    shutil.copyfileobj(stream, copy, BUFFER)
            except DAMAGE as error:
                raise source.damaged(error) from None
        written = folder / "text"
        places = {"path": str(path), "text": str(written)}
        arguments = [PLACES.sub(lambda match: places[match[1]], word) for word in command]
        raw = _run(arguments, folder, source.label)
        if any("{text}" in word for word in command) and written.is_file():
            with written.open("rb") as file:
                raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DataError(f"the converter makes more than {LARGEST >> 20} MiB of text", file=source.label)
    return _article(decode_text(raw, Where(source.label))[0])


def _article(text: str) -> Article:
    text = text.replace("\r\n", "\n")
    if "\f" not in text:
        return parse_plain(text)
    paragraphs = [
        (number, paragraph)
        for number, page in enumerate(text.split("\f"), 1)
        for section in parse_plain(page).sections
        for paragraph in section.paragraphs
    ]
    section = numbered_section("", paragraphs, "page")
    return Article("", (section,) if section.paragraphs else ())


def _run(arguments: list[str], folder: Path, label: str) -> bytes:
    """What a command prints. It gets no shell, no input and, where there are any, a process group that ends with it."""
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # nosec B603  the user's own command
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                cwd=folder,
                start_new_session=not WINDOWS,
            )
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise DataError(f"the converter cannot be run ({arguments[0]}: {why})", file=label) from None
        deadline, code = time.monotonic() + SECONDS, None
        try:
            while code is None:
                if time.monotonic() > deadline:
                    raise DataError(f"the converter took more than {SECONDS:g} s", file=label)
                if max(os.fstat(file.fileno()).st_size for file in (printed, errors)) > LARGEST:
                    raise DataError(f"the converter prints more than {LARGEST >> 20} MiB", file=label)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(LOOK)
        finally:
            if process.poll() is None:
                _kill(process)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
        said = errors.read().decode("utf-8", "replace").split("\n")
        if code:
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            last = "".join(sign for sign in last if sign.isprintable())[:SAID]
            raise DataError(f"the converter failed (exit code {code}: {last})", file=label)
        printed.seek(0)
        return printed.read(LARGEST + 1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command that has not ended, and what it has started."""
    if WINDOWS:
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
