"""Liebig turns a text corpus into a retriever.

    import liebig

    built = liebig.build("articles", out="runs/articles")
    built.retriever.search("what limits the growth of barley?")

Every name below is imported when it is first used, so that `import liebig` is cheap and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liebig.api import build, build_documents, evaluate, finetune, pretrain
    from liebig.bm25.search import BM25
    from liebig.collection import Collection
    from liebig.indexes import open_index
    from liebig.model.cross_encoder import CrossEncoder
    from liebig.model.encoder import Encoder
    from liebig.search.answer import Result
    from liebig.search.retriever import Retriever

    __version__: str
__all__ = [
    "BM25",
    "Collection",
    "CrossEncoder",
    "Encoder",
    "Result",
    "Retriever",
    "__version__",
    "build",
    "build_documents",
    "evaluate",
    "finetune",
    "open_index",
    "pretrain",
]
HOMES = {
    "BM25": "liebig.bm25.search",
    "Collection": "liebig.collection",
    "CrossEncoder": "liebig.model.cross_encoder",
    "Encoder": "liebig.model.encoder",
    "Result": "liebig.search.answer",
    "Retriever": "liebig.search.retriever",
    "build": "liebig.api",
    "build_documents": "liebig.api",
    "evaluate": "liebig.api",
    "finetune": "liebig.api",
    "open_index": "liebig.indexes",
    "pretrain": "liebig.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("liebig")
    if name not in HOMES:
        raise AttributeError(f"module 'liebig' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
