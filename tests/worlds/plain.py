"""Every objective as plainly as it can be written: padded, in loops, every position through the vocabulary.

For tests only. A `Span` is what one row of a batch holds; a `Plain` is a Hugging Face masked language model,
called the way its documentation says. Nothing here is packed, cached, tiled or shared with the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Span:
    """Token ids with specials and masks in place, and what stood at the masked positions."""

    ids: list[int]
    targets: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)


class Plain:
    """A padded BertForMaskedLM or RobertaForMaskedLM."""

    def __init__(self, model: Any) -> None:  # transformers' attributes have no types
        self.model = model
        self.base = model.base_model

    def pad(self, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        """Ids and attention mask, B x L."""
        longest = max(len(span.ids) for span in spans)
        pad = self.model.config.pad_token_id
        ids = torch.tensor([span.ids + [pad] * (longest - len(span.ids)) for span in spans])
        mask = torch.tensor([[1] * len(span.ids) + [0] * (longest - len(span.ids)) for span in spans])
        return ids, mask

    def states(self, spans: Sequence[Span]) -> tuple[Tensor, ...]:
        """The embedding output and every layer's output, each B x L x D."""
        ids, mask = self.pad(spans)
        return self.base(ids, attention_mask=mask, output_hidden_states=True).hidden_states

    def embeddings(self, spans: Sequence[Span]) -> Tensor:
        return self.base.embeddings(input_ids=self.pad(spans)[0])

    def through(self, layers: nn.ModuleList, states: Tensor, spans: Sequence[Span]) -> Tensor:
        """More layers of the same class, with the padding masked out."""
        hidden = (1.0 - self.pad(spans)[1][:, None, None, :].to(states.dtype)) * torch.finfo(states.dtype).min
        for layer in layers:
            states = layer(states, hidden)
        return states

    def vocabulary(self, states: Tensor) -> Tensor:
        head = self.model.cls if hasattr(self.model, "cls") else self.model.lm_head
        return head(states)


def masked(plain: Plain, states: Tensor, spans: Sequence[Span], reduction: str = "mean") -> Tensor:
    """Mean over all masked tokens; or, as Eq. 5 is written, a sum in each span, averaged over the spans."""
    total, count = torch.zeros((), dtype=states.dtype), 0
    for row, span in enumerate(spans):
        logits = plain.vocabulary(states[row])
        for target, label in zip(span.targets, span.labels, strict=True):
            total = total - F.log_softmax(logits[target], dim=-1)[label]
            count += 1
    return total / (count if reduction == "mean" else len(spans))


def mlm(plain: Plain, spans: Sequence[Span], reduction: str = "mean") -> Tensor:
    return masked(plain, plain.states(spans)[-1], spans, reduction)


