"""Liebig condenses a text corpus into a retriever."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liebig.search.retriever import Result, Retriever

__version__ = "0.1.0"
__all__ = ["Result", "Retriever", "__version__"]


def __getattr__(name: str) -> Any:
    """The library's face, imported when it is used, so that `import liebig` costs nothing."""
    if name in ("Result", "Retriever"):
        from liebig.search import retriever

        return getattr(retriever, name)
    raise AttributeError(f"module 'liebig' has no attribute {name!r}")
