"""A retriever folder in LlamaIndex: `LiebigEmbedding` and `LiebigNodeRetriever`.

    from liebig.integrations.llamaindex import LiebigNodeRetriever

    retriever = LiebigNodeRetriever("runs/articles", k=5)
    nodes = retriever.retrieve("what limits the growth of barley?")

Both open the folder once and subclass the library's own base classes, so query engines accept them directly.
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
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError:
    raise MissingDependency("llama-index-core", "llamaindex", "a LlamaIndex retriever") from None

__all__ = ["LiebigEmbedding", "LiebigNodeRetriever"]


class LiebigEmbedding(BaseEmbedding):
    """Embeds texts with the encoder of a retriever folder."""

    _retriever: Retriever = PrivateAttr()

    def __init__(
        self, folder: str | Path | None = None, *, retriever: Retriever | None = None, **more: Any
    ) -> None:
        opened = _opened(folder, retriever)
        super().__init__(model_name=f"liebig:{opened.folder.name}", **more)
        self._retriever = opened

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._retriever.encode([query], kind="query")[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._retriever.encode(texts, kind="passage").tolist()


class LiebigNodeRetriever(BaseRetriever):
    """Retrieves passages from a retriever folder; `system` and `filters` are passed to `Retriever.search`."""

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        k: int = 10,
        system: str | None = None,
        filters: Filters | None = None,
        retriever: Retriever | None = None,
        **more: Any,
    ) -> None:
        self._retriever = _opened(folder, retriever)
        self._k, self._system, self._filters = k, system, filters
        super().__init__(**more)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = self._retriever.search(query_bundle.query_str, self._k, self._system, self._filters)
        return [_node(result) for result in results]


def _opened(folder: str | Path | None, retriever: Retriever | None) -> Retriever:
    assert (folder is None) != (retriever is None), "give a folder or an opened retriever"
    return retriever if retriever is not None else Retriever.from_folder(str(folder))


def _node(result: Result) -> NodeWithScore:
    metadata = {**result.metadata, "title": result.title, "doc": result.doc, "rank": result.rank}
    return NodeWithScore(
        node=TextNode(text=result.text, id_=result.id, metadata=metadata), score=result.score
    )
