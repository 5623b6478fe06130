"""Pair sources: where pre-training examples come from. One file per source; `mixture.py` has the table of them."""
