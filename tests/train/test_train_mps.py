"""Training on Apple's GPU, simulated (`worlds/apple_gpu.py`): it was never run on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from liebig.base.errors import RecipeError
from liebig.train.distributed import connect
from liebig.train.log import Means
from liebig.train.step import step
from tests.worlds.apple_gpu import MPS, apple_gpu, is_there
from tests.worlds.smoke import run, shortened
from tests.worlds.toy import Toy, spans


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["cocondenser", "finetune"])
def test_a_training_on_request_learns_what_it_learns_on_a_cpu(recipe, tmp_path, monkeypatch):
    few = shortened(recipe, tmp_path)
    expected = curve(run(recipe, tmp_path / "cpu", *few))
    monkeypatch.setenv("LIEBIG_DEVICE", "mps")
    with apple_gpu() as seeds:
        found = curve(run(recipe, tmp_path / "mps", *few))
    assert seeds
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected):
        assert one == pytest.approx(other, rel=1e-5)


def curve(folder: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["losses"] for line in lines if "losses" in line]


def test_nothing_is_float64_there_and_dropout_is_seeded_there():
    with apple_gpu() as seeds:
        world = connect()
        assert world.device.type == "cpu"  # nobody asked
        objective = Toy(dropout=0.3).float().to(MPS)
        result = step(objective, spans(), type(world)(device=MPS), chunk_tokens=1, diagnose=True)
        assert is_there(result.loss)
        assert result.loss.dtype == torch.float32
        means = Means()
        means.load({"loss": (1.5, 2)}, MPS)
        means.add({"loss": result.loss})
        assert means.take()["loss"] == pytest.approx((1.5 + float(result.loss)) / 3)
        assert len(seeds) > len(set(seeds)) > 1  # chunks differ, and the second pass repeats the first
        with pytest.raises(TypeError, match="no float64"):
            torch.zeros(2, device=MPS).double()


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("LIEBIG_DEVICE", "mps")
    with pytest.raises(RecipeError, match="LIEBIG_DEVICE = mps"):
        connect(mps=True)
    assert connect().device.type == "cpu"
