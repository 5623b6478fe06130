"""`liebig demo`: a search engine of Python's own documentation, evaluated on written questions."""
