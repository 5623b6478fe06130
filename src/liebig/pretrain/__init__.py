"""Pre-training without labels: one objective a file, on any pair source."""
