"""The token store that pre-training reads, and the pair sources and batches drawn from it."""
