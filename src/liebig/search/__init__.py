"""Searching: BM25, dense and both; run files; hard negatives from any run."""
