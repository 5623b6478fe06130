"""BM25: text analysis, segments of postings on disk, search and updates."""
