"""The recipes of `liebig init` and `liebig convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from liebig.config import Config, InputPath

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
