"""BM25: analysis of text, segments of postings on disk, search over all of them as if they were one."""
