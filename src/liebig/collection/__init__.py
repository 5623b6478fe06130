"""The collection folder: documents, passages, queries, judgements, groups and pairs."""
