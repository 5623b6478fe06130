"""From a question to hits: embedding, search systems, fusion, the Retriever, hard negatives."""
