"""`liebig init`: any of the field's formats into one collection, in one pass, looked at while it goes by.

The paths are looked at first, so that a format that cannot be told stops before anything is written; then their
items stream into the collection's files and past the census. Documents and files that cannot be read are skipped and
listed in skipped.txt; a bad line inside a file of data stops, because half of a data set is no data set. Memory: about
30 bytes a record, whatever its length.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from liebig.corpus.census import Census
from liebig.corpus.init_config import InitConfig
from liebig.corpus.inspect import file_warnings, summarise
from liebig.corpus.show import show
from liebig.data.collection import KINDS, SPLIT_KINDS
from liebig.data.collection_writer import CollectionWriter
from liebig.data.formats import Found, find
from liebig.data.items import SKIPPED, Item, Options, Skipped
from liebig.errors import DataError
from liebig.progress import Progress
from liebig.records import Document, Passage
from liebig.workspace import Folder

CORPUS_ONLY = frozenset(
    ("documents", "passages", "msmarco-passages", "msmarco-titled", "msmarco-documents", "dpr-passages", "condenser",
     "cocondenser", "lines", "texts", "stdlib")
)  # fmt: skip
STRIDE = 256


def run(config: InitConfig, folder: Folder) -> None:
    """Read the paths into a collection, print what a careful person would look at, and keep it as summary.json."""
    skipped = Skipped(config.strict)
    found = _find(config, skipped)
    _refuse_inside(config.paths, folder)
    options = Options(split=config.split, tokenizer=config.tokenizer, topic=config.topic, skipped=skipped)
    _clear(folder.path)
    census = Census()
    with CollectionWriter(folder.path) as writer:
        collect(found, options, writer, census, config.limit)
    if not writer.counts:
        _refuse_nothing(config, skipped)
    if skipped.errors:
        folder.write_text(SKIPPED, "".join(f"{error}\n" for error in skipped.errors))
    summary = summarise(folder.path, found, writer, census)
    summary["warnings"] += file_warnings(skipped)
    folder.write_json("summary.json", summary)
    show(summary, Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty()))
    if config.strict and summary["warnings"]:
        first = summary["warnings"][0]["sentence"]
        raise DataError(
            f"{len(summary['warnings'])} warnings, the first: {first}",
            fix="mend the data, or leave out --strict",
        )


def _find(config: InitConfig, skipped: Skipped) -> list[Found]:
    """What the paths hold. A path that does not exist is a mistake; one that cannot be read is skipped like others."""
    found: list[Found] = []
    for path in config.paths:
        try:
            found += find(path, config.format, skipped)
        except DataError as error:
            if not (isinstance(path, Path) and path.exists()):
                raise
            skipped.add(error)
    if not found:
        _refuse_nothing(config, skipped)
    return found


def _refuse_nothing(config: InitConfig, skipped: Skipped) -> NoReturn:
    """Say why there is nothing: the reason where there is one, else that the sources are empty."""
    if len(skipped.errors) == 1:
        raise skipped.errors[0]
    where = ", ".join(map(str, config.paths))
    if skipped.errors:
        what = f"none of the files can be read; {len(skipped.errors):,} were tried, the first: {skipped.errors[0]}"
        raise DataError(what, file=where)
    raise DataError("there is nothing to read in it", file=where)


def collect(
    found: Sequence[Found], options: Options, writer: CollectionWriter, census: Census, limit: int | None
) -> None:
    """Every item of the sources into the collection and past the census."""
    with Progress("reading", unit="records") as bar:
        for one in found:
            bar.note(one.source.name)
            number = 0
            for number, item in enumerate(_within(one.items(options), one, writer, limit), 1):
                if writer.add(item):
                    census.see(item)
                if number % STRIDE == 0:
                    bar.advance(STRIDE)
            bar.advance(number % STRIDE)


def _within(
    items: Iterator[Item], found: Found, writer: CollectionWriter, limit: int | None
) -> Iterator[Item]:
    """The items, without documents and passages past the limit."""
    for item in items:
        is_text = isinstance(item.record, Document | Passage)
        if is_text and limit is not None and writer.counts["documents"] + writer.counts["passages"] >= limit:
            if found.format.name in CORPUS_ONLY:
                return
            continue
        yield item


def _refuse_inside(paths: Sequence[Path | str], folder: Folder) -> None:
    """A collection inside the folder it is read from would be read with it the next time."""
    for path in paths:
        if isinstance(path, Path) and folder.out.is_relative_to(path.resolve()):
            raise DataError(
                f"this folder is read, and {folder.out} lies in it", file=path, fix="give an --out beside it"
            )


def _clear(folder: Path) -> None:
    """Begin anew where an earlier attempt was interrupted."""
    for kind in KINDS:
        (folder / f"{kind}.jsonl").unlink(missing_ok=True)
    for name in (*SPLIT_KINDS, "index"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / SKIPPED).unlink(missing_ok=True)
