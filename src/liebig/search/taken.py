"""The vectors of an index as an encoding that was done: what `liebig update` need not encode again."""

from __future__ import annotations

import shutil
from typing import Literal

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.indexes import open_index
from liebig.search.encode_shards import SENTENCES
from liebig.search.encode_texts import What
from liebig.vectors import SHARDS, vectors_at, write_shard, write_summary


class TakenConfig(Config):
    """Vectors of an index, beside the texts that they were made of, for an encoding to take over."""

    source: InputPath = Field(description="Collection of passages of the index.")
    model: ModelPath = Field(description="The model that made the vectors.")
    index: InputPath = Field(description="The index.")
    sentences: InputPath | None = Field(
        None, description="The index of the sentences that came with the passages."
    )
    what: What = Field("passages", description="What the vectors stand for.")
    long: Literal["first", "max"] = Field("first", description="As they were encoded.")
    most_pieces: int | None = Field(None, description="As they were encoded.")


def take(config: TakenConfig, folder: Folder) -> None:
    """Copy the vectors of the passages that all have some."""
    several = config.long == "max" or config.what == "sentences"
    indexes = [(folder.path, open_index(config.index), several)]
    if config.sentences is not None:
        indexes.append((folder.path / SENTENCES, open_index(config.sentences), True))
    rows: list[list[tuple[str, int]]] = [[] for _ in indexes]
    for part in (SHARDS, SENTENCES):
        shutil.rmtree(folder.path / part, ignore_errors=True)
    with CollectionWriter(folder.path) as writer:
        for passage in Collection(config.source).passages():
            numbered = [
                index.vectors_of(passage.id, pieces) if index.stored() is not None else []
                for _, index, pieces in indexes
            ]
            if all(numbered):
                writer.add(Item(passage, Where(str(config.source))))
                for all_rows, own in zip(rows, numbered):
                    all_rows += own
    for (path, index, pieces), named in zip(indexes, rows):
        shards = index.stored() or ()
        kind = shards[0].vectors.type if shards else "fp16"
        vectors = vectors_at(shards, np.array([number for _, number in named], np.int64), index.width)
        (path / SHARDS).mkdir(parents=True)
        write_shard(path / SHARDS / "00000", [name for name, _ in named], vectors, kind)
        write_summary(path, kind, index.width, ["00000"], {"pieces": pieces}, len(named))


STAGE = Stage("taken", TakenConfig, take, part_of="update")
