"""`liebig tokenizer`: a vocabulary of the corpus's own, learned in one pass over its texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from liebig.corpus.tokenizer_config import TokenizerConfig
from liebig.data.collection import Collection
from liebig.errors import DataError
from liebig.progress import track
from liebig.text.tokenizer import Tokenizer
from liebig.workspace import Folder


def run(config: TokenizerConfig, folder: Folder) -> None:
    """Learn the vocabulary and save it as a folder that transformers loads too."""
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
    """Titles, headings and paragraphs of every n-th document; passages where there are no documents."""
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
