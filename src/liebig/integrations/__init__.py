"""Liebig inside other libraries, through their own base classes: `langchain` and `llamaindex`, each an extra."""
