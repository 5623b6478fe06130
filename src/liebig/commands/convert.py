"""`liebig convert`: a collection in any of the field's formats, a run in any form of runs, Tevatron's vectors as .npy.

A collection is streamed through the writers of `data/exports.py`. A run is read a query at a time and written in the
order its form means: by score for TREC and Tevatron, by rank for MS MARCO and DPR.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.records import Hit, Passage, Query
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection, is_collection
from liebig.commands.init import FormatName, TargetName
from liebig.formats import pickled, trec
from liebig.formats.detect import Found, find
from liebig.formats.dpr import result_rows
from liebig.formats.export import EXPORTS, FAMILIES, Export, write
from liebig.formats.items import Options
from liebig.formats.output import json_array, write_lines
from liebig.measures.answers import has_answer


class ConvertConfig(Config):
    """Write a collection, or a run, in another format."""

    source: InputPath = Field(description="A collection, or a run (TREC, MS MARCO, Tevatron or DPR results).")
    to: TargetName = Field(description="The format to write; see docs/formats.md.")
    split: str | None = Field(None, description="The split to write [default: all].")
    collapse: bool = Field(False, description="Make every run of white space in a text one space.")
    compress: Literal["none", "gz", "xz", "zst"] = Field("none", description="Pack the files that are text.")
    container: Literal["jsonl", "csv", "parquet"] = Field(
        "jsonl", description="How tuples and pairs are kept."
    )
    tokenizer: InputPath | None = Field(
        None, description="Write token ids of this tokenizer in pre-training lines."
    )
    collection: InputPath | None = Field(
        None, description="Where the texts of a run's queries and passages are."
    )
    format: FormatName | None = Field(None, description="The format of the run [default: told from it].")
    depth: int | None = Field(None, ge=1, description="Keep so many hits of each query [default: all].")
    tag: str = Field("liebig", pattern=r"^\S+$", description="The last column of a TREC run.")
    id_prefix: str = Field("", description="What stands before passage ids in DPR results, e.g. wiki:.")


RUNS = {
    "trec-run": "run.trec",
    "msmarco-run": "run.tsv",
    "tevatron-run": "run.txt",
    "dpr-results": "results.json",
}
BY_SCORE = frozenset(("trec-run", "tevatron-run"))


def run(config: ConvertConfig, folder: Folder) -> None:
    """Write the source in the format asked for into the folder."""
    packed = "" if config.compress == "none" else f".{config.compress}"
    if config.to == "vectors":
        pickled.convert(config.source, folder.path)
    elif config.to in RUNS:
        _convert_run(config, folder.path / (RUNS[config.to] + packed))
    else:
        write(config.to, _export(config, folder.path, packed))


def _export(config: ConvertConfig, folder: Path, packed: str) -> Export:
    """The collection to write; a format of runs asks for a run."""
    assert config.to in EXPORTS or config.to in FAMILIES, "the recipe allows no other"
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
        container=config.container,
        tokenizer=config.tokenizer,
    )


def _convert_run(config: ConvertConfig, path: Path) -> None:
    if is_collection(config.source):
        raise DataError(f"{config.to} is a form of runs, and this is a collection", file=config.source)
    collection = None if config.collection is None else Collection(config.collection)
    options = Options(id_prefix=config.id_prefix)
    hits = trec.cut(_hits(find(config.source, config.format), options, collection), config.depth)
    if config.to == "dpr-results":
        lines = json_array(_results(hits, collection, config.id_prefix))
    else:
        lines = _run_lines(config.to, hits, config.tag)
    write_lines(path, lines)


def _run_lines(to: str, hits: Iterator[Hit], tag: str) -> Iterator[str]:
    if to == "trec-run":
        return trec.run_lines(hits, tag)
    return trec.marco_run_lines(hits) if to == "msmarco-run" else trec.tevatron_run_lines(hits)


def _hits(found: list[Found], options: Options, collection: Collection | None) -> Iterator[Hit]:
    """The hits of a run, best first for each query; DPR's questions get the ids the collection has for them."""
    for one in found:
        if one.format.name not in RUNS:
            raise DataError(f"this is no run but {one.format.about}", file=one.source.label)
        order = trec.by_score if one.format.name in BY_SCORE else trec.by_rank
        yield from order(_named_hits(one, options, collection))


def _named_hits(found: Found, options: Options, collection: Collection | None) -> Iterator[Hit]:
    known: dict[str, str] = {}
    if collection is not None and found.format.name == "dpr-results":
        known = {query.text: query.id for query in collection.queries()}
    name = ""
    for item in found.items(options):
        if isinstance(item.record, Query):
            name = known.get(item.record.text, item.record.id)
        elif isinstance(item.record, Hit):
            hit = item.record
            yield Hit(name or hit.query, hit.passage, hit.score, hit.rank)


def _results(hits: Iterator[Hit], collection: Collection | None, prefix: str) -> Iterator[dict[str, object]]:
    if collection is None:
        raise DataError("DPR's results hold texts", fix="name the collection that has them with --collection")
    return result_rows(hits, collection.query, collection.passage, _answered, prefix)


def _answered(query: Query, passage: Passage) -> bool:
    """Whether a passage holds an answer, as DPR decides it."""
    return has_answer(passage.text, query.answers)


STAGE = Stage(
    "convert",
    ConvertConfig,
    run,
    "liebig convert runs/collection --to beir --out runs/beir",
    positional="source",
)
