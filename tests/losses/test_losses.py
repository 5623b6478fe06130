"""Losses against plain formulas in float64: values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from liebig import losses

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def rows(n: int, d: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, dtype=torch.float64, generator=generator).requires_grad_()


def grads(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves, retain_graph=True)


def same(ours: Tensor, plain: Tensor, *leaves: Tensor) -> None:
    torch.testing.assert_close(ours, plain, **EXACT)
    for mine, theirs in zip(grads(ours, *leaves), grads(plain, *leaves)):
        torch.testing.assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize("tile", [1, 9, 40, 10_000])
def test_tiled_info_nce_equals_plain_cross_entropy(tile: int) -> None:
    q, c = rows(7), rows(11, seed=1)
    targets = torch.tensor([3, 1, 10, 0, 0, 7, 2])
    ours = losses.info_nce(q, c, targets, temperature=0.05, tile=tile)
    plain = cross_entropy(q @ c.T / 0.05, targets)
    same(ours.loss, plain, q, c)


def test_cosine_is_the_dot_product_of_unit_vectors() -> None:
    q, c = rows(6), rows(6, seed=1)
    ours = losses.info_nce(q, c, torch.arange(6), temperature=0.1, similarity="cosine").loss
    same(ours, cross_entropy(normalize(q) @ normalize(c).T / 0.1, torch.arange(6)), q, c)


def test_a_learnt_temperature_gets_its_gradient() -> None:
    q, c, t = rows(4), rows(4, seed=1), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    ours = losses.info_nce(q, c, torch.arange(4), temperature=t).loss
    same(ours, cross_entropy(q @ c.T / t, torch.arange(4)), q, c, t)


def test_excluded_candidates_do_not_count() -> None:
    q, c = rows(4), rows(6, seed=1)
    exclude = torch.tensor([[3, 0], [0, 4], [0, 5], [3, 1]])
    scores = q @ c.T
    masked = scores.index_put((exclude[:, 0], exclude[:, 1]), torch.tensor(-torch.inf, dtype=torch.float64))
    for tile in (6, 12, 1000):
        ours = losses.info_nce(q, c, torch.arange(4), exclude=exclude, tile=tile).loss
        same(ours, cross_entropy(masked, torch.arange(4)), q, c)


def test_each_of_several_positives_meets_everything_but_the_other_positives() -> None:
    q, c = rows(3), rows(6, seed=1)
    pairs = torch.tensor([[0, 1], [2, 5], [0, 4], [1, 0], [2, 2], [0, 3]])
    exclude = torch.tensor([[1, 5], [0, 0]])
    plain = torch.zeros((), dtype=torch.float64)
    for i, positives in enumerate(([1, 4, 3], [0], [5, 2])):
        for p in positives:
            out = [x for x in positives if x != p] + [c_ for r, c_ in exclude.tolist() if r == i]
            keep = [x for x in range(6) if x not in out]
            plain = plain - (q[i] @ c[p] - torch.logsumexp(c[keep] @ q[i], 0)) / len(positives) / 3
    for tile in (1, 12, 1000):
        same(losses.info_nce(q, c, pairs, exclude=exclude, tile=tile).loss, plain, q, c)


def test_shares_of_the_rows_add_up_to_the_whole() -> None:
    q, c, targets = rows(8), rows(8, seed=1), torch.arange(8)
    whole = losses.info_nce(q, c, targets)
    parts = [losses.info_nce(q[a:b], c, targets[a:b], total=8) for a, b in ((0, 3), (3, 8))]
    for one, two, all_ in zip(*parts, whole):
        torch.testing.assert_close(one + two, all_, **EXACT)


def test_cocondenser_is_equation_6_over_all_spans() -> None:
    spans = rows(8)
    scores = spans @ spans.T - torch.diag(torch.full((8,), torch.inf, dtype=torch.float64))
    plain = cross_entropy(scores, torch.arange(8) ^ 1)
    same(losses.cocondenser(spans, spans, 0, tile=16).loss, plain, spans)
    halves = [losses.cocondenser(spans[a : a + 4], spans, a).loss for a in (0, 4)]
    same(halves[0] + halves[1], plain, spans)


def test_queued_info_nce_sees_its_own_key_and_the_queue_only() -> None:
    q, k, queue = rows(5), rows(5, seed=1), rows(9, seed=2)
    logits = torch.cat(((q * k).sum(1, keepdim=True), q @ queue.T), dim=1) / 0.05
    plain = cross_entropy(logits, torch.zeros(5, dtype=torch.long))
    for tile in (9, 27, 1000):
        ours = losses.queued_info_nce(q, k, queue, temperature=0.05, tile=tile)
        same(ours.loss, plain, q, k, queue)
    torch.testing.assert_close(ours.accuracy.double(), (logits.argmax(1) == 0).double().mean())


def test_alignment_is_the_mean_squared_distance_of_partners_directions() -> None:
    q, k, other = rows(6), rows(6, seed=1), rows(9, seed=2)
    far = lambda a, b: (normalize(a) - normalize(b)).square().sum(1).mean()  # noqa: E731
    queued = losses.queued_info_nce(q, k, other, temperature=0.05).alignment
    torch.testing.assert_close(queued, far(q, k).detach())
    shares = [losses.info_nce(q[a:b], k, torch.arange(a, b), total=6).alignment for a, b in ((0, 2), (2, 6))]
    torch.testing.assert_close(shares[0] + shares[1], far(q, k).detach())
    torch.testing.assert_close(losses.cocondenser(q, q, 0).alignment, far(q, q[torch.arange(6) ^ 1]).detach())


def test_accuracy_counts_the_positives_on_top_and_no_ties() -> None:
    q = torch.eye(3, dtype=torch.float64)
    c = torch.eye(3, dtype=torch.float64)[[0, 2, 1]]
    assert losses.info_nce(q, c, torch.arange(3)).accuracy.item() == pytest.approx(1 / 3)
    collapsed = torch.ones(4, 3)
    assert losses.info_nce(collapsed, collapsed, torch.arange(4)).accuracy.item() == 0
    assert losses.queued_info_nce(collapsed, collapsed, collapsed).accuracy.item() == 0


def test_a_tie_of_other_candidates_takes_nothing_from_a_positive_above_them() -> None:
    q, c = torch.tensor([[2.0], [2.0]]), torch.tensor([[3.0], [1.0], [1.0]])
    assert losses.info_nce(q, c, torch.tensor([0, 1])).accuracy.item() == 0.5
    assert losses.queued_info_nce(q, q, c[1:]).accuracy.item() == 1
    alike = torch.tensor([[3.0], [3.0], [1.0]])
    assert (
        losses.info_nce(q, alike, torch.tensor([0, 0]), exclude=torch.tensor([[1, 1]])).accuracy.item() == 0.5
    )


def test_false_negatives_are_the_other_copies_of_ones_own_positive() -> None:
    ids = torch.tensor([7, 3, 7, 9, 3, 7])
    targets = torch.tensor([0, 1, 3])
    found = losses.false_negatives(ids[targets], ids, targets)
    assert found.tolist() == [[0, 2], [0, 5], [1, 4]]


def test_half_precision_is_computed_in_float32() -> None:
    q, c = rows(6).detach().bfloat16(), rows(6, seed=1).detach().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        ours = losses.info_nce(q, c, torch.arange(6), temperature=0.05).loss
    assert ours.dtype == torch.float32
    full = losses.info_nce(q.double(), c.double(), torch.arange(6), temperature=0.05).loss
    torch.testing.assert_close(ours.double(), full, rtol=1e-5, atol=1e-5)


def test_the_matrix_of_scores_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = Tensor.new_empty

    def watched(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        made = original(self, *args, **kwargs)
        sizes.append(made.numel())
        return made

    monkeypatch.setattr(Tensor, "new_empty", watched)
    q = rows(600, 2)
    losses.info_nce(q, q, torch.arange(600), tile=6000).loss.backward()
    assert max(sizes) <= 6000


def test_kl_over_the_group_is_teacher_to_student() -> None:
    student, teacher = rows(4, 3), rows(4, 3, seed=1).detach()
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    plain = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        t = (teacher[i][mask[i]] / 2).softmax(0)
        plain = plain + (t * (t.log() - (student[i][mask[i]] / 0.5).log_softmax(0))).sum() / 4
    same(losses.kl(student, teacher, mask=mask, temperature=0.5, teacher_temperature=2), plain, student)


def test_kl_over_the_batch_spreads_the_student_over_all_candidates() -> None:
    q, c = rows(3), rows(9, seed=1)
    members = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    teacher, mask = rows(3, 3, seed=2).detach(), torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]).bool()
    t = torch.zeros(3, 9, dtype=torch.float64)
    t.scatter_(1, members, teacher.masked_fill(~mask, -torch.inf).softmax(1))
    plain = (torch.xlogy(t, t) - t * (q @ c.T / 0.7).log_softmax(1)).sum() / 3
    same(losses.kl_batch(q, c, members, teacher, mask=mask, temperature=0.7, tile=9), plain, q, c)


def test_losses_of_pairs_triplets_and_groups_equal_their_formulas() -> None:
    a, b, c = rows(5), rows(5, seed=1), rows(5, seed=2)
    gold = torch.linspace(0, 1, 5, dtype=torch.float64)
    same(losses.cosine_mse(a, b, gold), ((cosine_similarity(a, b) - gold) ** 2).mean(), a, b)
    plain = ((a - b).norm(dim=1) - (a - c).norm(dim=1) + 1).clamp(min=0).mean()
    same(losses.triplet(a, b, c, margin=1), plain, a, b, c)
    plain = (cosine_similarity(a, c) - cosine_similarity(a, b) + 0.5).clamp(min=0).mean()
    same(losses.triplet(a, b, c, margin=0.5, distance="cosine"), plain, a, b, c)
    first = torch.zeros(5, dtype=torch.long)
    same(losses.grouped(a), cross_entropy(a, first), a)
    one, two = a[:, 0], a[:, 1]
    same(losses.margin_mse(one, two, gold, gold.flip(0)), ((one - two - gold + gold.flip(0)) ** 2).mean(), a)


@pytest.mark.parametrize("tile", [1, 12, 1000])
def test_learning_to_rank_equals_equation_14_tiled_or_not_and_in_shares(tile: int) -> None:
    q, c, targets = rows(5)[:, 0], rows(6, seed=1)[:, 0], torch.tensor([3, 0, 1, 5, 2])
    q, c = (x.detach().requires_grad_() for x in (q, c))
    out = torch.tensor([[4, 0], [1, 3], [1, 5]])
    scores = (q[:, None] + c).sigmoid().clone()
    scores[out[:, 0], out[:, 1]] = -torch.inf
    plain = cross_entropy(scores, targets)
    same(losses.ltr(q, c, targets, exclude=out, tile=tile), plain, q, c)
    halves = [
        losses.ltr(q[a:b], c, targets[a:b], exclude=some, total=5, tile=tile)
        for a, b, some in ((0, 2, out[1:]), (2, 5, out[:1] - torch.tensor([2, 0])))
    ]
    same(halves[0] + halves[1], plain, q, c)


def test_the_masked_loss_is_a_sum_and_zero_without_positions() -> None:
    logits, labels = rows(9), torch.arange(9) % 5
    loss = losses.mlm(logits, labels)
    same(loss.loss, cross_entropy(logits, labels, reduction="sum"), logits)
    assert loss.correct == (logits.argmax(1) == labels).sum()
    assert losses.mlm(logits[:0], labels[:0]).loss == 0


def test_spread_is_one_for_random_directions_and_zero_for_a_point() -> None:
    many = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0))
    assert losses.spread(many).item() == pytest.approx(1, abs=0.01)
    assert losses.spread(torch.ones(10, 64)).item() == pytest.approx(0, abs=1e-6)
    assert losses.uniformity(torch.ones(10, 4)).item() == pytest.approx(0, abs=1e-4)
    three = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-5.0, 0.0]])  # squared distances of directions: 2, 4, 2
    mean = (2 * math.exp(-4) + math.exp(-8)) / 3
    assert losses.uniformity(three).item() == pytest.approx(math.log(mean), rel=1e-5)
    assert losses.alignment(many, many).item() == pytest.approx(0, abs=1e-6)
    assert losses.alignment(many, -many).item() == pytest.approx(4)
