"""Query generation: decoding, cleaning, the quality of queries."""
