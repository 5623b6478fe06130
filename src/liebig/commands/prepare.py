"""`liebig prepare`, from recipe to folder."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from liebig.base import workspace
from liebig.base.config import Config, InputPath, Unrecorded
from liebig.base.machine import cores
from liebig.base.pipeline import Stage
from liebig.collection.collection import Collection
from liebig.store.prepare import Finish, by_tokens, by_words, prepare, unfinished
from liebig.text.tokenizer import Tokenizer

# The recipes of `liebig prepare` and `liebig passages`.

P = TypeVar("P", "TokenPassages", "WordPassages")


class TokenPassages(Config):
    """Passages of whole sentences, as many as fit."""

    kind: Literal["tokens"] = "tokens"
    length: int = Field(144, ge=1, description="At most so many tokens in a passage.")
    overlap: int = Field(0, ge=0, description="Tokens at most that a passage repeats of the one before it.")

    @model_validator(mode="after")
    def _goes_on(self) -> TokenPassages:
        return _with_room(self)


class WordPassages(Config):
    """Passages of a number of words, as DPR cuts them."""

    kind: Literal["words"] = "words"
    length: int = Field(100, ge=1, description="Words in a passage; punctuation marks count.")
    overlap: int = Field(0, ge=0, description="Words that a passage repeats of the one before it.")

    @model_validator(mode="after")
    def _goes_on(self) -> WordPassages:
        return _with_room(self)


def _with_room(passages: P) -> P:
    if passages.overlap >= passages.length:
        raise ValueError(f"overlap = {passages.overlap} leaves no room in a passage of {passages.length}")
    return passages


Passages = Annotated[TokenPassages | WordPassages, Field(discriminator="kind")]


class PrepareConfig(Config):
    """Turn a collection into a token store."""

    collection: InputPath = Field(description="A collection that liebig init wrote.")
    tokenizer: InputPath = Field(description="A folder with a tokenizer: of liebig tokenizer, or of a model.")
    language: str | None = Field(
        None, description="Language of the text, for its abbreviations, e.g. de [default: English]."
    )
    passages: Passages | None = Field(None, description="Cut passages too: by tokens or by words.")
    processes: Annotated[int | None, Unrecorded()] = Field(
        None, ge=1, description="How many processes; the result is the same [default: one a core]."
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
        processes=config.processes or cores(),
    )


def _finish(config: PrepareConfig, tokenizer: Tokenizer) -> Finish:
    """What cuts the passages of a shard."""
    wanted = config.passages
    if wanted is None:
        return unfinished
    if isinstance(wanted, TokenPassages):
        return partial(by_tokens, length=wanted.length, overlap=wanted.overlap)
    return partial(by_words, length=wanted.length, overlap=wanted.overlap, continues=tokenizer.continues)


STAGE = Stage(
    "prepare",
    PrepareConfig,
    run,
    "liebig prepare runs/collection --tokenizer runs/tokenizer --out runs/store",
    positional="collection",
)
