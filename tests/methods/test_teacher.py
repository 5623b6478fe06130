"""A teacher's vectors: ours equals the plain form, whole or in chunks, in one process or two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.methods.teacher import TeacherVectors
from liebig.model.pooling import Dense
from liebig.train.batch import Batch
from liebig.train.distributed import ALONE, World
from liebig.train.step import step
from tests.worlds import plain
from tests.worlds.pretraining import (
    FAMILIES,
    assert_same_gradients,
    backbone,
    gradients,
    plain_of,
    side,
    spans,
)
from tests.worlds.processes import together

WIDTH, N = 24, 7


def projection() -> Dense:
    torch.manual_seed(5)
    return Dense(16, WIDTH).double()


def world_of(n: int = N) -> tuple[Batch, Any, Tensor]:
    rows = spans(n, seed=1, masked=False)
    teacher = torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return Batch({"text": side(rows)}, n, {"teacher": teacher}), rows, teacher


def plainly(vectors: Tensor, teacher: Tensor, weight: float, temperature: float) -> Tensor:
    """Both terms in loops."""
    s, t = normalize(vectors, dim=1), normalize(teacher, dim=1)
    distance = torch.stack([(a - b).square().sum() for a, b in zip(s, t)]).mean()
    kl = torch.zeros((), dtype=s.dtype)
    for i in range(len(s)):
        others = [j for j in range(len(s)) if j != i]
        wanted = torch.stack([t[i] @ t[j] / temperature for j in others]).softmax(0)
        found = torch.stack([s[i] @ s[j] / temperature for j in others]).log_softmax(0)
        kl = kl + (wanted * (wanted.log() - found)).sum()
    return distance + weight * kl / len(s)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize("chunk_tokens", [None, 30])
def test_loss_and_gradients_equal_the_plain_form(family, weight, chunk_tokens):
    model, dense, (batch, rows, teacher) = backbone(family), projection(), world_of()
    reference, copy = plain_of(model), projection()
    expected = plainly(copy.linear(plain.mean_vectors(reference, rows)), teacher, weight, 0.5)
    expected.backward()
    objective = TeacherVectors(TeacherVectors.Config(similarity_weight=weight, temperature=0.5), model, dense)
    found = step(objective, batch, chunk_tokens=chunk_tokens)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(dense), gradients(copy))


def test_without_a_projection_the_pooled_states_are_the_vectors():
    model, (batch, rows, _) = backbone(), world_of()
    teacher = torch.randn(N, 16, dtype=torch.float64)
    found = step(
        TeacherVectors(TeacherVectors.Config(), model, None), Batch(batch.sides, N, {"teacher": teacher})
    )
    expected = plainly(plain.mean_vectors(plain_of(model), rows), teacher, 0.0, 1.0)
    torch.testing.assert_close(found.losses["distance"], expected.detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.losses["cosine"], 1 - expected.detach() / 2, rtol=0, atol=1e-9)


def test_tiles_of_similarities_add_up_to_the_whole():
    random = torch.Generator().manual_seed(0)
    s, t = (normalize(torch.randn(9, 5, generator=random, dtype=torch.float64), dim=1) for _ in range(2))
    found = []
    for tile in (9 * 9, 9 * 2, 1):
        x = s.clone().requires_grad_()
        loss = losses.kl_similarities(x, x, t, t, torch.arange(9), temperature=0.3, tile=tile)
        loss.backward()
        found.append((loss.detach(), x.grad))
    for loss, gradient in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient, found[0][1], rtol=0, atol=1e-12)


def bank(rows: int = 11) -> Tensor:
    """The teacher's vectors of other texts."""
    random = torch.Generator().manual_seed(7)
    return normalize(torch.randn(rows, WIDTH, generator=random, dtype=torch.float64), dim=1)


def ranked_plainly(vectors: Tensor, teacher: Tensor, candidates: Tensor, temperature: float) -> Tensor:
    """KL of each text's ranking of the candidates in loops."""
    total = torch.zeros((), dtype=vectors.dtype)
    for s, t in zip(normalize(vectors, dim=1), normalize(teacher, dim=1)):
        wanted = torch.stack([t @ c / temperature for c in candidates]).softmax(0)
        found = torch.stack([s @ c / temperature for c in candidates]).log_softmax(0)
        total = total + (wanted * (wanted.log() - found)).sum()
    return total / len(vectors)


@pytest.mark.parametrize("chunk_tokens", [None, 30])
def test_rankings_of_candidates_equal_the_plain_form(chunk_tokens):
    model, dense, (batch, rows, teacher) = backbone(), projection(), world_of()
    reference, copy = plain_of(model), projection()
    vectors = copy.linear(plain.mean_vectors(reference, rows))
    expected = plainly(vectors, teacher, 0.0, 1.0) + 0.7 * ranked_plainly(vectors, teacher, bank(), 0.5)
    expected.backward()
    config = TeacherVectors.Config(ranking_weight=0.7, candidates=("bank",), temperature=0.5)
    found = step(TeacherVectors(config, model, dense, bank()), batch, chunk_tokens=chunk_tokens)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(dense), gradients(copy))


