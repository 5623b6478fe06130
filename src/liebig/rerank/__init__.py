"""Cross-encoders: trained on groups, they rerank runs and score groups for soft labels."""
