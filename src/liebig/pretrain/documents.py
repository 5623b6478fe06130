"""Which document an example comes from, for sources that know it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from liebig.data.batches import BlockSource, ClozeSource, CropSource, Source, SpanSource
from liebig.data.store import TokenStore
from liebig.errors import RecipeError

Ints = NDArray[np.int64]


@runtime_checkable
class KnowsDocuments(Protocol):
    """A source that says it itself."""

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """A number for the document of each example."""


def documents_of(source: Source, examples: Ints, epoch: int, seed: int) -> Ints:
    """A number for the document of each example; numbers of a store rise with the examples'."""
    if isinstance(source, KnowsDocuments):
        return source.documents(examples, epoch, seed)
    if isinstance(source, SpanSource | CropSource) and source._table is not None:
        return source._table.find(examples).documents
    if isinstance(source, BlockSource | ClozeSource):
        blocks = source if isinstance(source, BlockSource) else source._blocks
        return document_at(source.store, blocks.blocks(examples)[:, 0])
    if isinstance(source, CropSource):
        return document_at(source.store, _holder(source.store.sentences, examples * source.window))
    raise RecipeError(
        "this source does not say which document its texts come from", fix="set distinct_documents = false"
    )


def document_at(store: TokenStore, sentences: Ints) -> Ints:
    """The document each sentence lies in: a bisection on every level."""
    return _holder(store.documents, _holder(store.sections, _holder(store.paragraphs, sentences)))


def _holder(offsets: Ints, inner: Ints) -> Ints:
    """Which of the pieces that begin at `offsets` holds each inner number; an empty piece holds none."""
    return np.asarray(np.searchsorted(offsets, inner, side="right") - 1, np.int64)


def document_count(source: Source) -> int | None:
    """Documents of the source's store, a few of which may give no example; None where it reads no store."""
    store = getattr(source, "store", None)
    if isinstance(store, TokenStore):
        return len(store)
    inner = getattr(source, "source", None)
    return None if inner is None else document_count(inner)
