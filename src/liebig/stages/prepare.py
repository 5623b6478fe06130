"""`liebig prepare`: split a collection into sentences and tokens, the memory-mapped store that training reads."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from liebig.base import workspace
from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.pipeline import Stage
from liebig.collection import Collection
from liebig.store.prepare import Finish, by_tokens, by_words, prepare, unfinished
from liebig.text.tokenizer import Tokenizer

P = TypeVar("P", "TokenPassages", "WordPassages")


class TokenPassages(Config):
    """Passages of whole sentences, as many as fit."""

    kind: Literal["tokens"] = "tokens"
    length: int = Field(144, ge=1, description="Maximum number of tokens in a passage.")
    overlap: int = Field(0, ge=0, description="Maximum number of tokens repeated from the previous passage.")

    @model_validator(mode="after")
    def _goes_on(self) -> TokenPassages:
        return _with_room(self)


class WordPassages(Config):
    """Passages of a number of words, as DPR cuts them."""

    kind: Literal["words"] = "words"
    length: int = Field(100, ge=1, description="Number of words in a passage; punctuation marks count.")
    overlap: int = Field(0, ge=0, description="Number of words repeated from the previous passage.")

    @model_validator(mode="after")
    def _goes_on(self) -> WordPassages:
        return _with_room(self)


def _with_room(passages: P) -> P:
    if passages.overlap >= passages.length:
        raise ValueError(f"overlap = {passages.overlap} must be smaller than length = {passages.length}")
    return passages


Passages = Annotated[TokenPassages | WordPassages, Field(discriminator="kind")]


class PrepareConfig(Config):
    """Split a collection into sentences and tokens: the memory-mapped store that training reads."""

    collection: InputPath = Field(description="Collection to read.")
    tokenizer: ModelPath = Field(description="Folder with a tokenizer: of liebig tokenizer, or of a model.")
    language: str | None = Field(
        None,
        description=(
            "Language of the text, e.g. de, whose abbreviations do not end a sentence [default: English]."
        ),
    )
    passages: Passages | None = Field(None, description="Also cut passages, by tokens or by words.")
    processes: Annotated[int | None, Unrecorded()] = Field(
        None,
        ge=1,
        description="Number of processes; does not change the result [default: more than one if that is faster].",
    )


def run(config: PrepareConfig, folder: workspace.Folder) -> None:
    """Write the token store of a collection."""
    collection = Collection(config.collection)
    if (collection.path / workspace.MANIFEST).is_file():
        workspace.verify(collection.path)
    tokenizer = Tokenizer.from_folder(config.tokenizer)
    prepare(
        collection.path,
        folder.path,
        tokenizer,
        language=config.language,
        finish=_finish(config, tokenizer),
        processes=config.processes,
        part=folder.part,
    )


def _finish(config: PrepareConfig, tokenizer: Tokenizer) -> Finish:
    """What cuts the passages of a shard."""
    passages = config.passages
    if passages is None:
        return unfinished
    if isinstance(passages, TokenPassages):
        return partial(by_tokens, length=passages.length, overlap=passages.overlap)
    return partial(by_words, length=passages.length, overlap=passages.overlap, continues=tokenizer.continues)


STAGE = Stage(
    "prepare",
    PrepareConfig,
    run,
    "liebig prepare runs/collection --tokenizer runs/tokenizer --out runs/store",
    positional="collection",
    in_parts=True,
)
