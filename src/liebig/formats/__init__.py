"""The formats that Liebig reads and writes, in one ordered table, and how the format of a path is detected.

`detect(path)` gives what a path holds and why; a folder may hold several formats. The first format whose rule fits
wins, so special formats come before general ones. A new format is one file and one line of `BUILT_IN`. Other packages
add formats with the entry point group `liebig.formats`, for example `warc = "my_package.warc:WARC"`; they are tried
after the built-in ones unless they name one in `before`. The modules are imported at first use, because collections
read their own files with some of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from liebig.base.errors import DataError, RecipeError
from liebig.base.extensions import extended, load
from liebig.formats.base import Format
from liebig.formats.inputs import FileSelection, InputSource, NamedSource
from liebig.formats.items import Item, Options
from liebig.formats.ledger import Ledger
from liebig.formats.left_out import USUAL, LeaveOut
from liebig.formats.on_disk import source_of
from liebig.formats.preview import Preview

GROUP = "liebig.formats"
BUILT_IN = {
    "collection": "liebig.collection.as_source:COLLECTION",
    "beir": "liebig.formats.beir:BEIR",
    "dpr-questions": "liebig.formats.dpr:QUESTIONS",
    "sts": "liebig.formats.tuples:STS",
    "tevatron-v1": "liebig.formats.tevatron:FIRST",
    "tevatron-v2": "liebig.formats.tevatron:SECOND",
    "msmarco-hard-negatives": "liebig.formats.msmarco:HARD_NEGATIVES",
    "dpr-train": "liebig.formats.dpr:TRAINING",
    "dpr-results": "liebig.formats.dpr:RESULTS",
    "cocondenser": "liebig.formats.condenser_lines:COCONDENSER",
    "condenser": "liebig.formats.condenser_lines:CONDENSER",
    "qrels-rows": "liebig.formats.beir:QRELS_ROWS",
    "questions": "liebig.formats.beir:QUESTIONS",
    "documents": "liebig.formats.documents:DOCUMENTS",
    "passages": "liebig.formats.beir:PASSAGES",
    "tuples": "liebig.formats.tuples:TUPLES",
    "trec-topics": "liebig.formats.trec:TOPICS",
    "trec-run": "liebig.formats.trec:RUN",
    "trec-qrels": "liebig.formats.trec:QRELS",
    "msmarco-run": "liebig.formats.msmarco:RUN",
    "beir-qrels": "liebig.formats.beir:QRELS",
    "tevatron-run": "liebig.formats.tevatron:RUN",
    "msmarco-id-triples": "liebig.formats.msmarco:ID_TRIPLES",
    "dpr-passages": "liebig.formats.dpr:PASSAGES",
    "table": "liebig.formats.any_table:TABLE",
    "msmarco-documents": "liebig.formats.msmarco:DOCUMENTS",
    "msmarco-titled": "liebig.formats.msmarco:TITLED",
    "msmarco-queries": "liebig.formats.msmarco:QUERIES",
    "msmarco-passages": "liebig.formats.msmarco:PASSAGES",
    "texts": "liebig.formats.folder_of_texts:TEXTS",
    "lines": "liebig.formats.documents:LINES",
    "stdlib": "liebig.formats.stdlib:STDLIB",
    "hf": "liebig.formats.hub_dataset:HF",
    # written only, so their place does not matter
    "msmarco-qrels": "liebig.formats.msmarco:QRELS",
    "msmarco": "liebig.formats.msmarco:MSMARCO",
    "trec": "liebig.formats.trec:TREC",
    "dpr": "liebig.formats.dpr:DPR",
    "huggingface": "liebig.formats.huggingface:HUGGINGFACE",
}
DATA = frozenset(
    (".jsonl", ".json", ".ndjson", ".tsv", ".csv", ".parquet", ".arrow", ".trec", ".qrels", ".run")
)
TABLES = frozenset((".parquet", ".arrow"))
TXT = frozenset((".txt", ".text"))
PROSE = frozenset(("texts", "lines"))  # formats that nearly any text fits
BY_PATH = frozenset(("texts", "table"))  # formats that name documents after their files
# Kinds of files that are not counted against the files of data, because they lie beside either.
CODE, SETTINGS = ("python", "code", "ipynb"), ("settings", "json", "xml", "log", "plist")
SCRIPTS = 3  # files of code that count as one text
BESIDE = 10  # texts beside a Parquet file of training data from which on a folder is one of documents
ABOUT = frozenset(  # files that describe the data beside them
    (
        "dataset_info.json",
        "dataset_infos.json",
        "dataset_dict.json",
        "state.json",
        "summary.json",
        "manifest.json",
    )
)
README = frozenset(("readme", "license", "licence", "changelog", "copying", "notice"))
UTF16 = (b"\xff\xfe", b"\xfe\xff")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True)
class Match:
    """A source, its format and the reason for it."""

    source: InputSource
    format: Format
    why: str
    in_folder: bool = False
    """Whether it is a file that was found in a folder, and not named: if it cannot be read, the others still are."""

    def items(self, options: Options) -> Iterator[Item]:
        """The records of the source; the ledger of the options gets the files that were read."""
        assert self.format.read is not None, "only formats with a reader are matched"
        yield from self.format.read(self.source, options)
        ledger = options.ledger
        if not self.source.is_folder:
            ledger.mark_read(self.source.label)
            return
        # A reader of folders that enters what it reads leaves the rest to be listed here; any other reads all of it.
        labels = [file.label for file in self.source.files()]
        keeps_ledger = not ledger.read.isdisjoint(labels)
        for label in labels:
            if ledger.is_explained(label):
                continue
            if keeps_ledger:
                ledger.ignore(label, f"not part of the format {self.format.name}")
            else:
                ledger.mark_read(label)


@cache
def formats() -> dict[str, Format]:
    """Every format by its name, in the order in which detection tries them."""
    table = extended(BUILT_IN, GROUP)
    order: list[str] = []
    loaded: dict[str, Format] = {}
    for name, place in table.items():
        format = load(table, name)
        if not isinstance(format, Format) or format.name != name:
            raise _bad_format(name, place, f"it is not a Format named {name!r}")
        if format.before and format.before not in loaded:
            raise _bad_format(
                name, place, f"it must be tried before {format.before!r}, which is not a format"
            )
        order.insert(order.index(format.before) if format.before else len(order), name)
        loaded[name] = format
    return {name: loaded[name] for name in order}


def _bad_format(name: str, place: str, why: str) -> RecipeError:
    return RecipeError(
        f"the format {name!r} cannot be loaded from {place}: {why}",
        fix="repair or uninstall the package that adds it",
    )


def readable() -> list[str]:
    """The names of the formats that can be read."""
    return [name for name, format in formats().items() if format.read]


def writable() -> list[str]:
    """The names of the formats in which a collection or a run can be written."""
    return [name for name, format in formats().items() if format.write or format.run]


def is_name(text: str) -> bool:
    """Whether a text names a source that is not a file: standard input, `stdlib:`, `hf:ORG/NAME`."""
    return text == "-" or any(f.prefix and text.startswith(f.prefix) for f in formats().values())


def detect(
    path: Path | str, name: str | None = None, ledger: Ledger | None = None, rules: LeaveOut = USUAL
) -> list[Match]:
    """What a path holds, by the rules or by a format's name; what cannot be read is refused or listed in the ledger."""
    ledger = ledger or Ledger()
    text = str(path)
    source = NamedSource(text) if text != "-" and is_name(text) else source_of(path, rules)
    for _, below in source.walk():
        if not below.is_folder:
            ledger.see(below.label)
        for label, reason in below.left_out:
            ledger.see(label)
            ledger.ignore(label, reason)
        for flaw in below.flaws:
            ledger.skip(flaw)
    if name is None:
        return _detect(source, ledger)
    if name not in readable():
        near = difflib.get_close_matches(name, readable(), n=1, cutoff=0.4)
        raise DataError(
            f"{name!r} is not a format that can be read",
            fix=f"write {near[0]}" if near else f"use one of {', '.join(readable())}",
        )
    format = formats()[name]
    if format.place != "file" or not source.is_folder:
        return [Match(source, format, "named")]
    return [
        Match(file, format, "named", in_folder=True)
        for file in source.files()
        if not _is_readme(file) and not _is_about(file)
    ]


