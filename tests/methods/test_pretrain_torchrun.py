"""`liebig pretrain` under torchrun: two processes killed and started again end like one that was not."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from liebig.base import config, pipeline
from liebig.base.workspace import verify
from liebig.cli import make_app
from liebig.stages import STAGES
from liebig.train.distributed import World
from liebig.train.log import read_log
from tests.worlds.processes import start, torchrun

RECIPE = """
model = {{ kind = "new", layers = 2, width = 32, heads = 2, max_positions = 64, dropout = 0.0 }}
stores = [{{ path = "{store}" }}]
source = {{ kind = "spans" }}
objective = {{ kind = "cocondenser" }}
max_length = 32
loop = {{ steps = 16, batch = 9, log_every = 4, checkpoint_every = 4, eval_every = 8, chunk_tokens = 200 }}
evaluation = {{ share = 0.1 }}
"""


def pretrain(world: World, recipe: Path, out: Path) -> None:
    get_command(make_app())(["pretrain", str(recipe), "--out", str(out)], standalone_mode=False)


def losses(folder: Path) -> list[Any]:
    return [(line["step"], line["loss"]) for line in read_log(folder) if "loss" in line]


@pytest.mark.slow
def test_two_processes_killed_and_started_again_end_like_one(smoke: Path, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "two"
    recipe.write_text(RECIPE.format(store=smoke / "store"))
    first = start(pretrain, 2, tmp_path / "first", recipe, out)
    partial = tmp_path / "two.partial"
    while not (partial / "checkpoints" / "step-00000008").exists():
        assert all(process.is_alive() for process in first), (tmp_path / "first" / "error.txt").read_text()
        time.sleep(0.02)
    for process in first:
        process.kill()
    for process in first:
        process.join()
    assert not out.exists()
    second = torchrun(["pretrain", str(recipe), "--out", str(out)], tmp_path)
    said = second.stderr
    assert second.returncode == 0, said[-2000:]
    # The line of the end; on a slow machine a line of progress has the same count.
    assert len(re.findall(r"cocondenser: 16/16 steps.*, in ", said)) == 1, "the first process speaks alone"
    events = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    assert any("resumed after step" in line.get("event", "") for line in events)
    verify(out)
    stage = STAGES["pretrain"]
    pipeline.run_stage(stage, config.load(stage.config, recipe, [], {}), tmp_path / "one")
    two, one = losses(out), losses(tmp_path / "one")
    assert [step for step, _ in two] == [step for step, _ in one]
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in one], rel=1e-4)
