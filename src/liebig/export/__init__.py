"""A retriever handed on: its model for other libraries, its passages and vectors for other stores."""
