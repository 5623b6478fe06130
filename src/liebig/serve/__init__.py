"""`liebig serve`: a retriever's folder over HTTP, and the search page."""
