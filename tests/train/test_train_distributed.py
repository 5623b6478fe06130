"""Several processes compute what one does."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from liebig import losses
from liebig.train.batch import Batch
from liebig.train.distributed import ALONE, World, connect
from liebig.train.gradients import reduce_gradients, trainable
from liebig.train.loop import LoopConfig, train
from liebig.train.objective import Represented
from liebig.train.optim import ASAMConfig
from liebig.train.step import OutOfMemory, step
from tests.worlds.processes import together
from tests.worlds.toy import Learnt, Local, Toy, TwoSided, assert_equal_gradients, gradients, groups, spans

CASES = {
    "toy": (Toy, spans, 9),
    "local": (Local, spans, 9),
    "learnt": (Learnt, spans, 9),
    "sided": (TwoSided, groups, 7),
}
BUDGETS = (None, 1, 27)


def everything(world: World) -> dict[str, Any]:
    """All that the tests below look at, in one start of the processes."""
    found: dict[str, Any] = {}
    for name, (make, batches, n) in CASES.items():
        for budget in BUDGETS:
            objective = make()
            result = step(objective, world.slice(batches(n)), world, chunk_tokens=budget, diagnose=True)
            found[name, budget] = gradients(objective)
            found[name, budget, "losses"] = {**result.losses, "tokens": torch.tensor(result.counts["tokens"])}
    found["gather"] = gathered(world)
    found["lonely"] = lonely(world)
    found["full"] = full(world)
    return found


def gathered(world: World) -> dict[str, torch.Tensor]:
    """A loss of every process on everyone's rows; the rows are of different numbers."""
    a, b = world.share(11)
    rows = torch.arange(22, dtype=torch.float64).reshape(11, 2)[a:b].clone().requires_grad_()
    everyone, start = world.gather(rows)
    assert start == a
    ((everyone**2).sum() * (world.rank + 1)).backward()
    return {"rows": everyone.detach(), "gradient": rows.grad}


def lonely(world: World) -> dict[str, torch.Tensor]:
    """A parameter only the last process uses, in buckets of a few bytes."""
    objective = Toy()
    if world.rank == world.size - 1:
        objective.encoder.embed(torch.tensor([1, 2])).sum().backward()
    reduce_gradients(trainable(objective), world, bucket_bytes=64)
    return gradients(objective)


def full(world: World) -> bool:
    """One process out of memory in the first pass, another in the second: all of them hear of it."""
    for part in ("vectors", "represent"):
        objective = _Full(part if world.rank == 0 else "")
        with pytest.raises(OutOfMemory):
            step(objective, world.slice(spans(9)), world, chunk_tokens=1)
    return True


class _Full(Toy):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.at, self.seen = at, 0

    def vectors(self, chunk: Batch) -> torch.Tensor:
        self._count("vectors")
        return super().vectors(chunk)

    def represent(self, chunk: Batch) -> Represented:
        self._count("represent")
        return super().represent(chunk)

    def _count(self, part: str) -> None:
        self.seen += part == self.at
        if self.seen == {"vectors": 1, "represent": 2}.get(self.at):
            raise torch.OutOfMemoryError("full")


@cache
def results(folder: Path, size: int) -> list[Any]:
    return together(everything, size, folder / str(size)) if size > 1 else [everything_alone()]


def everything_alone() -> dict[str, Any]:
    return {
        (name, budget): _one(make, batches(n), budget)
        for name, (make, batches, n) in CASES.items()
        for budget in BUDGETS
    }


def _one(make: type[Toy], batch: Batch, budget: int | None) -> Any:
    objective = make()
    result = step(objective, batch, chunk_tokens=budget)
    return gradients(objective), {**result.losses, "tokens": torch.tensor(batch.tokens)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_processes_have_the_gradient_of_one_process_on_the_joined_batch(
    folder: Path, size: int, name: str
) -> None:
    (alone,) = results(folder, 1)
    for budget in BUDGETS:
        expected, values = alone[name, budget]
        for found in results(folder, size):
            assert_equal_gradients(found[name, budget], expected, 1e-10)
            torch.testing.assert_close(found[name, budget, "losses"], values, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [2, 4])
def test_gathered_rows_get_the_sum_of_everyones_gradient(folder: Path, size: int) -> None:
    everyone = torch.arange(22, dtype=torch.float64).reshape(11, 2)
    for rank, found in enumerate(results(folder, size)):
        a, b = World(rank, size).share(11)
        assert torch.equal(found["gather"]["rows"], everyone)
        assert torch.equal(found["gather"]["gradient"], 2 * everyone[a:b] * sum(range(1, size + 1)))


@pytest.mark.parametrize("size", [2, 4])
def test_a_gradient_in_one_process_is_a_gradient_in_all(folder: Path, size: int) -> None:
    for found in results(folder, size):
        assert list(found["lonely"]) == ["encoder.embed.weight"]
        assert found["lonely"]["encoder.embed.weight"].sum() == 12


@pytest.mark.parametrize("size", [2, 4])
def test_one_process_out_of_memory_stops_all_of_them_together(folder: Path, size: int) -> None:
    assert all(found["full"] for found in results(folder, size))


def test_a_process_of_a_second_node_is_known_by_its_global_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []
    facts = {"is_torchelastic_launched": True, "get_node_local_rank": 1, "get_rank": 5, "get_world_size": 8}
    for name, value in facts.items():
        monkeypatch.setattr(f"torch.distributed.{name}", lambda value=value: value)
    monkeypatch.setattr(
        "torch.distributed.init_process_group", lambda backend, timeout: joined.append(backend)
    )
    world = connect(cpu=True)
    assert (world.rank, world.size) == (5, 8)
    assert world.share(16) == (10, 12)
    assert not world.first
    assert joined == ["gloo"]


def test_alone_gathers_nothing_and_counts_itself() -> None:
    rows = torch.ones(2, 3, requires_grad=True)
    everyone, start = ALONE.gather(rows)
    assert everyone is rows
    assert start == 0
    assert ALONE.counts({"a": 3}) == {"a": 3}
    assert losses.cocondenser(rows, everyone, start).loss.requires_grad


def trained(world: World, folder: Path) -> dict[str, Any]:
    """A run of six steps that breaks off in the fifth and is taken up again."""
    for broken in (True, False):

        def batches(step: int, broken: bool = broken) -> Batch:
            if step == 4 and broken:
                raise OSError("pulled the plug")
            return world.slice(spans(9, step=step))

        objective = Toy()
        loop = LoopConfig(steps=6, chunk_tokens=27, workers=0, checkpoint_every=3)
        with pytest.raises(OSError) if broken else nullcontext():
            train(objective, batches, folder, loop=loop, optim=ASAMConfig(lr=0.01, rho=0.1), world=world)
    return {name: x.detach() for name, x in objective.state_dict().items()}


def test_processes_and_one_process_end_with_the_same_weights(folder: Path) -> None:
    alone = trained(ALONE, folder / "alone")
    for found in together(trained, 2, folder / "two", folder / "two" / "run"):
        torch.testing.assert_close(found, alone, rtol=1e-8, atol=1e-8)
