"""`liebig serve`: HTTP API and search page."""
