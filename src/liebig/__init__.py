"""Liebig condenses a text corpus into a retriever."""

__version__ = "0.1.0"
