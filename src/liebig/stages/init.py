"""`liebig init`: read data in any supported format into a collection, in one pass, and summarise it.

The formats of all paths are detected first, so that an unknown one stops before anything is written; then their records
stream into the collection and into the counts of the summary. Documents and files that cannot be read are skipped and
listed in skipped.txt. A bad line inside a file of data is an error if the file was named, because half a data set is
worse than none; in a folder, nothing of the file is kept and it is listed. Memory: about 30 bytes per record.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from rich.console import Console

from liebig.base.config import Config, InputPath, Unrecorded, one_or_several
from liebig.base.errors import DataError, LiebigError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Document, Passage
from liebig.base.workspace import Folder
from liebig.collection import KINDS, SPLIT_KINDS
from liebig.collection.census import Census
from liebig.collection.show_summary import show
from liebig.collection.summary import file_warnings, summarise
from liebig.collection.writer import CollectionWriter
from liebig.formats import BY_PATH, Match, detect, is_name, readable
from liebig.formats.convert import Converter, by_suffix, only_made, user_converters
from liebig.formats.hub_dataset import PREFIX as HUB
from liebig.formats.items import Item, Options
from liebig.formats.ledger import SKIPPED, Ledger
from liebig.formats.left_out import LeaveOut, is_left_out
from liebig.formats.read_before import NAME as READ_FILES, ReadBefore
from liebig.text.languages import language_of


def one_of(name: str, names: Sequence[str]) -> str:
    """The name, if it is one of these; else the error of a wrong choice, which the recipe's reader explains."""
    if name in names:
        return name
    raise PydanticCustomError("literal_error", "should be one of {expected}", {"expected": ", ".join(names)})


FormatName = Annotated[str, AfterValidator(lambda name: one_of(name, readable()))]


def _sources(value: Any) -> Any:
    """Names of sources (-, stdlib:, hf:) stay names; every other string is a path."""
    values = [value] if isinstance(value, str | Path) else value
    if not isinstance(values, list | tuple):
        return value
    return [Path(part) if isinstance(part, str) and not is_name(part) else part for part in values]


class InitConfig(Config):
    """Read data in any supported format into a collection and summarise it."""

    paths: Annotated[tuple[InputPath | str, ...], BeforeValidator(_sources)] = Field(
        min_length=1,
        description="Files and folders to read; - is standard input, hf:org/name a data set of the Hugging Face hub, "
        "stdlib: Python's own documentation.",
    )
    format: FormatName | None = Field(
        None, description="Format of all the paths; docs/formats.md lists them [default: detected for each]."
    )
    split: str | None = Field(
        None, description="Split of everything that is read [default: taken from file names]."
    )
    strict: bool = Field(False, description="Treat warnings and files that cannot be read as errors.")
    limit: int | None = Field(None, ge=1, description="Maximum number of documents and passages to keep.")
    columns: dict[Literal["id", "title", "text"], str] = Field(
        {}, description="Columns of tables that hold the id, title and text of documents: columns.text=body."
    )
    topic: Literal["title", "desc", "narr"] = Field(
        "title", description="Field of TREC topics to use as the query."
    )
    exclude: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] = Field(
        (),
        description="Patterns of files and folders to leave out, as in a .gitignore; !PATTERN takes one back.",
    )
    include: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] = Field(
        (), description="Patterns of the files to read; all others are left out [default: all files]."
    )
    ignore_files: bool = Field(True, description="Leave out what .gitignore and .liebigignore files list.")
    languages: bool = Field(
        False, description="Detect the language of every document, and keep it as metadata."
    )

    convert: Annotated[tuple[Converter, ...], BeforeValidator(only_made)] = Field(
        (), description="Commands that turn files into text; only the user's configuration can name them."
    )
    reuse: Annotated[tuple[Path, ...], Unrecorded()] = Field(
        (),
        description="An earlier collection of the same sources, whose files are not read again if unchanged.",
    )

    @property
    def rules(self) -> LeaveOut:
        """What is left out of folders."""
        return LeaveOut(self.exclude, self.include, self.ignore_files)

    @property
    def format_of_files(self) -> str | None:
        """The format that files are read in; None where it is detected."""
        return self.format or ("documents" if self.columns else None)


STRIDE = 256
SUMMARY = "summary.json"


