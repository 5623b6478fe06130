"""Exports for other software: models, model cards, pgvector, OpenSearch, Milvus."""
