"""Encoders on packed rows: backbone, pooling, heads, model folders."""
