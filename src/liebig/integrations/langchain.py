"""A retriever folder in LangChain: `LiebigEmbeddings` and `LiebigRetriever`.

    from liebig.integrations.langchain import LiebigRetriever

    retriever = LiebigRetriever(folder="runs/articles", k=5)
    documents = retriever.invoke("what limits the growth of barley?")

Both open the folder once and subclass the library's own base classes, so chains accept them directly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from liebig.base.errors import MissingDependency
from liebig.search.answer import Result
from liebig.search.filters import Filters
from liebig.search.retriever import Retriever

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
except ImportError:
    raise MissingDependency("langchain-core", "langchain", "a LangChain retriever") from None

__all__ = ["LiebigEmbeddings", "LiebigRetriever"]


class LiebigEmbeddings(Embeddings):
    """Embeds texts with the encoder of a retriever folder."""

    def __init__(self, folder: str | Path | None = None, *, retriever: Retriever | None = None) -> None:
        self.retriever = _opened(folder, retriever)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages."""
        return self.retriever.encode(texts, kind="passage").tolist()

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        return self.retriever.encode([text], kind="query")[0].tolist()


class LiebigRetriever(BaseRetriever):
    """Retrieves passages from a retriever folder; `system` and `filters` are passed to `Retriever.search`."""

    folder: str | Path | None = None
    k: int = 10
    system: str | None = None
    filters: Filters | None = None
    _retriever: Retriever = PrivateAttr()

    def __init__(
        self, folder: str | Path | None = None, *, retriever: Retriever | None = None, **more: Any
    ) -> None:
        unknown = [name for name in more if name not in type(self).model_fields]
        if unknown:  # pydantic would ignore it silently
            raise TypeError(
                f"LiebigRetriever takes folder, retriever, k, system, filters, not {unknown[0]!r}"
            )
        super().__init__(folder=folder, **more)
        self._retriever = _opened(folder, retriever)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            _document(result) for result in self._retriever.search(query, self.k, self.system, self.filters)
        ]


def _opened(folder: str | Path | None, retriever: Retriever | None) -> Retriever:
    assert (folder is None) != (retriever is None), "give a folder or an opened retriever"
    return retriever if retriever is not None else Retriever.from_folder(str(folder))


def _document(result: Result) -> Document:
    own = {"title": result.title, "doc": result.doc, "score": result.score, "rank": result.rank}
    return Document(page_content=result.text, id=result.id, metadata={**result.metadata, **own})
