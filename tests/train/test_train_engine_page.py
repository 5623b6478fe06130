"""The example objective of docs/engine.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from liebig.train.step import step
from tests.worlds.toy import Encoder, assert_equal_gradients, gradients, spans

PAGE = Path(__file__).parents[2] / "docs" / "engine.md"


def test_the_example_objective_runs_whole_and_in_chunks_alike() -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block.group(1), names)
    objective = names["SpansAndWords"](Encoder(), torch.nn.Linear(6, 23).double())
    step(objective, spans())
    whole = gradients(objective)
    step(objective, spans(), chunk_tokens=20)
    assert_equal_gradients(gradients(objective), whole, 1e-12)
