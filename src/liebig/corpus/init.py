"""`liebig init`: any of the field's formats into one collection, in one pass, looked at while it goes by.

The paths are looked at first, so that a format that cannot be told stops before anything is written; then their
items stream into the collection's files and past the census. Memory: about 30 bytes a record, whatever its length.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from liebig.corpus.census import Census
from liebig.corpus.init_config import InitConfig
from liebig.corpus.inspect import summarise
from liebig.corpus.show import show
from liebig.data.collection import KINDS, SPLIT_KINDS
from liebig.data.collection_writer import CollectionWriter
from liebig.data.formats import Found, find
from liebig.data.items import Item, Options
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
    found = [one for path in config.paths for one in find(path, config.format)]
    _refuse_inside(config.paths, folder)
    options = Options(split=config.split, tokenizer=config.tokenizer, topic=config.topic)
    _clear(folder.path)
    census = Census()
    with CollectionWriter(folder.path) as writer:
        collect(found, options, writer, census, config.limit)
    if not writer.counts:
        raise DataError("there is nothing to read in it", file=", ".join(map(str, config.paths)))
    summary = summarise(folder.path, found, writer, census)
    folder.write_json("summary.json", summary)
    show(summary, Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty()))
    if config.strict and summary["warnings"]:
        first = summary["warnings"][0]["sentence"]
        raise DataError(
            f"{len(summary['warnings'])} warnings, the first: {first}",
            fix="mend the data, or leave out --strict",
        )


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
