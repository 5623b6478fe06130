"""Fused and CPU kernels behind the layers of a model."""
