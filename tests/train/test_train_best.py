"""The best checkpoint: kept, found again after a kill, loaded with its averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liebig.train.batch import Batch
from liebig.train.checkpoint import Checkpoints, load_checkpoint
from liebig.train.log import read_log
from liebig.train.loop import LoopConfig, train
from liebig.train.optim import AdamWConfig
from tests.worlds.toy import Toy, spans


def run(objective: Toy, folder: Path, values: list[float], broken: bool = False, **settings: Any) -> None:
    """Six steps with an evaluation after each, whose value is given."""

    def batches(step: int) -> Batch:
        if broken and step == 3:
            raise OSError("pulled the plug")
        return spans(5, step=step)

    loop = LoopConfig(steps=6, workers=0, checkpoint_every=1, eval_every=1, chunk_tokens="whole", **settings)
    train(
        objective,
        batches,
        folder,
        loop=loop,
        optim=AdamWConfig(lr=0.05),
        evaluate=lambda o: {"value": values[int(o.steps) - 1]},
    )


def test_a_run_killed_before_the_best_was_marked_still_knows_it(tmp_path: Path) -> None:
    values = [1, 2, 9, 4, 5, 6]
    with pytest.raises(OSError, match="pulled the plug"):
        run(Toy(), tmp_path, values, broken=True)
    (tmp_path / "checkpoints" / "best.json").unlink()  # the checkpoint is written first, its mark second
    run(Toy(), tmp_path, values)
    assert Checkpoints(tmp_path / "checkpoints").best() == 3
    assert load_checkpoint(Toy(), tmp_path) == 3


def test_an_evaluation_that_fails_leaves_the_weights_and_is_made_again(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        run(Toy(), tmp_path / "failed", [1, 2, 9])
    assert Checkpoints(tmp_path / "failed" / "checkpoints").steps()[-1] == 4
    run(Toy(), tmp_path / "failed", [1, 2, 9, 4, 5, 6])
    run(Toy(), tmp_path / "straight", [1, 2, 9, 4, 5, 6])
    assert read_log(tmp_path / "failed") == read_log(tmp_path / "straight")
    assert load_checkpoint(Toy(), tmp_path / "failed") == 3


def test_an_evaluation_that_was_logged_but_not_stored_is_not_logged_twice(tmp_path: Path) -> None:
    run(Toy(), tmp_path, [1, 2, 3, 4, 5, 0])
    log = read_log(tmp_path)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.update(6, {**checkpoints.read(6).facts, "evaluated": 5}, None)
    checkpoints.close()
    run(Toy(), tmp_path, [1, 2, 3, 4, 5, 0])
    assert read_log(tmp_path) == log


def test_a_measure_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    run(Toy(), tmp_path, [float("nan"), 2, 3, float("nan"), 1, 1])
    assert Checkpoints(tmp_path / "checkpoints").best() == 3
