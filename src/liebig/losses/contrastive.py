"""Contrastive losses: InfoNCE with in-batch candidates, with a queue, and between coCondenser's spans; LTR; and those
of single pairs, triplets and small groups.

Each InfoNCE is a log-sum-exp over candidates (tiled, `tiles.py`) minus the score of the positive, which is one dot
product per row. Accuracy and alignment come from the same pass. Cost: three matrix products; no matrix is held.

M queries, N candidates, D width, P positives, X excluded entries.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, cross_entropy, normalize
from torch.utils.checkpoint import checkpoint

from liebig.losses.tiles import OWN, TILE, exact, log_sum_exp

# What a set of vectors looks like: near its partners, spread over the sphere, or collapsed.
#
# Alignment and uniformity are those of Wang and Isola (2020); spread is Contriever's `stdq`, scaled so that 1 is as
# spread out as random directions and 0 is one point. Cost: one pass; uniformity takes at most 512 rows.


@torch.no_grad()
def alignment(a: Tensor, b: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean squared distance of partners on the unit sphere; 0 is identical, 2 unrelated."""
    distance = (normalize(exact(a), dim=1) - normalize(exact(b), dim=1)).square().sum(dim=1)
    return distance.mean() if weights is None else (weights * distance).sum()


@torch.no_grad()
def uniformity(vectors: Tensor, rows: int = 512) -> Tensor:
    """log mean exp(−2 d²) over pairs on the unit sphere; 0 is one point, about −4 well spread. Less is better."""
    x = normalize(exact(vectors[:rows]), dim=1)
    if len(x) < 2:
        return x.new_zeros(())
    return torch.pdist(x).square().mul(-2).exp().mean().log()


@torch.no_grad()
def spread(vectors: Tensor) -> Tensor:
    """Standard deviation of the unit vectors' coordinates × √D: 1 for random directions, 0 for one point."""
    x = normalize(exact(vectors), dim=1)
    return x.std(dim=0, correction=0).mean() * x.shape[1] ** 0.5


Similarity = Literal["dot", "cosine"]


class ContrastiveLoss(NamedTuple):
    """This process's share of the mean loss, of the mean accuracy and of the mean alignment."""

    loss: Tensor
    accuracy: Tensor
    alignment: Tensor


def info_nce(
    queries: Tensor,
    candidates: Tensor,
    targets: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    similarity: Similarity = "dot",
    exclude: Tensor | None = None,
    total: int | None = None,
    tile: int = TILE,
) -> ContrastiveLoss:
    """−log softmax of each query's positive among all candidates (Eq. 14 of coCondenser, Eq. 1 of Contriever).

    `targets`: the positive of each query (M), or P × 2 pairs (query, candidate) for several positives a query;
    then each positive is compared with everything but its query's other positives, and a query counts once.
    `exclude`: X × 2 (query, candidate), false negatives to leave out.
    `total`: queries over all processes. Ties count as wrong, so that collapsed vectors do not look accurate.
    """
    total = len(queries) if total is None else total
    if targets.ndim == 2:
        rows, columns, weights, exclude = _several(targets, exclude, len(queries))
        queries = queries[rows.to(queries.device)]
    else:
        columns, weights = targets, torch.ones(len(queries), device=queries.device)
    columns = columns.to(queries.device)
    q, c = _ready(queries, similarity), _ready(candidates, similarity)
    weights = weights.to(q) / total
    q, positive = q / temperature, c[columns]
    sums = log_sum_exp(q, c, weights, exclude=exclude, tile=tile)
    loss = sums.weighted - (weights * (q * positive).sum(dim=1)).sum()
    return ContrastiveLoss(loss, (weights * (sums.best == columns)).sum(), alignment(q, positive, weights))


def queued_info_nce(
    queries: Tensor,
    keys: Tensor,
    queue: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    similarity: Similarity = "dot",
    total: int | None = None,
    tile: int = TILE,
) -> ContrastiveLoss:
    """MoCo: each query against its own key and the queue; other keys of the batch are not negatives."""
    q, k, old = (_ready(v, similarity) for v in (queries, keys, queue))
    weights = q.new_full((len(q),), 1 / (len(q) if total is None else total))
    q = q / temperature
    own = (q * k).sum(dim=1)
    sums = log_sum_exp(q, old, weights, own=own, tile=tile)
    loss = sums.weighted - (weights * own).sum()
    return ContrastiveLoss(loss, (weights * (sums.best == OWN)).sum(), alignment(q, k, weights))


def cocondenser(
    spans: Tensor,
    everything: Tensor,
    start: int,
    *,
    temperature: float | Tensor = 1.0,
    similarity: Similarity = "dot",
    tile: int = TILE,
) -> ContrastiveLoss:
    """coCondenser, Eq. 6: all 2n spans contrast with all; rows 2i and 2i+1 are partners, the diagonal is out.

    `spans` are this process's rows `start`, `start`+1, … of `everything`; the mean is over all rows.
    """
    assert len(everything) % 2 == start % 2 == len(spans) % 2 == 0, "spans come in pairs"
    at = torch.arange(start, start + len(spans))
    itself = torch.stack((at - start, at), dim=1)
    return info_nce(
        spans,
        everything,
        at ^ 1,
        temperature=temperature,
        similarity=similarity,
        exclude=itself,
        total=len(everything),
        tile=tile,
    )


