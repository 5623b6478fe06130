"""Recipes of fine-tuning: every one parses, and smoke ones run; the papers' values are in test_recipe_values.py."""

from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.methods.finetuning import FinetuneConfig
from liebig.stages import STAGES
from liebig.stages.rerank_train import RerankTraining
from tests.worlds import smoke

ROOT = Path(__file__).parents[2]
FULL = sorted((ROOT / "recipes" / "finetune").glob("*.toml"))


def stages(name):
    planned = pipeline.plan(STAGES, ROOT / "recipes" / "finetune" / f"{name}.toml", [], Path("runs"))
    return {p.name: p.config for p in planned}


@pytest.mark.parametrize("name", ["finetune", "finetune-abs", "rerank"])
def test_a_smoke_recipe_runs(name, tmp_path_factory):
    home = tmp_path_factory.getbasetemp() / "smoke-finetune"
    model = smoke.run(name, home, *smoke.shortened(name, home))
    assert (model / "model" / "config.json").is_file()


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_a_recipe_parses(path):
    assert "description = " in path.read_text()
    assert any(isinstance(c, FinetuneConfig | RerankTraining.Config) for c in stages(path.stem).values())
