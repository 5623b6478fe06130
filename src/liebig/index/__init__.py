"""Vectors on disk and the indexes over them: exact, FAISS, Milvus, behind one small interface."""