def ltr(
    queries: Tensor,
    candidates: Tensor,
    targets: Tensor,
    *,
    exclude: Tensor | None = None,
    total: int | None = None,
    tile: int = TILE,
) -> Tensor:
    """Learning to rank, Eq. 14 of the ABS paper, each query against all candidates of the batch:

    −log [exp σ(W{q, d⁺} + b) / (exp σ(W{q, d⁺} + b) + Σᵢ exp σ(W{q, dᵢ⁻} + b))], the mean over queries.

    W is linear on the pair, so W{q, d} + b is a number of the query plus one of the candidate: `queries` (M) and
    `candidates` (N), b in either. `targets`, `exclude` and `total` as in `info_nce`.
    """
    total = len(queries) if total is None else total
    q, c = exact(queries), exact(candidates)
    if targets.ndim == 2:
        rows, columns, weights, exclude = _several(targets, exclude, len(q))
        q = q[rows.to(q.device)]
    else:
        columns, weights = targets, torch.ones(len(q))
    columns, weights = columns.to(q.device), weights.to(q) / total
    out = torch.zeros(0, 2, dtype=torch.long) if exclude is None else exclude
    size = max(1, tile // max(1, len(c)))
    sums = [q.new_zeros(())]
    for start in range(0, len(q), size):
        end = min(start + size, len(q))
        mine = out[(out[:, 0] >= start) & (out[:, 0] < end)] - torch.tensor([start, 0], device=out.device)
        part = q[start:end], c, columns[start:end], weights[start:end], mine.to(q.device)
        sums.append(checkpoint(_ranked, *part, use_reentrant=False, preserve_rng_state=False))
    return torch.stack(sums).sum()


def _ranked(q: Tensor, c: Tensor, columns: Tensor, weights: Tensor, exclude: Tensor) -> Tensor:
    """The weighted sum of some rows; its matrix is made again for the gradient."""
    scores = (q[:, None] + c).sigmoid()
    positive = scores.gather(1, columns[:, None])[:, 0]
    counted = scores.index_put((exclude[:, 0], exclude[:, 1]), scores.new_tensor(-torch.inf))
    return (weights * (counted.logsumexp(dim=1) - positive)).sum()


def false_negatives(own: Tensor, candidates: Tensor, targets: Tensor) -> Tensor:
    """Entries to exclude: candidates with the same id as a query's positive, other than that positive itself.

    `own`: id of each query's positive (M); `candidates`: ids (N); `targets`: its index (M). Ids are int64.
    """
    ordered, order = torch.sort(candidates, stable=True)
    first, last = torch.searchsorted(ordered, own), torch.searchsorted(ordered, own, right=True)
    counts = last - first
    rows = torch.repeat_interleave(torch.arange(len(own), device=own.device), counts)
    within = torch.arange(len(rows), device=own.device) - torch.repeat_interleave(
        counts.cumsum(0) - counts, counts
    )
    columns = order[first[rows] + within]
    keep = columns != targets[rows]
    return torch.stack((rows[keep], columns[keep]), dim=1)


def _several(pairs: Tensor, exclude: Tensor | None, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """One row for each positive: its query, its column, its weight, and the other positives left out."""
    pairs = pairs.cpu()[torch.argsort(pairs.cpu()[:, 0], stable=True)]
    out = pairs if exclude is None else torch.cat((pairs, exclude.cpu()))
    out = out[torch.argsort(out[:, 0], stable=True)]
    counts = torch.bincount(out[:, 0], minlength=n)
    begins = counts.cumsum(0) - counts
    rows, columns = pairs.unbind(dim=1)
    repeats = counts[rows]
    row = torch.repeat_interleave(torch.arange(len(rows)), repeats)
    within = torch.arange(len(row)) - torch.repeat_interleave(repeats.cumsum(0) - repeats, repeats)
    column = out[begins[rows][row] + within, 1]
    others = torch.stack((row, column), dim=1)[column != columns[row]]
    return rows, columns, 1 / torch.bincount(rows, minlength=n)[rows].double(), others


def _ready(x: Tensor, similarity: Similarity) -> Tensor:
    return normalize(exact(x), dim=1) if similarity == "cosine" else exact(x)


# Scored pairs, triplets and small groups: each example is scored by itself. Cost: linear in the rows.


def cosine_mse(a: Tensor, b: Tensor, scores: Tensor, *, total: int | None = None) -> Tensor:
    """(cos(a, b) − score)², the regression sentence-transformers uses for STS (Condenser 4.2)."""
    error = cosine_similarity(exact(a), exact(b), dim=1) - exact(scores)
    return error.square().sum() / (len(a) if total is None else total)


def triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 5.0,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    total: int | None = None,
) -> Tensor:
    """max(0, d(anchor, positive) − d(anchor, negative) + margin); margin 5 as sentence-transformers."""
    a, p, n = exact(anchor), exact(positive), exact(negative)
    if distance == "euclidean":
        near, far = (a - p).norm(dim=1), (a - n).norm(dim=1)
    else:
        near, far = 1 - cosine_similarity(a, p, dim=1), 1 - cosine_similarity(a, n, dim=1)
    return (near - far + margin).clamp(min=0).sum() / (len(a) if total is None else total)


def grouped(scores: Tensor, *, mask: Tensor | None = None, total: int | None = None) -> Tensor:
    """Softmax cross entropy over each group's scores (n × g); the first member is the positive (rerankers)."""
    full = exact(scores)
    if mask is not None:
        full = full.masked_fill(~mask, -torch.inf)
    first = torch.zeros(len(full), dtype=torch.long, device=full.device)
    return cross_entropy(full, first, reduction="sum") / (len(full) if total is None else total)


def binary(scores: Tensor, labels: Tensor, *, total: int | None = None) -> Tensor:
    """Binary cross entropy of logits and labels of 0 and 1: each pair by itself, so that σ(score) is a probability."""
    full = exact(scores)
    summed = binary_cross_entropy_with_logits(full, labels.to(full.dtype), reduction="sum")
    return summed / (len(full) if total is None else total)
