"""One generation of a retriever's folder, opened: texts, systems and the model, which comes with the first question.

Nothing here changes once it is open, so searches that run while another generation is taken over finish with theirs.
Memory: that of BM25's terms, the model, and 12 bytes a passage where metadata are filtered; all else is mapped.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from liebig import workspace
from liebig.data.collection import KINDS, Collection
from liebig.errors import DataError, RecipeError
from liebig.index.base import Index
from liebig.index.opening import open_index
from liebig.lexical.bm25 import BM25
from liebig.records import Passage, Query
from liebig.retriever.filters import Owners
from liebig.retriever.folder import Described
from liebig.search.fold import Folded
from liebig.search.fuse import weighted_by
from liebig.search.systems import Dense, Found, Lexical, System, layouts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liebig.model.encoder import Encoder
    from liebig.retriever.embedding import Embedder, Kind
    from liebig.text.layout import Record


class Opened:
    """Collection, BM25 index, vectors and model of one description."""

    def __init__(
        self, folder: Path, described: Described, *, verify: bool = True, device: str | None = None
    ) -> None:
        self.folder, self.described = folder, described
        self.collection = Collection(folder / described.collection)
        if (self.collection.path / workspace.MANIFEST).is_file():
            workspace.verify(self.collection.path, hashes=False)
        self.collection.open()
        self.bm25 = BM25.open(folder / described.bm25, hashes=verify) if described.bm25 else None
        self.index = open_index(folder / described.index, hashes=verify) if described.index else None
        self._model_is = _identity(folder / described.model) if described.model else None
        self._device, self._lock = device, Lock()
        self._embedder: Embedder | None = None
        self._owners: Owners | None = None

    @cached_property
    def lexical(self) -> Lexical:
        """BM25 as a system."""
        if self.bm25 is None:
            raise RecipeError("the retriever has no BM25 index", fix="ask system='dense'")
        return Lexical(self.bm25)

    @cached_property
    def dense(self) -> Dense:
        """The vectors as a system; its model is loaded by `encoder`."""
        if self.index is None:
            raise RecipeError("the retriever has no vectors", fix="ask system='bm25'")
        return Dense(self.index, self._model(self.index), self._device)

    def _model(self, index: Index) -> Path:
        name = self.described.model or index.about.get("query_model", index.about.get("model"))
        if name is None:
            raise DataError("nothing says which model made the vectors", file=self.folder, fix="build again")
        return self.folder / str(name)

    @property
    def encoder(self) -> Encoder:
        """The model, loaded once, whichever thread comes first."""
        with self._lock:
            return self.dense.encoder

    @property
    def embedder(self) -> Embedder:
        """The model with prompts and scaling as the index has them, made once."""
        encoder = self.encoder
        with self._lock:
            if self._embedder is None:
                from liebig.retriever.embedding import Embedder

                about = self.dense.index.about
                layouts = layouts_of(encoder, about)
                self._embedder = Embedder(encoder, *layouts, unit=bool(about.get("unit")))
            return self._embedder

    @property
    def owners(self) -> Owners:
        """Metadata by passage, read when the first filter comes."""
        with self._lock:
            if self._owners is None:
                made = Owners.of(self.collection)
                files = (
                    self.collection.path / f"{kind}.jsonl" for kind in KINDS if self.collection.has(kind)
                )
                if not all(file.is_file() for file in files):
                    raise DataError("this generation was removed while it was read", file=self.folder)
                self._owners = made
            return self._owners

    def take_model(self, other: Opened) -> None:
        """Go on with the model that another generation has loaded, where it is the same."""
        same = self._model_is is not None and self._model_is == other._model_is
        if same and self.index is not None and other.index is not None and "encoder" in other.dense.__dict__:
            self.dense.__dict__["encoder"] = other.dense.encoder
            if _manner(self.index) == _manner(other.index):
                self._embedder = other._embedder

    def system(self, name: str, questions: Sequence[str]) -> System:
        """BM25 or dense for these questions, each query named by its place; passages in the place of pieces."""
        if name == "bm25":
            return self.lexical
        asked = Vectored(self.dense, self.encode(questions, "query"))
        return Folded(asked, "max") if self.dense.index.about.get("pieces") else asked

    def fuse(self, bm25: Found, dense: Found) -> Found:
        """Both rankings as one."""
        return weighted_by(self.described.weight, self.described.norm)([bm25, dense])

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """Vectors of passages, with or without their titles as in the index."""
        return self.encode(passages, "passage")

    def encode(self, texts: Sequence[Record], kind: Kind) -> NDArray[np.float32]:
        """Vectors of texts, made as those of the index and of its queries are."""
        return self.embedder.vectors(texts, kind)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What tells a folder from another of its name that took its place, as after building anew; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _manner(index: Index) -> tuple[Any, ...]:
    """What an index says of how its vectors were made."""
    return tuple(index.about.get(name) for name in ("prompt", "query_prompt", "unit", "max_length", "title"))


class Vectored(System):
    """A dense system and the vectors of its questions; a query's id is its place among them."""

    def __init__(self, dense: Dense, vectors: NDArray[np.float32]) -> None:
        self.name, self._dense, self._vectors = dense.name, dense, vectors

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        return self._dense.search_vectors(self._vectors[[int(query.id) for query in queries]], k)
