"""Killed with SIGKILL at random moments and resumed: the same weights and the same log, bit for bit."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from liebig.train.batch import Batch
from liebig.train.checkpoint import load_checkpoint
from liebig.train.distributed import World
from liebig.train.log import read_log
from liebig.train.loop import LoopConfig, train
from liebig.train.optim import AdamWConfig, ASAMConfig
from tests.worlds.processes import PATIENCE, start, together
from tests.worlds.toy import Toy, spans

STEPS = 36
KILLS = 4


def whole_run(world: World, folder: Path, dropout: float = 0.2) -> dict[str, torch.Tensor]:
    """Everything that has state: moments, averages, a counter, dropout, evaluations, means between lines."""

    def batches(step: int) -> Batch:
        time.sleep(0.002)
        return world.slice(spans(5, seed=3, step=step))

    objective = Toy(dropout=dropout)
    loop = LoopConfig(steps=STEPS, log_every=3, checkpoint_every=4, eval_every=10, chunk_tokens=30, workers=1)
    optim = AdamWConfig(lr=0.01) if world.size == 1 else ASAMConfig(lr=0.01, rho=0.1)
    evaluate = lambda o: {"norm": float(o.head.weight.norm()) % 0.1}  # noqa: E731
    train(objective, batches, folder, loop=loop, optim=optim, world=world, evaluate=evaluate)
    return objective.state_dict()


def last_step(folder: Path) -> int:
    lines = read_log(folder)
    return lines[-1]["step"] if lines else 0


@pytest.mark.parametrize("size", [1, 2])
def test_a_run_killed_at_random_moments_ends_like_one_that_was_not(tmp_path: Path, size: int) -> None:
    expected = together(whole_run, size, tmp_path / "straight", tmp_path / "straight" / "run")[0]
    chance, kills = random.Random(size), 0
    for attempt in range(200):
        processes = start(whole_run, size, tmp_path / str(attempt), tmp_path / "run")
        target = last_step(tmp_path / "run") + chance.randrange(1, 7)
        while kills < KILLS and last_step(tmp_path / "run") < target and processes[0].is_alive():
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        if kills == KILLS or last_step(tmp_path / "run") >= STEPS:
            break
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        kills += 1
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0, (tmp_path / str(attempt) / "error.txt").read_text()
    assert kills == KILLS
    for rank in range(size):
        found = torch.load(tmp_path / str(attempt) / f"result-{rank}.pt")
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    straight, killed = tmp_path / "straight" / "run", tmp_path / "run"
    assert (killed / "log.jsonl").read_bytes() == (straight / "log.jsonl").read_bytes()
    best = [load_checkpoint(Toy(), folder, "best") for folder in (straight, killed)]
    assert best[0] == best[1]


def test_a_run_of_three_processes_of_which_one_is_killed_goes_on_with_two(tmp_path: Path) -> None:
    expected = together(whole_run, 3, tmp_path / "straight", tmp_path / "straight" / "run", 0.0)[0]
    processes = start(whole_run, 3, tmp_path / "three", tmp_path / "run", 0.0)
    while last_step(tmp_path / "run") < 12 and processes[0].is_alive():
        time.sleep(0.002)
    processes[1].kill()
    for process in processes:  # torchrun ends the others, too
        process.terminate()
        process.join()
    assert last_step(tmp_path / "run") < STEPS
    for found in together(whole_run, 2, tmp_path / "two", tmp_path / "run", 0.0):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    lines, killed = (read_log(folder / "run") for folder in (tmp_path / "straight", tmp_path))
    assert [line["step"] for line in killed] == [line["step"] for line in lines]
    for line, other in zip(lines, killed):
        for name in {
            "loss",
            "losses",
            "norm",
        } & line.keys():  # spread and uniformity are of each process' own rows
            assert other[name] == pytest.approx(line[name], rel=1e-8, abs=1e-8)
