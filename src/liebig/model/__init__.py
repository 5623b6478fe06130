"""Encoders run on packed rows: backbone, pooling, heads, folders, exact top-k."""