def run(config: InitConfig, folder: Folder) -> None:
    """Read the paths into a collection, print its summary, and keep it as summary.json."""
    ledger = Ledger(config.strict)
    matches = _detect(config, ledger)
    _refuse_inside(config, folder)
    options = Options(
        split=config.split,
        topic=config.topic,
        columns={str(name): column for name, column in config.columns.items()},
        format=config.format_of_files,
        converters=by_suffix(config.convert or user_converters()),
        before=ReadBefore(*config.reuse),
        ledger=ledger,
    )
    _clear(folder.path)
    census = Census()
    with CollectionWriter(folder.path) as writer:
        collect(matches, options, writer, census, config.limit, config.languages)
    options.log.save(folder.path, ledger)
    if not writer.counts:
        _refuse_nothing(config, ledger)
    if ledger.errors or ledger.ignored or ledger.cut:
        folder.write_text(SKIPPED, "".join(f"{line}\n" for line in ledger.listing()))
    summary = summarise(folder.path, matches, writer, census)
    summary["warnings"] += file_warnings(ledger)
    summary |= {"files": ledger.summary(), "tables": ledger.tables}
    if config.languages:
        summary["languages"] = dict(census.languages.most_common())
    folder.write_json(SUMMARY, summary)
    show(summary, Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty()))
    if config.strict and summary["warnings"]:
        first = summary["warnings"][0]["sentence"]
        raise DataError(
            f"{len(summary['warnings'])} warnings, the first: {first}",
            fix="correct the data, or leave out --strict",
        )


def _detect(config: InitConfig, ledger: Ledger) -> list[Match]:
    """What the paths hold. A path that does not exist is an error; one that cannot be read is skipped."""
    matches: list[Match] = []
    for path in config.paths:
        try:
            # A data set of the hub is read file by file: its reader gets the format of the files with the options.
            named = None if str(path).startswith(HUB) else config.format_of_files
            matches += detect(path, named, ledger, config.rules)
        except DataError as error:
            if not (isinstance(path, Path) and path.exists()):
                raise
            ledger.skip(error)
    if not matches:
        _refuse_nothing(config, ledger)
    return matches


def _refuse_nothing(config: InitConfig, ledger: Ledger) -> NoReturn:
    """Say why nothing was read: the errors if there were any, else that the sources are empty."""
    if len(ledger.errors) == 1:
        raise ledger.errors[0]
    where = ", ".join(map(str, config.paths))
    if ledger.errors:
        what = (
            f"none of the files can be read; {len(ledger.errors):,} were tried, the first: {ledger.errors[0]}"
        )
        raise DataError(what, file=where)
    raise DataError("it contains nothing to read", file=where)


def collect(
    matches: Sequence[Match],
    options: Options,
    writer: CollectionWriter,
    census: Census,
    limit: int | None,
    languages: bool = False,
) -> None:
    """Write the records of the sources into the collection and count them; a file of a folder wholly or not at all."""
    with Progress("reading", unit="records") as bar:
        for match in matches:
            bar.note(match.source.name)
            number, before = 0, (writer.mark(), census.mark())
            try:
                for number, item in enumerate(_limited(match, options, writer, limit), 1):
                    item = _with_language(item) if languages and not item.read_before else item
                    start = writer.size("documents")
                    if added := writer.add(item, match.source.name if match.format.name in BY_PATH else ""):
                        census.see(item)
                    if isinstance(item.record, Document):
                        as_given = bool(added) and writer.last_id == item.record.id
                        options.log.written(item.where.file, start, writer.size("documents"), as_given)
                    if number % STRIDE == 0:
                        bar.advance(STRIDE)
            except Exception as error:  # a library may let anything out of a damaged file
                if not match.in_folder:
                    raise
                writer.back_to(before[0])
                census.back_to(before[1])
                failure = error if isinstance(error, LiebigError) else match.source.damaged(error)
                options.ledger.skip_file(match.source.label, failure)
            bar.advance(number % STRIDE)


def _with_language(item: Item) -> Item:
    """The item, whose document or passage says its language where that can be told."""
    record = item.record
    if not isinstance(record, Document | Passage) or not (language := language_of(record)):
        return item
    if isinstance(record, Passage):
        return item._replace(record=replace(record, language=language))
    return item._replace(record=replace(record, metadata={**record.metadata, "language": language}))


def _limited(match: Match, options: Options, writer: CollectionWriter, limit: int | None) -> Iterator[Item]:
    """The items of a source, without documents and passages past the limit."""
    for item in match.items(options):
        is_text = isinstance(item.record, Document | Passage)
        if is_text and limit is not None and writer.counts["documents"] + writer.counts["passages"] >= limit:
            if match.format.is_corpus:
                return
            continue
        yield item


def _refuse_inside(config: InitConfig, folder: Folder) -> None:
    """Refuse to write inside a folder that is read, unless it is left out: the next run would read its own output."""
    for path in config.paths:
        if not isinstance(path, Path) or not folder.out.is_relative_to(path.resolve()):
            continue
        if not is_left_out(folder.out, path.resolve(), config.rules):
            raise DataError(
                f"the output folder {folder.out} is inside this input folder",
                file=path,
                fix="give an --out outside of it",
            )


def _clear(folder: Path) -> None:
    """Remove what an interrupted attempt left."""
    for kind in KINDS:
        (folder / f"{kind}.jsonl").unlink(missing_ok=True)
    for name in (*SPLIT_KINDS, "index"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (SKIPPED, READ_FILES):
        (folder / name).unlink(missing_ok=True)


STAGE = Stage(
    "init",
    InitConfig,
    run,
    "liebig init ~/articles stdlib: --out runs/collection",
    positional="paths",
    document=SUMMARY,
)
