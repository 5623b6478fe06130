"""Measures of retrieval and similarity: pure functions on arrays, and the names people use for them.

`names` holds measures as values whose printed name parses back, `judgements` the judged passages of each query,
`engine` computes the values of a run, `answers` does DPR's answer matching, `similarity` correlations and triplets.
Only `names` is imported here, so that a configuration can check a measure's name without loading numba.
"""

from liebig.measures.names import Measure, parse, parse_all

__all__ = ["Measure", "parse", "parse_all"]
