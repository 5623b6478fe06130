"""`liebig convert`: write a collection or a run in another format.

A collection is streamed through the writer of the format. A run is read one query at a time and ordered as its format
means it: by score for TREC and Tevatron, by rank for MS MARCO and DPR.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.records import Hit, Passage, Query
from liebig.base.workspace import Folder
from liebig.collection import Collection, is_collection
from liebig.formats import Match, detect, formats, writable
from liebig.formats.base import Export, RunExport, RunFile
from liebig.formats.items import Options
from liebig.formats.output import write_lines
from liebig.formats.trec import cut
from liebig.measures.answers import has_answer
from liebig.stages.init import FormatName, one_of

TargetName = Annotated[str, AfterValidator(lambda name: one_of(name, writable()))]


class ConvertConfig(Config):
    """Write a collection or a run in another format."""

    source: InputPath = Field(description="A collection, or a run (TREC, MS MARCO, Tevatron or DPR results).")
    to: TargetName = Field(description="Format to write; docs/formats.md lists them.")
    split: str | None = Field(None, description="Split to write [default: all].")
    collapse: bool = Field(False, description="Replace every run of white space in a text by one space.")
    compress: Literal["none", "gz", "xz", "zst"] = Field(
        "none", description="Compress the files that are text."
    )
    collection: InputPath | None = Field(
        None, description="Collection with the texts of a run's queries and passages."
    )
    format: FormatName | None = Field(None, description="Format of the run [default: detected].")
    depth: int | None = Field(None, ge=1, description="Number of hits to keep per query [default: all].")
    tag: str = Field("liebig", pattern=r"^\S+$", description="Last column of a TREC run.")
    id_prefix: str = Field("", description="Prefix of passage ids in DPR results, e.g. wiki:.")


def run(config: ConvertConfig, folder: Folder) -> None:
    """Write the source in the chosen format into the folder."""
    packed = "" if config.compress == "none" else f".{config.compress}"
    format = formats()[config.to]
    if format.run is not None:
        _convert_run(config, format.run, folder.path / (format.run.name + packed))
        return
    assert format.write is not None, "the recipe allows no other"
    export = _export(config, folder.path, packed)
    format.write(export)
    if not any(path.is_file() and not path.name.startswith(".") for path in folder.path.rglob("*")):
        raise DataError(f"the collection has nothing that {config.to} can store", file=config.source)


def _export(config: ConvertConfig, folder: Path, packed: str) -> Export:
    """The collection to write, with the options of its writer."""
    collection = Collection(config.source)
    if config.split is not None and config.split not in collection.splits:
        raise DataError(
            f"the collection has no split {config.split!r}; it has {', '.join(collection.splits) or 'none'}",
            file=config.source,
        )
    return Export(
        collection=collection,
        folder=folder,
        splits=collection.splits if config.split is None else (config.split,),
        packed=packed,
        collapse=config.collapse,
    )


def _convert_run(config: ConvertConfig, form: RunFile, path: Path) -> None:
    if is_collection(config.source):
        raise DataError(f"{config.to} is a format of runs, and this is a collection", file=config.source)
    collection = None if config.collection is None else Collection(config.collection)
    hits = _hits(detect(config.source, config.format), Options(id_prefix=config.id_prefix), collection)
    export = RunExport(cut(hits, config.depth), config.tag, collection, config.id_prefix, _has_answer)
    write_lines(path, form.lines(export))


def _hits(matches: list[Match], options: Options, collection: Collection | None) -> Iterator[Hit]:
    """The hits of a run, best first for each query."""
    for match in matches:
        if match.format.run is None:
            raise DataError(f"this is not a run but {match.format.about}", file=match.source.label)
        yield from match.format.run.order(_hits_of_file(match, options, collection))


def _hits_of_file(match: Match, options: Options, collection: Collection | None) -> Iterator[Hit]:
    """The hits of one file; questions written out in it (DPR) get the ids that the collection has for them."""
    ids: dict[str, str] = {}
    if collection is not None and "queries" in match.format.yields:
        ids = {query.text: query.id for query in collection.queries()}
    name = ""
    for item in match.items(options):
        if isinstance(item.record, Query):
            name = ids.get(item.record.text, item.record.id)
        elif isinstance(item.record, Hit):
            hit = item.record
            yield Hit(name or hit.query, hit.passage, hit.score, hit.rank)


def _has_answer(query: Query, passage: Passage) -> bool:
    """Whether a passage contains an answer, as DPR decides it."""
    return has_answer(passage.text, query.answers)


STAGE = Stage(
    "convert",
    ConvertConfig,
    run,
    "liebig convert runs/collection --to beir --out runs/beir",
    positional="source",
)