def _detect(source: InputSource, ledger: Ledger) -> list[Match]:
    """What a source holds; a folder that is not a format itself is searched for files."""
    if isinstance(source, NamedSource):
        return [_first_match(source, [f for f in formats().values() if f.prefix])]
    if not source.is_folder:
        return [detect_file(source)]
    preview = Preview(source)
    for format in formats().values():
        if format.place != "file" and format.rule and format.rule(preview):
            return [Match(source, format, format.reason)]
    return _detect_in_folder(source, ledger)


def _detect_in_folder(folder: InputSource, ledger: Ledger) -> list[Match]:
    """The files of a folder: those of a data set, each in its format, or tables and all other files as documents.

    It is a data set if it has more than documents, in as many files as it has texts or in Parquet or Arrow files beside
    few, or if it has nothing but files of data in formats that have a name.
    """
    from liebig.formats.parsers import BY_SUFFIX  # late: collections read their own files without it

    texts = formats()["texts"]
    known = DATA.union(*(f.suffixes for f in formats().values() if f is not texts))
    everything = list(folder.files())
    files = [file for file in everything if not _is_about(file)]
    kinds = {file: BY_SUFFIX[file.suffix].name for file in files if file.suffix in BY_SUFFIX.keys() - known}
    prose = [file for file, kind in kinds.items() if kind not in CODE + SETTINGS and not _is_readme(file)]
    matches, errors = _detect_files([file for file in files if file.suffix in known])
    documents = [match for match in matches if match.format.yields == ("documents",)]
    others = [match for match in matches if match not in documents]
    has_name = [match for match in matches if match.format.name != "table"]  # any table is a table
    statements = _data_among(prose)
    written = len(prose) + sum(kind in CODE for kind in kinds.values()) // SCRIPTS
    is_data = bool(others) and len(has_name) >= written
    is_data |= written < BESIDE * sum(match.source.suffix in TABLES for match in others)
    is_data |= bool(statements) and len(statements) == len(prose)
    alone = all(file.suffix in known or _is_readme(file) for file in files)
    is_data |= alone and any(match in has_name or match.source.suffix in TABLES for match in matches)
    if is_data:
        matches += statements
        for error in errors:
            ledger.skip(error)
        return _mention_others(everything, matches, ledger)
    documents += _as_tables(others)
    read = {match.source for match in documents}
    rest = [file for file in everything if file not in read]
    if not everything:
        raise DataError(
            "the folder contains nothing that can be read",
            file=folder.label,
            fix="name a folder that has documents",
        )
    if rest:
        documents.append(Match(FileSelection(folder, rest), texts, f"a folder of {len(rest):,} files"))
    return documents


