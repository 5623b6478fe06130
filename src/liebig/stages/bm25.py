"""`liebig bm25`: index a collection's passages for BM25, or add passages to an index and remove some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pydantic import Field, model_validator

from liebig.base.config import InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress, track
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.bm25.analysis import language_name
from liebig.bm25.search import BM25Settings
from liebig.bm25.update import settings_of, write_index
from liebig.collection import Collection
from liebig.indexes.base import ChangeConfig


class BM25Config(ChangeConfig):
    """Index a collection's passages for BM25, or add and remove passages of an existing index."""

    collection: InputPath | None = Field(
        None, description="Collection with passages; leave it out to only delete or merge."
    )
    language: str = Field(
        "english",
        description="Language of the stemmer and the stop words, by name or code; none, or auto for that of every"
        " passage.",
    )
    fold: bool = Field(True, description="Match words without their accents: kuche finds Küche.")
    stop_words: bool = Field(True, description="Ignore the stop words of the language.")
    title_weight: float = Field(1.0, ge=0, description="Weight of a word in the title.")
    body_weight: float = Field(1.0, ge=0, description="Weight of a word in the text.")
    k1: float = Field(
        0.9,
        ge=0,
        description="Term frequency saturation: higher rewards repeated words more; can be changed when searching.",
    )
    b: float = Field(
        0.4,
        ge=0,
        le=1,
        description="Length normalisation: 0 ignores the length of a passage; can be changed when searching.",
    )
    texts: bool = Field(True, description="Store the texts in the index, so that results can be shown.")
    compact: bool = Field(False, description="Merge all segments into one.")
    segment_words: int = Field(
        16_000_000, ge=1, description="Number of words per segment, which bounds the memory used."
    )

    @model_validator(mode="after")
    def _has_something_to_do(self) -> BM25Config:
        if self.collection is None and self.base is None:
            raise ValueError("nothing to index: give a collection, or a base to change")
        if not (self.title_weight or self.body_weight):
            raise ValueError("title and body both have weight 0; give one of them a positive weight")
        return self


def run(config: BM25Config, folder: Folder) -> None:
    settings = _settings(config) if config.base is None else _kept(config, settings_of(config.base))
    unknown = write_index(
        folder,
        _passages(config.collection),
        settings,
        texts=config.texts,
        words=config.segment_words,
        base=config.base,
        delete=config.ids_to_delete(),
        compact=config.compact,
    )
    if unknown:
        said = f"{len(unknown):,} ids to delete are not in the index; the first is {unknown[0]!r}"
        Progress("BM25").say(said)


def _settings(config: BM25Config) -> BM25Settings:
    return BM25Settings(
        language=language_name(config.language),
        stop_words=config.stop_words,
        title_weight=config.title_weight,
        body_weight=config.body_weight,
        k1=config.k1,
        b=config.b,
        fold=config.fold,
    )


def _kept(config: BM25Config, settings: BM25Settings) -> BM25Settings:
    """The settings of the index to add to; a recipe that sets others is refused."""
    for name, value in asdict(_settings(config)).items():
        kept = getattr(settings, name)
        if name in config.model_fields_set and value != kept:
            raise RecipeError(
                f"{name} = {value}, but base was indexed with {kept}",
                file=config.base,
                fix=f"leave it out; {name} can be set in liebig retrieve"
                if name in ("k1", "b")
                else "leave it out, or build a new index",
            )
    return settings


def _passages(collection: Path | None) -> Iterable[Passage]:
    if collection is None:
        return ()
    records = Collection(collection)
    if not records.has("passages"):
        raise DataError(
            "the collection has no passages to index",
            file=collection,
            fix=f"cut its documents first: liebig passages {collection} --tokenizer TOKENIZER --out PASSAGES",
        )
    return track(records.passages(), "BM25", unit="passages")


STAGE = Stage("bm25", BM25Config, run, "liebig bm25 runs/collection --out runs/bm25", positional="collection")
