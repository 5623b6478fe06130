"""Cross entropy of masked words, over masked positions only, as a sum with the number of correct predictions.

`mlm` takes logits. `tiled_mlm` takes any head and `linear_mlm` a decoder matrix, and neither holds more logits than one
tile: the first recomputes a tile in the backward pass, the second computes its gradient in the forward pass, which
saves a product. `bag_of_words` predicts the words of a passage from one vector.

M masked positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

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


def tiled_mlm(
    head: Callable[[Tensor], Tensor], states: Tensor, labels: Tensor, *, tile: int = 2048
) -> MaskedLoss:
    """`mlm(head(states), labels)` with `tile` positions at a time; the head is run again in the backward pass."""
    parts = [
        checkpoint(lambda s, y: mlm(head(s), y), s, y, use_reentrant=False)
        for s, y in zip(states.split(tile), labels.split(tile))
    ]
    if not parts:
        return mlm(head(states), labels)
    return MaskedLoss(torch.stack([p[0] for p in parts]).sum(), torch.stack([p[1] for p in parts]).sum())


def linear_mlm(
    states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, *, tile: int = 2048
) -> MaskedLoss:
    """`mlm(states @ weight.T + bias, labels)`, the products in autocast's precision, gradients in one pass."""
    return MaskedLoss(*_LinearCrossEntropy.apply(states, weight, bias, labels, tile))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, tile: int
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        with torch.autocast(device, enabled=False):
            s, w, b = states.to(half), weight.to(half), exact(bias)
            grads = [
                torch.zeros_like(exact(x)) if need else None
                for x, need in zip((states, weight, bias), ctx.needs_input_grad)
            ]
            loss, correct = b.new_zeros(()), torch.zeros((), dtype=torch.long, device=states.device)
            for at in range(0, len(s), tile):
                part = slice(at, at + tile)
                logits = exact(s[part] @ w.T).add_(b)
                total = logits.logsumexp(dim=1)
                loss += (total - logits.gather(1, labels[part, None])[:, 0]).sum()
                correct += (logits.argmax(dim=1) == labels[part]).sum()
                _accumulate(grads, part, logits.sub_(total[:, None]), s[part], w, labels[part])
        ctx.grads, ctx.dtypes = grads, (states.dtype, weight.dtype, bias.dtype)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
        assert ctx.grads is not None, "differentiated a second time"
        out = [
            None if g is None or grad is None else g.mul_(grad).to(d) for g, d in zip(ctx.grads, ctx.dtypes)
        ]
        ctx.grads = None
        return *out, None, None


def _accumulate(
    grads: list[Tensor | None], part: slice, log_p: Tensor, s: Tensor, w: Tensor, labels: Tensor
) -> None:
    """Gradient of the summed cross entropy to the logits, in place of `log_p`, and on to all three inputs."""
    if not any(g is not None for g in grads):
        return
    delta = log_p.exp_()
    delta[torch.arange(len(delta), device=delta.device), labels] -= 1
    states, weight, bias = grads
    if bias is not None:
        bias += delta.sum(dim=0)
    half = delta.to(s.dtype)
    if states is not None:
        states[part] = half @ w
    if weight is not None:
        weight += half.T @ s


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