def _as_tables(matches: list[Match]) -> list[Match]:
    """Files of questions, judgements and the like that lie among documents: those that are tables are read as such."""
    table = formats()["table"]
    assert table.rule is not None, "the format is detected"
    return [replace(m, format=table, why=table.reason) for m in matches if table.rule(Preview(m.source))]


def _mention_others(files: list[InputSource], matches: list[Match], ledger: Ledger) -> list[Match]:
    """The matches, the last with a note on the files that are not read, so that nobody misses one unawares."""
    read = {match.source for match in matches}
    left = [file for file in files if file not in read]
    for file in left:
        about = (
            "describes the data beside it"
            if _is_readme(file) or _is_about(file)
            else "not part of the data set"
        )
        ledger.ignore(file.label, about)
    left = [file for file in left if not _is_readme(file) and not _is_about(file)]
    if not left:
        return matches
    kinds = sorted({file.suffix or file.plain for file in left})
    shown = ", ".join([*kinds[:5], *(["…"] if len(kinds) > 5 else [])])
    are = "file is" if len(left) == 1 else "files are"
    why = f"{matches[-1].why}; {len(left):,} other {are} ignored: {shown}"
    return [*matches[:-1], replace(matches[-1], why=why)]


def _data_among(prose: list[InputSource]) -> list[Match]:
    """Text files that hold data all the same (topics.txt, qrels.txt); stops at the first one that is prose."""
    matches: list[Match] = []
    for file in prose:
        if file.suffix not in TXT:
            break
        detected, _ = _detect_files([file])
        if not detected or detected[0].format.name in PROSE:
            break
        matches += detected
    return matches


def _detect_files(files: list[InputSource]) -> tuple[list[Match], list[DataError]]:
    """The files whose format can be detected, and what is wrong with the others."""
    matches: list[Match] = []
    errors: list[DataError] = []
    for file in files:
        try:
            matches.append(replace(detect_file(file), in_folder=True))
        except DataError as error:
            errors.append(error)
    return matches, errors


def _is_about(file: InputSource) -> bool:
    """Whether a file describes the data set it lies in."""
    return file.plain in ABOUT or file.name.startswith("cache-")


def _is_readme(file: InputSource) -> bool:
    return file.stem.lower() in README


def detect_file(source: InputSource, name: str | None = None) -> Match:
    """What a file holds, by the rules or by a format's name."""
    if name is not None:
        return Match(source, formats()[name], "named")
    if source.suffix in PICKLES:
        _refuse_pickle(source)
    if not source.head(1):
        raise DataError("the file is empty", file=source.label, fix="leave it out")
    candidates = [f for f in formats().values() if f.place != "folder" and not f.prefix]
    if source.suffix in formats()["texts"].suffixes - TXT - {".xml"}:  # topics come as XML, too
        # How a page begins says nothing, it may be a bracket or a tab: only formats that claim the suffix are tried.
        candidates = [f for f in candidates if source.suffix in f.suffixes]
    return _first_match(source, candidates)


def _first_match(source: InputSource, candidates: list[Format]) -> Match:
    """The first format whose rule fits, or an error that says why there is none."""
    preview = Preview(source)
    for format in candidates:
        if format.read and format.rule and format.rule(preview):
            return Match(source, format, format.reason)
    if source.head(4).startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        _refuse_pickle(source)
    _refuse_encodings(preview)
    raise DataError(
        "the file contains NUL bytes, so it is not text"
        if b"\0" in source.head(4096)
        else "cannot detect the format",
        file=source.label,
        fix="name it with --format; docs/formats.md lists them all",
    )


def _refuse_encodings(preview: Preview) -> None:
    """Refuse data that is not UTF-8, with the command that converts it."""
    head = preview.source.head(4096)
    name = "UTF-16" if head[:2] in UTF16 else "latin1"
    if not preview.is_utf8 and (name == "UTF-16" or b"\0" not in head):
        raise DataError(
            "this is UTF-16 text" if name == "UTF-16" else "this is not UTF-8 text",
            file=preview.source.label,
            fix=f"convert it, e.g. with iconv -f {name.lower()} -t utf-8",
        )


def _refuse_pickle(source: InputSource) -> NoReturn:
    raise DataError(
        "this is a pickle, which can run code when it is loaded; refusing to read it",
        file=source.label,
        fix="save its contents as text, or vectors as .npy, with the program that wrote it",
    )
