"""Hugging Face: data sets of the hub read by their names, and collections written as MTEB has them.

`hf:mteb/scifact` (`HF`) reads; `HUGGINGFACE` writes Parquet files for corpus, queries and judgements, which are read as
`passages`, `questions`, `qrels-rows` and `tuples`, whose rules know Parquet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from liebig.base import hub
from liebig.base.errors import DataError
from liebig.formats.base import Export, Format, Preview
from liebig.formats.inputs import DiskSource, Source
from liebig.formats.items import Item, Options, split_in
from liebig.formats.output import write_parquet
from liebig.formats.tuples import write_pair_tables, write_tuple_table


def write_huggingface(export: Export) -> None:
    """Parquet files corpus/, queries/ and default/SPLIT, as the data sets of MTEB have them; tuples and pairs too."""
    string, number = "large_string", "00000-of-00001.parquet"
    if export.collection.has("passages") or export.collection.has("documents"):
        passages = ({"_id": p.id, "title": p.title, "text": p.text} for p in export.passages())
        columns = {"_id": string, "title": string, "text": string}
        write_parquet(export.folder / "corpus" / f"corpus-{number}", passages, columns)
    if export.collection.has("queries"):
        queries = ({"_id": q.id, "text": q.text} for q in export.queries())
        write_parquet(
            export.folder / "queries" / f"queries-{number}", queries, {"_id": string, "text": string}
        )
    for split in export.splits_of("judgements"):
        judgements = (
            {"query-id": j.query, "corpus-id": j.passage, "score": j.relevance}
            for j in export.judgements(split)
        )
        columns = {"query-id": string, "corpus-id": string, "score": "int64"}
        write_parquet(export.folder / "default" / f"{split}-{number}", judgements, columns)
    tables = replace(export, container="parquet")
    for split in export.splits_of("tuples"):
        write_tuple_table(tables, split)
    write_pair_tables(tables)


HUGGINGFACE = Format(
    name="huggingface", about="Parquet files for the Hugging Face Hub", write=write_huggingface
)


# Data sets of the Hugging Face hub by their names: `hf:mteb/scifact`, `hf:org/name:train`, `hf:org/name/part:train`.
#
# The Parquet files of the data set, or those that the hub converts it into, are downloaded into the hub's own cache
# one after the other while they are read; each is read in the format its rows have. A part is a folder of files,
# which the hub calls a config or subset. No code of a data set is run. Cost: one file on disk more than was read so
# far.

PREFIX = "hf:"
NAME = re.compile(rf"hf:(?P<name>{hub.PART}/{hub.PART})(?:/(?P<part>[^:]+))?(?::(?P<split>[\w.-]+))?")
SHARD = re.compile(r"-\d{5}-of-\d{5}(-\w+)?$|^\d{4,}$")
MANY = 8  # parts of a data set that nobody wants all of, such as the languages of Wikipedia
PARTIAL = "partial-"  # what the hub calls the start of a split that was too large to convert


def is_hub_dataset(preview: Preview) -> bool:
    """A name such as hf:mteb/scifact or hf:org/name:train."""
    return preview.source.label.startswith(PREFIX)


def read_hub_dataset(source: Source, options: Options) -> Iterator[Item]:
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


def _of_part(source: Source, files: Sequence[str], part: str | None) -> list[str]:
    folders = {str(PurePosixPath(path).parent) for path in files}
    if part is not None:
        chosen = [path for path in files if part in names_of(path) or path.startswith(f"{part}/")]
        return chosen or _refuse(source, f"the data set has no part {part!r}", files)
    if len(folders) > MANY:
        _refuse(source, f"the data set has {len(folders):,} parts", files)
    return list(files)


def _of_split(source: Source, files: Sequence[str], split: str) -> list[str]:
    """The files of a split, and with them what belongs to every split: the corpus and the queries of a benchmark."""
    usual = split_in(split)
    chosen = [path for path in files if split in names_of(path) or (usual and split_in(path) == usual)]
    if not chosen:
        _refuse(source, f"the data set has no split {split!r}", files)
    return [path for path in files if path in chosen or (usual and split_in(path) is None)]


def _refuse(source: Source, what: str, files: Sequence[str]) -> list[str]:
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
