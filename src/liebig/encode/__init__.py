"""Texts to vectors: sources, batches, shards, and the same model through ONNX Runtime."""
