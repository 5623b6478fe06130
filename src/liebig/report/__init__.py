"""One self-contained page from the folders that stages left."""
