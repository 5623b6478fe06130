"""Cross entropy of masked words, over masked positions only, as a sum with the number of correct predictions.

`bag_of_words` predicts the words of a passage from one vector.

M masked positions, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from liebig.losses.tiles import exact


class MaskedLoss(NamedTuple):
    """Summed cross entropy (with gradient) and the number of positions whose label has the highest logit."""

    loss: Tensor
    correct: Tensor


def mlm(logits: Tensor, labels: Tensor) -> MaskedLoss:
    """Cross entropy summed over positions, log-softmax in float32 (M × V, M)."""
    full = exact(logits)
    loss = cross_entropy(full, labels, reduction="sum")
    return MaskedLoss(loss, (full.detach().argmax(dim=1) == labels).sum())


# Bag-of-words prediction: the set of words of a passage from one row of logits.
#
# B passages, V vocabulary, T tokens of all passages.


def bag_of_words(logits_BV: Tensor, passage_T: Tensor, word_T: Tensor, counts_T: Tensor) -> Tensor:
    """Cross entropy to the uniform distribution over each passage's distinct words, summed over passages.

    `word_T` are the tokens of all passages and `passage_T` the passage of each; a word that occurs twice counts once,
    and tokens where `counts_T` is False (special ones) not at all. A passage without words adds 0.
    """
    logits = exact(logits_BV)
    new = first_in_passage(passage_T, word_T, logits.shape[1]) & counts_T
    sizes_B = torch.zeros_like(logits[:, 0]).index_add(0, passage_T, new.to(logits.dtype))
    weight_T = new / sizes_B.clamp(min=1)[passage_T]
    return (weight_T * (logits.logsumexp(dim=1)[passage_T] - logits[passage_T, word_T])).sum()


def first_in_passage(passage_T: Tensor, word_T: Tensor, vocab_size: int) -> Tensor:
    """Whether a token is the first of its kind in its passage: a sort, so that nothing waits for the device."""
    key, order = (passage_T * vocab_size + word_T).sort(stable=True)
    is_new = torch.cat((key.new_ones(1, dtype=torch.bool), key[1:] != key[:-1]))
    return torch.empty_like(is_new).scatter(0, order, is_new)
