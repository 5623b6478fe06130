"""The step: whole = cached = distributed, in gradients, with local and contrastive losses together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from liebig.base.rng import key
from liebig.train.batch import Batch
from liebig.train.distributed import ALONE, World
from liebig.train.objective import Contrast, Objective
from liebig.train.step import OutOfMemory, step
from tests.worlds.toy import (
    Learnt,
    Local,
    Toy,
    TwoSided,
    assert_equal_gradients,
    gradients,
    groups,
    mean,
    spans,
)

ONE_EXAMPLE, THREE_EXAMPLES = 1, 27


def plain(objective: Objective, batch: Batch) -> dict[str, torch.Tensor]:
    """The definition: everything in one graph, one backward pass; no chunks, no cache."""
    objective.zero_grad()
    found = objective.represent(batch)
    constants = objective.constants(batch)
    constants = None if constants is None else constants.detach()
    counts = objective.counts(batch)
    loss = sum(objective.weights.get(k, 1.0) * v / counts[k] for k, v in found.terms.items())
    contrast = objective.contrast(found.vectors, constants, batch, ALONE) if objective.contrastive else None
    if contrast is not None:
        loss = loss + objective.weights["contrast"] * contrast.loss
    loss.backward()
    return gradients(objective)


@pytest.mark.parametrize("make", [Toy, Local, Learnt, TwoSided])
@pytest.mark.parametrize("budget", [None, ONE_EXAMPLE, THREE_EXAMPLES, 10_000])
def test_chunks_of_any_size_give_the_gradient_of_the_whole(make: type[Toy], budget: int | None) -> None:
    objective, batch = make(), groups() if make is TwoSided else spans()
    expected = plain(objective, batch)
    result = step(objective, batch, chunk_tokens=budget)
    assert_equal_gradients(gradients(objective), expected, 1e-12)
    assert (result.chunks == batch.n) == (budget == ONE_EXAMPLE)
    assert objective.unused.grad is None


def test_with_dropout_other_chunks_draw_other_numbers() -> None:
    """What docs/engine.md says is not exact."""
    objective, batch = Toy(dropout=0.3), spans()
    step(objective, batch, seed=5)
    whole = gradients(objective)
    step(objective, batch, chunk_tokens=THREE_EXAMPLES, seed=5)
    assert max((whole[name] - value).abs().max() for name, value in gradients(objective).items()) > 1e-3


@pytest.mark.parametrize("budget", [ONE_EXAMPLE, THREE_EXAMPLES])
@pytest.mark.parametrize("make", [Toy, TwoSided])
def test_with_dropout_cached_equals_uncached_over_the_same_chunks(make: type[Toy], budget: int) -> None:
    objective, batch = make(dropout=0.3), groups() if make is TwoSided else spans()
    step(objective, batch, chunk_tokens=budget, seed=5)
    cached = gradients(objective)

    objective.zero_grad()
    counts, vectors, constants, loss = objective.counts(batch), [], [], torch.zeros((), dtype=torch.float64)
    for i, chunk in enumerate(batch.chunks(budget)):
        torch.manual_seed(int(key(5, 0, i, 0) >> 1))
        found = objective.represent(chunk)
        vectors.append(found.vectors)
        loss = loss + sum(objective.weights.get(k, 1.0) * v / counts[k] for k, v in found.terms.items())
        torch.manual_seed(int(key(5, 0, i, 1) >> 1))
        fixed = objective.constants(chunk)
        constants.append(fixed if fixed is None else fixed.detach())
    fixed = None if constants[0] is None else torch.cat(constants)
    loss = loss + 1.3 * objective.contrast(torch.cat(vectors), fixed, batch, ALONE).loss
    loss.backward()
    assert_equal_gradients(cached, gradients(objective), 1e-12)


@pytest.mark.parametrize("make", [Toy, Local])
def test_gradients_are_reduced_once_after_the_last_chunk(
    make: type[Toy], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("liebig.train.step.reduce_gradients", lambda *_: seen.append("reduced"))
    assert step(make(), spans(), chunk_tokens=ONE_EXAMPLE).chunks > 1
    assert seen == ["reduced"]


def test_the_second_pass_repeats_the_first() -> None:
    result = step(Toy(dropout=0.3), spans(), chunk_tokens=ONE_EXAMPLE, diagnose=True)
    assert result.metrics["replay"] == 0


def test_a_vectors_method_with_other_randomness_is_noticed() -> None:
    class Careless(Toy):
        def vectors(self, chunk: Batch) -> torch.Tensor:
            torch.rand(1)
            packed = chunk.sides["text"].packed
            return mean(self.encoder(packed), packed)

    result = step(Careless(dropout=0.3), spans(), chunk_tokens=ONE_EXAMPLE, diagnose=True)
    assert result.metrics["replay"] > 0.01


def test_temperature_is_kept_in_the_cached_step() -> None:
    batch = spans()
    found = {}
    for temperature in (1.0, 0.05):
        for budget in (None, THREE_EXAMPLES):
            objective = Toy(temperature=temperature)
            step(objective, batch, chunk_tokens=budget)
            found[temperature, budget] = gradients(objective)["encoder.embed.weight"]
    torch.testing.assert_close(found[0.05, None], found[0.05, THREE_EXAMPLES], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found[1.0, None], found[0.05, None])


def test_reported_losses_are_those_of_the_whole_batch() -> None:
    objective, batch = Toy(), spans()
    whole, chunked = (step(objective, batch, chunk_tokens=b, diagnose=True) for b in (None, ONE_EXAMPLE))
    for name in ("mlm", "correct", "contrast"):
        torch.testing.assert_close(whole.losses[name], chunked.losses[name], rtol=1e-12, atol=1e-12)
    for name in ("accuracy", "alignment", "spread", "uniformity"):
        torch.testing.assert_close(whole.metrics[name], chunked.metrics[name], rtol=1e-12, atol=1e-12)
    expected = 0.7 * whole.losses["mlm"] + 1.3 * whole.losses["contrast"]
    torch.testing.assert_close(whole.loss, expected)
    assert whole.counts["tokens"] == batch.tokens


def test_the_step_leaves_others_random_numbers_alone() -> None:
    torch.manual_seed(3)
    before = torch.rand(2)
    torch.manual_seed(3)
    step(Toy(dropout=0.3), spans(), chunk_tokens=ONE_EXAMPLE)
    torch.manual_seed(3)
    step(Toy(dropout=0.3), spans())
    assert torch.equal(torch.manual_seed(3) and torch.rand(2), before)


@pytest.mark.parametrize("make", [Toy, Local, Learnt])
@pytest.mark.parametrize("budget", [None, THREE_EXAMPLES])
def test_the_scale_multiplies_every_part_of_the_gradient_once(make: type[Toy], budget: int | None) -> None:
    objective, batch = make(), spans()
    step(objective, batch, chunk_tokens=budget)
    once = gradients(objective)
    step(objective, batch, chunk_tokens=budget, scale=1024.0)
    scaled = {name: g / 1024 for name, g in gradients(objective).items()}
    assert_equal_gradients(scaled, once, 1e-12)


@pytest.mark.parametrize("budget", [ONE_EXAMPLE, THREE_EXAMPLES])
def test_in_bf16_the_cached_step_is_the_whole_one_up_to_rounding(budget: int) -> None:
    objective, batch = Toy().float(), spans()
    step(objective, batch, dtype=torch.bfloat16)
    whole = gradients(objective)
    result = step(objective, batch, chunk_tokens=budget, dtype=torch.bfloat16, diagnose=True)
    assert all(g.dtype == torch.float32 for g in whole.values())
    assert result.metrics["replay"] == 0
    assert_equal_gradients(gradients(objective), whole, 0.02)


def test_under_autocast_the_contrast_and_its_products_are_float32() -> None:
    seen = []

    class Products(Toy):
        def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
            scores = vectors @ vectors.T
            seen.extend([vectors.dtype, scores.dtype])
            return Contrast(scores.logsumexp(dim=1).mean())

    step(Products().float(), spans(), chunk_tokens=THREE_EXAMPLES, dtype=torch.bfloat16)
    assert seen == [torch.float32, torch.float32]


def test_constants_of_an_earlier_call_are_used_again() -> None:
    objective, batch = TwoSided(dropout=0.3), groups()
    first = step(objective, batch, chunk_tokens=THREE_EXAMPLES, seed=2)
    expected = gradients(objective)
    objective.constants = None  # type: ignore[assignment]  # a second call would fail
    step(objective, batch, chunk_tokens=THREE_EXAMPLES, seed=2, constants=first.constants)
    assert_equal_gradients(gradients(objective), expected, 0)


def test_running_out_of_memory_is_one_error_and_moves_nothing() -> None:
    class Full(Toy):
        def represent(self, chunk: Batch) -> object:
            if chunk.n > 3:
                raise torch.OutOfMemoryError("full")
            return super().represent(chunk)

    objective, batch = Full(), spans()
    before = {name: p.clone() for name, p in objective.named_parameters()}
    with pytest.raises(OutOfMemory):
        step(objective, batch)
    assert all(torch.equal(before[name], p) for name, p in objective.named_parameters())
    step(objective, batch, chunk_tokens=THREE_EXAMPLES)
    assert_equal_gradients(gradients(objective), plain(Toy(), batch), 1e-12)
