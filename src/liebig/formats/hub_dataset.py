"""Data sets of the Hugging Face hub by their names: `hf:mteb/scifact`, `hf:org/name:train`, `hf:org/name/part:train`.

The Parquet files of the data set, or those that the hub converts it into, are downloaded into the hub's own cache one
after the other while they are read; each is read in the format its rows have. A part is a folder of files, which the
hub calls a config or subset. No code of a data set is run. Cost: one file on disk more than was read so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from liebig.base import hub
from liebig.base.errors import DataError
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, split_in
from liebig.formats.on_disk import DiskSource
from liebig.formats.preview import Preview

PREFIX = "hf:"
NAME = re.compile(rf"hf:(?P<name>{hub.PART}/{hub.PART})(?:/(?P<part>[^:]+))?(?::(?P<split>[\w.-]+))?")
SHARD = re.compile(r"-\d{5}-of-\d{5}(-\w+)?$|^\d{4,}$")
MANY = 8  # parts of a data set that nobody wants all of, such as the languages of Wikipedia
PARTIAL = "partial-"  # what the hub calls the start of a split that was too large to convert


def is_hub_dataset(preview: Preview) -> bool:
    """A name such as hf:mteb/scifact or hf:org/name:train."""
    return preview.source.label.startswith(PREFIX)


def read_hub_dataset(source: InputSource, options: Options) -> Iterator[Item]:
    """The records of a data set's Parquet files."""
    from liebig.formats import detect_file  # the table of formats, this one among them

    named = NAME.fullmatch(source.label)
    if named is None:
        raise DataError(
            "is not the name of a data set", file=source.label, fix="write hf:ORG/NAME[/PART][:SPLIT]"
        )
    name, part, split = named["name"], named["part"], named["split"]
    revision, files = hub.dataset_files(name)
    files = _of_part(source, files, part)
    if split:
        files = _of_split(source, files, split)
        options = replace(options, split=options.split or split_in(split) or split)
    for path in files:
        if any(folder.startswith(PARTIAL) for folder in PurePosixPath(path).parts):
            fix = f"run `hf download {name} --repo-type dataset --local-dir FOLDER` and name FOLDER"
            raise DataError(f"the hub has only the start of {path} as Parquet", file=source.label, fix=fix)
        file = HubFile(hub.dataset_file(name, path, revision), source.label, path)
        yield from detect_file(file, options.format).items(options)


class HubFile(DiskSource):
    """A file in the hub's cache; its name is the path in the data set, whose folders name queries and splits too."""

    def __init__(self, local: Path, dataset: str, path: str) -> None:
        super().__init__(local)
        self.label, self.name = f"{dataset}, {path}", path.replace("/", ".")


def names_of(path: str) -> set[str]:
    """What a file belongs to: its folders, and its name without the number of a shard."""
    place = PurePosixPath(path)
    return {*place.parent.parts, SHARD.sub("", place.stem)} - {"", "data"}


def _of_part(source: InputSource, files: Sequence[str], part: str | None) -> list[str]:
    folders = {str(PurePosixPath(path).parent) for path in files}
    if part is not None:
        chosen = [path for path in files if part in names_of(path) or path.startswith(f"{part}/")]
        return chosen or _refuse(source, f"the data set has no part {part!r}", files)
    if len(folders) > MANY:
        _refuse(source, f"the data set has {len(folders):,} parts", files)
    return list(files)


def _of_split(source: InputSource, files: Sequence[str], split: str) -> list[str]:
    """The files of a split, and with them what belongs to every split: the corpus and the queries of a benchmark."""
    usual = split_in(split)
    chosen = [path for path in files if split in names_of(path) or (usual and split_in(path) == usual)]
    if not chosen:
        _refuse(source, f"the data set has no split {split!r}", files)
    return [path for path in files if path in chosen or (usual and split_in(path) is None)]


def _refuse(source: InputSource, what: str, files: Sequence[str]) -> list[str]:
    names = sorted(set().union(*map(names_of, files)))
    shown = ", ".join([*names[:10], *(["…"] if len(names) > 10 else [])])
    raise DataError(what, file=source.label, fix=f"name one, as in hf:ORG/NAME/PART:SPLIT; there are {shown}")


HF = Format(
    name="hf",
    about="a data set of the Hugging Face hub",
    fields="`hf:ORG/NAME[/PART][:SPLIT]`: the Parquet files of a data set, each in the format its rows have. No code "
    "of a data set is run",
    yields=("documents", "passages", "queries", "judgements", "groups", "pairs", "tuples"),
    prefix=PREFIX,
    rule=is_hub_dataset,
    read=read_hub_dataset,
)
