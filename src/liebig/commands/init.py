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
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, Field
from rich.console import Console

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Document, Passage
from liebig.base.workspace import Folder
from liebig.collection.collection import KINDS, SPLIT_KINDS
from liebig.collection.summary import Census, file_warnings, show, summarise
from liebig.collection.writer import CollectionWriter
from liebig.formats.detect import Found, find
from liebig.formats.items import SKIPPED, Item, Options, Skipped

# The recipes of `liebig init` and `liebig convert`.

NAMED = ("stdlib:", "ir_datasets:")
FormatName = Literal[
    "collection", "beir", "dpr-questions", "sts", "tevatron-v1", "tevatron-v2", "msmarco-hard-negatives", "dpr-train",
    "dpr-results", "cocondenser", "condenser", "qrels-rows", "questions", "documents", "passages", "tuples",
    "trec-topics", "trec-run", "trec-qrels", "msmarco-run", "beir-qrels", "tevatron-run", "msmarco-id-triples",
    "dpr-passages", "msmarco-documents", "msmarco-titled", "msmarco-triples", "msmarco-queries", "msmarco-passages",
    "texts", "lines", "stdlib", "ir-datasets",
]  # fmt: skip
TargetName = Literal[
    "beir", "beir-qrels", "passages", "documents", "questions", "trec", "trec-qrels", "trec-topics", "trec-run",
    "msmarco", "msmarco-passages", "msmarco-titled", "msmarco-documents", "msmarco-queries", "msmarco-qrels",
    "msmarco-run", "msmarco-id-triples", "msmarco-triples", "msmarco-hard-negatives", "dpr", "dpr-passages",
    "dpr-questions", "dpr-train", "dpr-results", "tevatron-v1", "tevatron-v2", "tevatron-run", "condenser",
    "cocondenser", "tuples", "sts", "huggingface", "texts", "lines", "vectors",
]  # fmt: skip


def _sources(value: Any) -> Any:
    """Names of sources (-, stdlib:, ir_datasets:) stay names; everything else is a path."""
    values = [value] if isinstance(value, str | Path) else value
    return [_source(part) for part in values] if isinstance(values, list | tuple) else value


def _source(value: Any) -> Any:
    is_name = isinstance(value, str) and (value == "-" or value.startswith(NAMED))
    return value if is_name or not isinstance(value, str) else Path(value)


class InitConfig(Config):
    """Read data in any of the field's formats into a collection, and look at it."""

    paths: Annotated[tuple[InputPath | str, ...], BeforeValidator(_sources)] = Field(
        min_length=1,
        description="Files and folders to read; - is standard input, stdlib: Python's own documentation.",
    )
    format: FormatName | None = Field(
        None, description="The format of all the paths [default: told from each]."
    )
    split: str | None = Field(
        None, description="The split of all that is read [default: told from file names]."
    )
    strict: bool = Field(
        False, description="Treat everything suspicious as an error, files that cannot be read too."
    )
    limit: int | None = Field(None, ge=1, description="Keep so many documents and passages at most.")
    tokenizer: InputPath | None = Field(
        None, description="The tokenizer that made token ids in pre-training lines."
    )
    topic: Literal["title", "desc", "narr"] = Field(
        "title", description="The field of TREC topics that is the query."
    )


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


STAGE = Stage(
    "init", InitConfig, run, "liebig init ~/articles stdlib: --out runs/collection", positional="paths"
)
