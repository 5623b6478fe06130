"""Exports for other software; here what is exported: a retriever's folder, or a model's alone, and its rows.

`models` writes models and ONNX graphs, `parquet` passages with their vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import DataError
from liebig.base.records import Passage
from liebig.collection import Collection
from liebig.search.retriever_folder import NAME, RetrieverDescription, read
from liebig.vectors import SUMMARY, Vectors, document_of

ROWS = 2048  # vectors read at once


@dataclass(frozen=True)
class Target:
    """A folder to export from; `description` is None for a model alone."""

    folder: Path
    description: RetrieverDescription | None

    @classmethod
    def of(cls, folder: Path) -> Target:
        """A retriever where there is a retriever.json, else a model."""
        if (folder / NAME).is_file():
            return cls(folder, read(folder))
        if not (folder / "config.json").is_file():
            raise DataError(
                "is neither a retriever nor a model", file=folder, fix="name a folder of liebig build"
            )
        return cls(folder, None)

    @property
    def model(self) -> Path:
        """The model's folder; of two that of questions, because the other is a teacher that was given."""
        if self.description is None:
            return self.folder
        name = self.description.query or self.description.model
        if name is None:
            raise DataError("the retriever has no model", file=self.folder, fix="build it with one")
        return self.folder / name

    def inputs(self, *, rows: bool) -> dict[str, Path]:
        if not rows:
            return {"model": self.model}
        description = self._retriever()
        return {
            "collection": self.folder / description.collection,
            "index": self.folder / str(description.index),
        }

    @property
    def vectors(self) -> Vectors:
        """The vectors of the index, after a hash check."""
        description = self._retriever()
        path = self.folder / str(description.index)
        if SUMMARY not in workspace.verify(path).outputs:
            raise DataError(
                "the index has no vectors that can be read", file=path, fix="export what was pushed"
            )
        return Vectors.read(path)

    def rows(self) -> Iterator[tuple[str, Passage, NDArray[np.float32]]]:
        """The vectors of the index in its order, with their ids and passages; a passage may have several."""
        collection = Collection(self.folder / self._retriever().collection)
        has_documents, pieces = collection.has("documents"), bool(self.vectors_about.get("pieces"))
        for ids, vectors in self.vectors.chunks(ROWS):
            for id, vector in zip(ids, vectors):
                passage = collection.passage(document_of(id) if pieces else id)
                if has_documents and passage.doc:
                    shared = collection.document(passage.doc).metadata
                    passage = replace(passage, metadata={**shared, **passage.metadata})
                yield id, passage, vector

    @property
    def vectors_about(self) -> Mapping[str, Any]:
        return Vectors.read(self.folder / str(self._retriever().index)).about

    def _retriever(self) -> RetrieverDescription:
        if self.description is None or self.description.index is None:
            raise DataError(
                "a model alone has no passages to export", file=self.folder, fix="export a retriever"
            )
        return self.description
