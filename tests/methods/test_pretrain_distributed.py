"""Two processes compute what one does: coCondenser with its masked terms, SimCLR, MoCo's queue, projections."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from liebig.methods.cocondenser import CoCondenser
from liebig.methods.condenser import CondenserHead
from liebig.methods.moco import MoCo
from liebig.methods.simclr import SimCLR
from liebig.model.pooling import Dense, Normalize
from liebig.train.checkpoint import take_module
from liebig.train.distributed import ALONE, World
from liebig.train.step import step
from tests.worlds.pretraining import assert_same_gradients, backbone, batch, gradients, side, spans
from tests.worlds.processes import together

BUDGETS = (None, 30)


def pairs(n: int, seed: int) -> Any:
    return batch(n, query=side(spans(n, seed, masked=False)), key=side(spans(n, seed + 50, masked=False)))


def contrasted(world: World) -> dict[Any, Any]:
    """Gradients and losses of both contrastive objectives, whole and cached."""
    found: dict[Any, Any] = {}
    torch.manual_seed(3)
    model = backbone()
    head = CondenserHead(model).double()
    cases = {
        "cocondenser": (CoCondenser(CoCondenser.Config(), model, head), batch(5, text=side(spans(10), 2))),
        "simclr": (SimCLR(SimCLR.Config(temperature=0.5), model), pairs(5, 0)),
    }
    for name, (objective, whole) in cases.items():
        for budget in BUDGETS:
            result = step(objective.eval(), world.slice(whole), world, chunk_tokens=budget)
            found[name, budget] = gradients(objective), dict(result.losses), dict(result.metrics)
    return found


def queued(world: World) -> dict[str, Any]:
    """MoCo after five steps of plain gradient descent."""
    objective = MoCo(MoCo.Config(queue=12, momentum=0.9, temperature=0.5), backbone()).double().eval()
    for number in range(5):
        step(objective, world.slice(pairs(4, number)), world, chunk_tokens=40)
        with torch.no_grad():
            for parameter in objective.backbone.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        objective.after_step()
    return {"queue": objective.in_order(), "keys": dict(objective.key_encoder.state_dict())}


def projected(world: World) -> dict[str, Any]:
    """SimCLR and MoCo on an encoder with a projection after three steps of an optimiser."""
    found = {}
    for kind in ("simclr", "moco"):
        torch.manual_seed(3)
        model, tail = backbone(), [Dense(16, 6).double(), Normalize()]
        if kind == "simclr":
            objective = SimCLR(SimCLR.Config(), model, tail).double().eval()
        else:
            objective = MoCo(MoCo.Config(queue=12, momentum=0.9), model, tail).double().eval()
        optimiser = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=1e-2)
        for number in range(3):
            optimiser.zero_grad()
            step(objective, world.slice(pairs(4, number)), world, chunk_tokens=40)
            optimiser.step()
            objective.after_step()
        found[kind] = take_module(objective)
    return found


def everything(world: World) -> dict[str, Any]:
    return {"contrasted": contrasted(world), "queued": queued(world), "projected": projected(world)}


@cache
def alone() -> dict[str, Any]:
    return everything(ALONE)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("two")
    return together(everything, 2, folder)


@pytest.mark.parametrize("name", ["cocondenser", "simclr"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_two_processes_give_the_gradient_of_one(two, name, budget):
    expected, losses, metrics = alone()["contrasted"][name, budget]
    for process in two:
        found = process["contrasted"][name, budget]
        assert_same_gradients(found[0], expected, 1e-10)
        for term, value in {**losses, **metrics}.items():
            torch.testing.assert_close({**found[1], **found[2]}[term], value, rtol=0, atol=1e-10)


def test_cached_equals_uncached():
    whole, cached = (alone()["contrasted"]["cocondenser", budget] for budget in BUDGETS)
    assert_same_gradients(cached[0], whole[0], 1e-10)


def test_the_queue_and_the_momentum_encoder_are_the_same_in_two_processes(two):
    expected = alone()["queued"]
    for process in two:
        torch.testing.assert_close(process["queued"]["queue"], expected["queue"], rtol=0, atol=1e-10)
        for name, value in expected["keys"].items():
            torch.testing.assert_close(process["queued"]["keys"][name], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["simclr", "moco"])
def test_a_projection_is_trained_alike_in_two_processes(two, kind):
    expected = alone()["projected"][kind]
    assert any(name.startswith("tail.0.") for name in expected)
    for process in two:
        assert process["projected"][kind].keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(process["projected"][kind][name], value, rtol=0, atol=1e-8, msg=name)
