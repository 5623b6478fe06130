"""Adapters for LangChain and LlamaIndex."""
