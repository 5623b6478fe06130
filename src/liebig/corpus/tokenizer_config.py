"""The recipe of `liebig tokenizer`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from liebig.config import Config, InputPath


class TokenizerConfig(Config):
    """A vocabulary learned from a collection."""

    collections: tuple[InputPath, ...] = Field(
        min_length=1, description="Collections to learn from (folders written by liebig init)."
    )
    algorithm: Literal["wordpiece", "bpe"] = Field(
        "wordpiece", description="wordpiece (BERT's) or bpe (byte-level, RoBERTa's)."
    )
    vocab_size: int = Field(30528, gt=300, description="Pieces in the vocabulary, special tokens included.")
    lowercase: bool = Field(True, description="Fold case (and, for wordpiece, strip accents).")
    every: int = Field(
        1, ge=1, description="Learn from every n-th document only: a large corpus needs no more."
    )
