"""A folder that answers questions: opened and searched (`Retriever`), built from documents, brought up to date."""

from liebig.retriever.retriever import Result, Retriever

__all__ = ["Result", "Retriever"]