def condenser(
    plain: Plain,
    head: nn.ModuleList,
    spans: Sequence[Span],
    skip_from: int,
    late_mlm: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Condenser, Eq. 6–11: [late CLS; early tokens] through the head, and the late layers' own MLM."""
    states = plain.states(spans)
    mixed = torch.cat([states[-1][:, :1], states[skip_from][:, 1:]], dim=1)
    loss = masked(plain, plain.through(head, mixed, spans), spans, reduction)
    return loss + masked(plain, states[-1], spans, reduction) if late_mlm else loss


def span_contrast(vectors: Tensor, temperature: float = 1.0) -> Tensor:
    """coCondenser, Eq. 6, averaged over the 2n spans; rows 2i and 2i+1 are partners."""
    total = torch.zeros((), dtype=vectors.dtype)
    for j in range(len(vectors)):
        partner = j + 1 if j % 2 == 0 else j - 1
        scores = [vectors[j] @ vectors[k] / temperature for k in range(len(vectors)) if k != j]
        total = total - vectors[j] @ vectors[partner] / temperature + torch.logsumexp(torch.stack(scores), 0)
    return total / len(vectors)


def cocondenser(
    plain: Plain,
    head: nn.ModuleList,
    spans: Sequence[Span],
    skip_from: int,
    mlm_weight: float = 1.0,
    temperature: float = 1.0,
) -> Tensor:
    """coCondenser, Eq. 7."""
    local = condenser(plain, head, spans, skip_from)
    return mlm_weight * local + span_contrast(plain.states(spans)[-1][:, 0], temperature)


def cotmae(
    plain: Plain,
    decoder: nn.ModuleList,
    encoder_spans: Sequence[Span],
    decoder_spans: Sequence[Span],
    coefficient: float = 1.0,
) -> Tensor:
    """CoT-MAE, query-as-context Eq. 8–11: row i of the decoder starts from row i of the encoder."""
    late = plain.states(encoder_spans)[-1]
    start = torch.cat([late[:, :1], plain.embeddings(decoder_spans)[:, 1:]], dim=1)
    decoded = plain.through(decoder, start, decoder_spans)
    return masked(plain, late, encoder_spans) + coefficient * masked(plain, decoded, decoder_spans)


def mean_vectors(plain: Plain, spans: Sequence[Span]) -> Tensor:
    """The mean of all real positions, CLS and SEP included (Contriever)."""
    last = plain.states(spans)[-1]
    return torch.stack([last[row, : len(span.ids)].mean(0) for row, span in enumerate(spans)])


def simclr(plain: Plain, queries: Sequence[Span], keys: Sequence[Span], temperature: float) -> Tensor:
    """InfoNCE of each query against every key of the batch."""
    q, k = mean_vectors(plain, queries), mean_vectors(plain, keys)
    total = torch.zeros((), dtype=q.dtype)
    for i in range(len(q)):
        scores = torch.stack([q[i] @ k[j] / temperature for j in range(len(k))])
        total = total - F.log_softmax(scores, 0)[i]
    return total / len(q)


def moco(q: Tensor, k: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """InfoNCE of each query against its own key and the queue; the other keys of the batch are not in it."""
    total = torch.zeros((), dtype=q.dtype)
    for i in range(len(q)):
        scores = torch.stack([q[i] @ k[i], *(q[i] @ old for old in queue)]) / temperature
        total = total - F.log_softmax(scores, 0)[0]
    return total / len(q)


def next_token_span(ids: list[int]) -> Span:
    """A row as it is, each position asked for the token after it."""
    return Span(ids, list(range(len(ids) - 1)), ids[1:])


def causal_cotmae(
    plain: Plain,
    decoder: Any,
    encoder_spans: Sequence[Span],
    decoder_spans: Sequence[Span],
    window: int,
) -> Tensor:
    """The released query-as-context decoder: GPT-2 blocks, one row at a time, with an explicit mask.

    Row i of the mask keeps columns 0 and i−window+1 … i. `decoder` lends its weights.
    """
    late = plain.states(encoder_spans)[-1]
    states = torch.cat([late[:, :1], plain.embeddings(decoder_spans)[:, 1:]], dim=1)
    rows = []
    for row, span in enumerate(decoder_spans):
        x = states[row, : len(span.ids)]
        for block in decoder.layers:
            x = _gpt2_block(block, x, window)
        rows.append(F.pad(decoder.norm(x), (0, 0, 0, states.shape[1] - len(x))))
    return masked(plain, late, encoder_spans) + masked(plain, torch.stack(rows), decoder_spans)


def _gpt2_block(block: Any, x: Tensor, window: int) -> Tensor:
    length, width = x.shape
    allowed = torch.tensor([[j == 0 or i - window < j <= i for j in range(length)] for i in range(length)])
    q, k, v = block.qkv(block.norm_attention(x)).split(width, dim=1)
    heads = []
    for part in range(block.heads):
        at = slice(part * width // block.heads, (part + 1) * width // block.heads)
        scores = q[:, at] @ k[:, at].T / (width / block.heads) ** 0.5
        heads.append(scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v[:, at])
    x = x + block.mix(torch.cat(heads, dim=1))
    return x + block.down(F.gelu(block.up(block.norm_feed(x)), approximate="tanh"))
