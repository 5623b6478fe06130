"""The recipe of `liebig texts`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from liebig.config import Config, InputPath, Unrecorded


class TextsConfig(Config):
    """Texts of many lengths from a collection's documents, for a student to learn a teacher's vectors of."""

    collection: InputPath = Field(description="A collection that liebig init wrote.")
    questions: tuple[InputPath, ...] = Field(
        (), description="Collections whose questions are taken too, those of `split`."
    )
    split: str = Field("train", description="The split whose questions are taken.")
    repeat: int = Field(1, ge=1, description="How often each question comes: there are few of them.")
    shortest: int = Field(30, ge=1, description="Words of the shortest passage.")
    longest: int = Field(130, ge=1, description="Words of the longest passage.")
    long: float = Field(0.5, ge=0, le=1, description="Share of sections cut into long passages as well.")
    long_words: int = Field(200, ge=1, description="Words of a long passage.")
    titled: float = Field(0.5, ge=0, le=1, description="Share of passages with the title before them.")
    sentences: float = Field(0.5, ge=0, le=1, description="Share of sentences that are texts.")
    spans: float = Field(0.3, ge=0, le=1, description="Share of sentences of which a few words are a text.")
    span_words: int = Field(8, ge=1, description="The most words of such a span.")
    headings: bool = Field(True, description="Titles, headings, and simple questions made of them.")
    seed: int = Field(0, ge=0, description="Draws lengths, shares and spans.")
    processes: Annotated[int | None, Unrecorded()] = Field(
        None, ge=1, description="How many processes; the result is the same [default: one a core]."
    )

    @model_validator(mode="after")
    def _in_order(self) -> TextsConfig:
        if self.shortest > self.longest:
            raise ValueError(f"the shortest passage has {self.shortest} words, the longest {self.longest}")
        return self
