"""`liebig prepare`: split a collection into sentences and tokens, the memory-mapped store that training reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from liebig.base import workspace
from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.pipeline import Stage
from liebig.collection import Collection
from liebig.store.prepare import prepare
from liebig.text.tokenizer import Tokenizer


class PrepareConfig(Config):
    """Split a collection into sentences and tokens: the memory-mapped store that training reads."""

    collection: InputPath = Field(description="Collection to read.")
    tokenizer: ModelPath = Field(description="Folder with a tokenizer: of liebig tokenizer, or of a model.")
    language: str | None = Field(
        None,
        description="Language of the text, e.g. de, whose abbreviations do not end a sentence [default: English].",
    )
    processes: Annotated[int | None, Unrecorded()] = Field(
        None,
        ge=1,
        description="Number of processes; does not change the result [default: more than one if that is faster].",
    )


def run(config: PrepareConfig, folder: workspace.Folder) -> None:
    collection = Collection(config.collection)
    if (collection.path / workspace.MANIFEST).is_file():
        workspace.verify(collection.path)
    prepare(
        collection.path,
        folder.path,
        Tokenizer.from_folder(config.tokenizer),
        language=config.language,
        processes=config.processes,
        part=folder.part,
    )


STAGE = Stage(
    "prepare",
    PrepareConfig,
    run,
    "liebig prepare runs/collection --tokenizer runs/tokenizer --out runs/store",
    positional="collection",
    in_parts=True,
)
