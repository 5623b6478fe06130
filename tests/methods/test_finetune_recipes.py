"""Smoke recipes of fine-tuning run; the papers' values are in tests/recipes/test_recipe_values.py."""

import pytest

from tests.worlds import smoke


@pytest.mark.parametrize("name", ["finetune", "finetune-abs", "rerank"])
def test_a_smoke_recipe_runs(name, tmp_path_factory):
    home = tmp_path_factory.getbasetemp() / "smoke-finetune"
    model = smoke.run(name, home, *smoke.shortened(name, home))
    assert (model / "model" / "config.json").is_file()