def three_wide(count: int, seed: int) -> Tensor:
    """Vectors of length 1 by a second teacher, whose width is 3."""
    random = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(count, 3, generator=random, dtype=torch.float64), dim=1)


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Two teachers' vectors side by side; a quarter of the weight is the second's."""
    return torch.cat([0.75**0.5 * first, 0.5 * second], dim=1)


def test_a_student_in_the_first_teachers_space_learns_the_rankings_of_all():
    model, dense, (batch, rows, teacher) = backbone(), projection(), world_of()
    first, second, theirs = normalize(teacher, dim=1), three_wide(N, 9), three_wide(len(bank()), 10)
    reference, copy = plain_of(model), projection()
    vectors = normalize(copy.linear(plain.mean_vectors(reference, rows)), dim=1)
    expected = plainly(vectors, first, 0.0, 1.0)
    for s, a, b in zip(vectors, first, second):
        shares = ((0.75 * bank() @ a + 0.25 * theirs @ b) / 0.5).softmax(0)
        expected = expected + 0.7 * (shares * (shares.log() - (bank() @ s / 0.5).log_softmax(0))).sum() / N
    expected.backward()
    config = TeacherVectors.Config(
        space="first", ranking_weight=0.7, candidates=("a", "b"), temperature=0.5, similarity_weight=0.0
    )
    objective = TeacherVectors(config, model, dense, joined(bank(), theirs))
    result = step(objective, Batch(batch.sides, N, {"teacher": joined(first, second)}), chunk_tokens=30)
    torch.testing.assert_close(result.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(dense), gradients(copy))


def test_similarities_in_the_first_teachers_space_follow_those_of_all():
    model, dense, (batch, rows, teacher) = backbone(), projection(), world_of()
    first, second = normalize(teacher, dim=1), three_wide(N, 9)
    reference, copy = plain_of(model), projection()
    vectors = normalize(copy.linear(plain.mean_vectors(reference, rows)), dim=1)
    expected = plainly(vectors, first, 0.0, 1.0)
    others = ~torch.eye(N, dtype=torch.bool)
    targets = 0.75 * first @ first.T + 0.25 * second @ second.T
    for mine, theirs, other in zip(vectors @ vectors.T, targets, others):
        shares = (theirs[other] / 0.5).softmax(0)
        expected = expected + 0.7 * (shares * (shares.log() - (mine[other] / 0.5).log_softmax(0))).sum() / N
    expected.backward()
    config = TeacherVectors.Config(space="first", similarity_weight=0.7, temperature=0.5)
    objective = TeacherVectors(config, model, dense)
    result = step(objective, Batch(batch.sides, N, {"teacher": joined(first, second)}), chunk_tokens=30)
    torch.testing.assert_close(result.loss, expected.detach(), rtol=0, atol=1e-9)
    assert 0 <= float(result.metrics["partner_accuracy"]) <= 1
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(dense), gradients(copy))


def test_tiles_of_rankings_add_up_to_the_whole():
    random = torch.Generator().manual_seed(0)
    s, t = (normalize(torch.randn(9, WIDTH, generator=random, dtype=torch.float64), dim=1) for _ in range(2))
    expected = ranked_plainly(s, t, bank(), 0.3)
    for tile in (9 * 11, 2 * 11, 1):
        loss = losses.kl_rankings(s, t, bank(), temperature=0.3, tile=tile)
        torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)


def test_several_texts_an_example_are_as_many_examples_of_one():
    (batch, _, teacher) = world_of(8)
    rows = spans(8, seed=1, masked=False)
    grouped = Batch({"text": side(rows, 4)}, 2, {"teacher": teacher.view(2, 4, WIDTH)})
    found = [
        step(
            TeacherVectors(TeacherVectors.Config(similarity_weight=0.7), backbone(), projection()),
            one,
            chunk_tokens=30,
        )
        for one in (batch, grouped)
    ]
    for name, value in found[0].losses.items():
        torch.testing.assert_close(found[1].losses[name], value, rtol=0, atol=1e-10)


def test_a_student_that_is_its_teacher_has_nothing_to_learn():
    model, dense, (batch, _, _) = backbone(), projection(), world_of()
    objective = TeacherVectors(TeacherVectors.Config(similarity_weight=1.0), model, dense)
    with torch.no_grad():
        own = objective.vectors(batch)
    found = step(objective, Batch(batch.sides, N, {"teacher": 3 * own}))
    assert float(found.loss) == pytest.approx(0, abs=1e-12)
    assert float(found.metrics["partner_accuracy"]) == pytest.approx(1)
    assert max(float(g.abs().max()) for g in gradients(objective).values()) < 1e-9


def taught(world: World) -> dict[Any, Any]:
    """Gradients and losses, with the further terms and without, whole and in chunks."""
    found: dict[Any, Any] = {}
    batch, _, _ = world_of()
    for weight, ranking in ((0.0, 0.0), (0.7, 0.0), (0.7, 0.5)):
        for budget in (None, 30):
            config = TeacherVectors.Config(
                similarity_weight=weight, ranking_weight=ranking, candidates=("bank",) if ranking else ()
            )
            objective = TeacherVectors(config, backbone(), projection(), bank() if ranking else None)
            result = step(objective, world.slice(batch), world, chunk_tokens=budget)
            found[weight, ranking, budget] = gradients(objective), {**result.losses, **result.metrics}
    return found


def test_two_processes_give_the_gradient_of_one(tmp_path):
    alone = taught(ALONE)
    for process in together(taught, 2, tmp_path):
        for case, (expected, values) in alone.items():
            assert_same_gradients(process[case][0], expected, 1e-10)
            for name, value in values.items():
                torch.testing.assert_close(process[case][1][name], value, rtol=0, atol=1e-10)
