"""Optimisers, schedules and averages against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from liebig.base.errors import TrainingError
from liebig.train import optim, optim as schedule
from liebig.train.batch import Batch
from liebig.train.gradients import clip, trainable
from liebig.train.objective import Objective
from liebig.train.optim import AdamWConfig, ASAMConfig, ScheduleConfig, decay_groups
from liebig.train.precision import LossScaler
from liebig.train.step import StepResult, step
from tests.worlds.toy import Toy, TwoSided, gradients, groups, spans

LR = 0.01


def weights(module: Objective) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def gradient_of(objective: Objective, budget: int | None = None, scale: float = 1.0) -> optim.Gradient:
    def gradient(constants: torch.Tensor | None) -> StepResult:
        return step(objective, spans(), chunk_tokens=budget, seed=4, constants=constants, scale=scale)

    return gradient


def test_biases_and_norms_do_not_decay_unless_all_do() -> None:
    module = Toy()
    yes, no = decay_groups(module, 0.1)
    names = {id(p): name for name, p in module.named_parameters()}
    assert all(not names[id(p)].endswith("bias") and "norm" not in names[id(p)] for p in yes["params"])
    assert (yes["weight_decay"], no["weight_decay"]) == (0.1, 0)
    (everything,) = decay_groups(module, 0.1, decay_all=True)
    assert len(everything["params"]) == len(yes["params"]) + len(no["params"])


@pytest.mark.parametrize("decay_all", [False, True])
def test_adamw_is_its_formula(decay_all: bool) -> None:
    objective = Toy()
    expected = weights(objective)
    settings = AdamWConfig(lr=1.0, weight_decay=0.1, beta1=0.8, beta2=0.9, eps=1e-6, decay_all=decay_all)
    update = optim.build_optimiser(settings, objective)
    mean = {name: torch.zeros_like(w) for name, w in expected.items()}
    square = {name: torch.zeros_like(w) for name, w in expected.items()}
    for t in (1, 2, 3):
        update.update(gradient_of(objective), LR)
        for name, g in gradients(objective).items():
            mean[name] = 0.8 * mean[name] + 0.2 * g
            square[name] = 0.9 * square[name] + 0.1 * g**2
            m, v = mean[name] / (1 - 0.8**t), square[name] / (1 - 0.9**t)
            decay = 0.1 if decay_all or expected[name].ndim > 1 else 0.0
            expected[name] = expected[name] * (1 - LR * decay) - LR * m / (v.sqrt() + 1e-6)
            torch.testing.assert_close(dict(objective.named_parameters())[name].detach(), expected[name])


@pytest.mark.parametrize("budget", [None, 27])
def test_sharpness_takes_the_gradient_at_its_formulas_point(budget: int | None) -> None:
    settings = ASAMConfig(rho=0.4, eta=0.02)
    plain = Toy(dropout=0.2)
    gradient_of(plain, budget)(None)
    size = {n: w.abs() + settings.eta for n, w in weights(plain).items()}
    g = gradients(plain)
    norm = torch.cat([(g[n] * size[n]).flatten() for n in g]).norm()
    with torch.no_grad():
        for name, p in plain.named_parameters():
            if name in g:
                p += settings.rho * size[name] ** 2 * g[name] / norm
    gradient_of(plain, budget)(None)
    expected = gradients(plain)

    sharp = Toy(dropout=0.2)
    before = weights(sharp)
    result = optim.build_optimiser(settings, sharp).update(gradient_of(sharp, budget), 0.0)
    found = gradients(sharp)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10)
    assert all(torch.equal(before[name], w) for name, w in weights(sharp).items()), (
        "weights come back exactly"
    )
    assert result.result.loss == gradient_of(sharp, budget)(None).loss, (
        "the loss is that of the starting point"
    )


def test_sharpness_sees_the_same_constants_at_both_points() -> None:
    class Counted(TwoSided):
        calls = 0

        def constants(self, chunk: Batch) -> torch.Tensor:
            self.calls += 1
            return super().constants(chunk)

    objective, batch = Counted(), groups()
    optimiser = optim.build_optimiser(ASAMConfig(rho=0.3), objective)
    update = optimiser.update(lambda c: step(objective, batch, chunk_tokens=27, constants=c), LR)
    assert objective.calls == update.result.chunks > 1


def test_weights_come_back_when_the_second_gradient_fails() -> None:
    objective = Toy()
    before = weights(objective)
    calls = []

    def gradient(constants: torch.Tensor | None) -> StepResult:
        calls.append(1)
        if len(calls) == 2:
            raise TrainingError("no")
        return gradient_of(objective)(constants)

    with pytest.raises(TrainingError):
        optim.build_optimiser(ASAMConfig(rho=1.0), objective).update(gradient, LR)
    assert all(torch.equal(before[name], w) for name, w in weights(objective).items())


def test_clipping_scales_the_whole_gradient_to_the_limit() -> None:
    objective = Toy()
    gradient_of(objective)(None)
    before = gradients(objective)
    whole = torch.cat([g.flatten() for g in before.values()]).norm()
    norm = clip(trainable(objective), float(whole) / 4)
    torch.testing.assert_close(norm, whole)
    for name, g in gradients(objective).items():
        torch.testing.assert_close(g, before[name] / 4, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("settings", [AdamWConfig(), ASAMConfig(rho=0.1)])
def test_a_scaled_run_makes_the_same_update_as_an_unscaled_one(settings: AdamWConfig | ASAMConfig) -> None:
    plain, scaled = Toy(), Toy()
    scaler = LossScaler(on=True, scale=2.0**10)
    optim.build_optimiser(settings, plain, clip=0.1).update(gradient_of(plain, 27), LR)
    optim.build_optimiser(settings, scaled, clip=0.1, scaler=scaler).update(
        gradient_of(scaled, 27, scaler.factor), LR
    )
    for name, w in weights(plain).items():
        torch.testing.assert_close(weights(scaled)[name], w, rtol=1e-12, atol=1e-12)


def test_an_overflow_leaves_the_weights_and_halves_the_scale() -> None:
    objective = Toy()
    before = weights(objective)
    scaler = LossScaler(on=True, scale=4.0, interval=2)
    optimiser = optim.build_optimiser(AdamWConfig(), objective, scaler=scaler)

    def overflow(constants: torch.Tensor | None) -> StepResult:
        result = gradient_of(objective)(constants)
        objective.head.bias.grad[0] = torch.inf
        return result

    assert not optimiser.update(overflow, LR).made
    assert scaler.scale == 2
    assert all(torch.equal(before[name], w) for name, w in weights(objective).items())
    for _ in range(2):
        optimiser.update(gradient_of(objective, scale=scaler.factor), LR)
    assert scaler.scale == 4
    with pytest.raises(TrainingError, match="even unscaled"):
        for _ in range(4):
            optimiser.update(overflow, LR)


def test_fp16_gradients_are_those_of_fp32_up_to_rounding_through_the_cache() -> None:
    objective, scaler = Toy().float(), LossScaler(on=True, scale=2.0**12)
    step(objective, spans())
    exact = gradients(objective)
    step(objective, spans(), chunk_tokens=27, dtype=torch.float16, scale=scaler.factor)
    scaler.unscale(trainable(objective))
    for name, g in gradients(objective).items():
        assert (g - exact[name]).norm() < 0.01 * exact[name].norm() + 1e-6, name


def test_schedules_rise_over_the_warmup_and_fall_to_their_end() -> None:
    linear = schedule.build_schedule(ScheduleConfig(warmup_steps=4), 12)
    assert [linear(s) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert linear(4) == 1
    assert linear(11) == pytest.approx(1 / 8)
    cosine = schedule.build_schedule(ScheduleConfig(kind="cosine", warmup_ratio=0.25, final=0.1), 16)
    assert cosine(3) == cosine(4) == 1
    assert cosine(7) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert cosine(10) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)
    constant = schedule.build_schedule(ScheduleConfig(kind="constant", warmup_steps=0), 8)
    assert {constant(s) for s in range(8)} == {1.0}
    falling = schedule.build_schedule(ScheduleConfig(kind="trapezoid", warmup_steps=2, decay_ratio=0.5), 10)
    assert [falling(s) for s in (1, 2, 5)] == [1, 1, 1]
    assert falling(9) == pytest.approx(0.2)
