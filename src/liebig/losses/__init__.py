"""Every loss of the project, defined once, as a pure function on tensors.

A loss is a sum over rows divided by `total`, the number of rows over all processes (this process's rows if it is not
given). So each process returns its share, and the shares add up to the mean of the whole batch. Half precision is
computed in float32; float64 stays float64. Matrices of scores are computed in tiles and never held whole.
"""

from liebig.losses.contrastive import (
    ContrastiveLoss,
    alignment,
    binary,
    cocondenser,
    cosine_mse,
    false_negatives,
    grouped,
    info_nce,
    ltr,
    queued_info_nce,
    spread,
    triplet,
    uniformity,
)
from liebig.losses.distil import kl, kl_batch, kl_rankings, kl_similarities, margin_mse
from liebig.losses.mlm import MaskedLoss, bag_of_words, mlm
from liebig.losses.tiles import TILE, log_sum_exp

__all__ = [
    "TILE",
    "ContrastiveLoss",
    "MaskedLoss",
    "alignment",
    "bag_of_words",
    "binary",
    "cocondenser",
    "cosine_mse",
    "false_negatives",
    "grouped",
    "info_nce",
    "kl",
    "kl_batch",
    "kl_rankings",
    "kl_similarities",
    "log_sum_exp",
    "ltr",
    "margin_mse",
    "mlm",
    "queued_info_nce",
    "spread",
    "triplet",
    "uniformity",
]
