"""The recipe of a BM25 index."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from liebig.config import Config, InputPath


class BM25Config(Config):
    """`liebig bm25`: passages to a BM25 index, or more of them to one there is."""

    collection: InputPath | None = Field(
        None, description="A collection with passages; none only deletes or merges."
    )
    base: InputPath | None = Field(
        None, description="A BM25 index to add to; its language, weights, k1 and b are kept."
    )
    delete: InputPath | None = Field(None, description="A file of ids to take out of `base`, one a line.")
    queries: InputPath | None = Field(
        None,
        description="Generated queries (of liebig queries generate, or JSON lines with passage, queries) to add to"
        " their passages: doc2query.",
    )
    language: str = Field(
        "english", description="Language of stemmer and stop words, by name or code; or none."
    )
    stop_words: bool = Field(True, description="Leave out the language's stop words.")
    title_weight: float = Field(1.0, ge=0, description="What a word of the title counts for.")
    body_weight: float = Field(1.0, ge=0, description="What a word of the text counts for.")
    query_weight: float = Field(1.0, ge=0, description="What a word of a generated query counts for.")
    k1: float = Field(
        0.9, ge=0, description="How much repeating a word helps; can be changed when searching."
    )
    b: float = Field(
        0.4, ge=0, le=1, description="How much long passages are held back; can be changed when searching."
    )
    texts: bool = Field(True, description="Keep the texts in the index, so that it can show what it found.")
    compact: bool = Field(False, description="Merge all segments into one.")
    segment_words: int = Field(
        16_000_000, ge=1, description="Words of a segment, which bounds the memory used."
    )
    rebuild: bool = Field(
        False, description="Build from the collection alone: `base` is neither opened nor checked."
    )

    @model_validator(mode="before")
    @classmethod
    def _forget_base(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("rebuild") is True:
            return {**values, "base": None, "delete": None}
        return values

    @model_validator(mode="after")
    def _has_something_to_do(self) -> BM25Config:
        if self.collection is None and (self.base is None or self.rebuild):
            raise ValueError("there is nothing to index: give a collection, or a base to change")
        if self.delete is not None and self.base is None:
            raise ValueError("delete names passages of base, and there is no base")
        if not (self.title_weight or self.body_weight or (self.query_weight and self.queries)):
            raise ValueError("nothing counts: title, body and generated queries all have weight 0")
        return self
