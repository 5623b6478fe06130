"""Small worlds that tests share: models, collections, stores, recipes and processes, made in milliseconds."""
