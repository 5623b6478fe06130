"""`liebig tokenizer`: train a tokenizer on collections, in one pass over their texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.workspace import Folder
from liebig.collection import Collection
from liebig.text.tokenizer import Tokenizer


class TokenizerConfig(Config):
    """Train a tokenizer on collections; the same texts give the same bytes."""

    collections: tuple[InputPath, ...] = Field(min_length=1, description="Collections to train on.")
    algorithm: Literal["wordpiece", "bpe"] = Field(
        "wordpiece", description="wordpiece (BERT's) or bpe (byte-level, RoBERTa's)."
    )
    vocab_size: int = Field(30528, gt=300, description="Size of the vocabulary, special tokens included.")
    lowercase: bool = Field(True, description="Lowercase the text (and, for wordpiece, strip accents).")
    every: int = Field(
        1, ge=1, description="Train on every n-th document only, which is enough for a large corpus."
    )


def run(config: TokenizerConfig, folder: Folder) -> None:
    """Train the tokenizer and save it as a folder that transformers can load."""
    collections = [Collection(path) for path in config.collections]
    texts = (text for collection in collections for text in _texts(collection, config.every))
    tokenizer = Tokenizer.train(
        track(texts, "reading", unit="texts"),
        kind=config.algorithm,
        vocab_size=config.vocab_size,
        lowercase=config.lowercase,
    )
    tokenizer.save(folder.path)


def _texts(collection: Collection, every: int) -> Iterator[str]:
    """Titles, headings and paragraphs of every n-th document; or of passages if there are no documents."""
    if collection.has("documents"):
        for document in islice(collection.documents(), 0, None, every):
            yield document.title
            for section in document.sections:
                yield section.heading
                yield from section.paragraphs
    elif collection.has("passages"):
        for passage in islice(collection.passages(), 0, None, every):
            yield passage.title
            yield passage.text
    else:
        raise DataError("the collection has neither documents nor passages", file=collection.path)


STAGE = Stage(
    "tokenizer",
    TokenizerConfig,
    run,
    "liebig tokenizer runs/collection --vocab-size 16384 --out runs/tokenizer",
    positional="collections",
)
