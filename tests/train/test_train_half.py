"""Runs in fp16, and runs that are out of memory where no chunk can help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from liebig.base.errors import TrainingError
from liebig.train import optim
from liebig.train.batch import Batch
from liebig.train.loop import LoopConfig, train
from liebig.train.objective import Represented
from liebig.train.optim import AdamWConfig
from tests.worlds.toy import Toy, spans


class Loud(Toy):
    """Gradients so large that the first scales overflow fp16."""

    def __init__(self) -> None:
        super().__init__(mlm_weight=300.0)
        self.float()


def run(objective: Toy, folder: Path, until: int = 8, **settings: Any) -> None:
    def batches(step: int) -> Batch:
        if step == until:
            raise OSError("pulled the plug")
        return spans(5, step=step)

    values = {"steps": 8, "workers": 0, "log_every": 1, "checkpoint_every": 2, "chunk_tokens": 30} | settings
    train(objective, batches, folder, loop=LoopConfig(**values), optim=AdamWConfig(lr=0.01))


def strict(line: str) -> dict[str, Any]:
    """A line of the log as any JSON reader takes it."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return found


def test_overflows_of_fp16_are_left_out_logged_as_json_and_resumed_bit_for_bit(tmp_path: Path) -> None:
    straight, resumed = Loud(), Loud()
    run(straight, tmp_path / "a", precision="fp16")
    with pytest.raises(OSError, match="pulled the plug"):
        run(Loud(), tmp_path / "b", until=5, precision="fp16")
    run(resumed, tmp_path / "b", precision="fp16")
    lines = [strict(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert lines[0]["norm"] is None, "the first scale overflows"
    assert lines[-1]["norm"] > 0
    assert straight.steps < 8, "after_step belongs to updates that were made"
    assert (tmp_path / "a" / "log.jsonl").read_bytes() == (tmp_path / "b" / "log.jsonl").read_bytes()
    for name, x in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], x), name


def test_a_run_out_of_memory_and_then_killed_goes_on_with_the_budget_it_had(tmp_path: Path) -> None:
    class Full(Toy):
        def represent(self, chunk: Batch) -> Represented:
            if self.steps >= 1 and chunk.n > 3:
                raise torch.OutOfMemoryError("full")
            return super().represent(chunk)

    straight, resumed = Full(dropout=0.2), Full(dropout=0.2)
    run(straight, tmp_path / "a", chunk_tokens="whole")
    with pytest.raises(OSError, match="pulled the plug"):
        run(Full(dropout=0.2), tmp_path / "b", until=5, chunk_tokens="whole")
    run(resumed, tmp_path / "b", chunk_tokens="whole")
    assert (tmp_path / "a" / "log.jsonl").read_bytes() == (tmp_path / "b" / "log.jsonl").read_bytes()
    for name, x in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], x), name


def test_moments_that_do_not_fit_are_an_error_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: optim.Optimiser, *_: object) -> NoReturn:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(optim.Optimiser, "update", full)
    with pytest.raises(TrainingError, match="out of memory"):
        run(Toy(), tmp_path)
