"""Every shipped recipe parses; every pre-training stage in one plans, with numbers that make sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.methods.cocondenser import MLM_WEIGHT
from liebig.methods.cotmae import DECODER_LAYERS
from liebig.methods.pretraining import MIX, PretrainConfig
from liebig.methods.simclr import DELETION
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
FULL = [path for path in RECIPES if path.parent.name == "recipes"]


def stages(path: Path) -> list[PretrainConfig]:
    planned = pipeline.plan(STAGES, path, [], Path("runs") / path.stem)
    return [stage.config for stage in planned if isinstance(stage.config, PretrainConfig)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_parses_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(("name = ", "# "))
    assert "description = " in text
    assert pipeline.plan(STAGES, path, [], Path("runs"))


def test_the_preset_covers_what_its_page_says():
    page = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")
    table = page[page.index("| | paper | reference |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[2:4]] for line in table.splitlines()[2:]]
    weight, decoder, deletion, mix = rows
    assert [float(cell.split()[0]) for cell in weight] == list(MLM_WEIGHT.values())
    layers = [DECODER_LAYERS[kind] for kind in ("mlm", "causal")]
    assert [int(cell.split()[0]) for cell in decoder] == layers
    assert [float(cell.split()[0]) / 100 for cell in deletion] == list(DELETION.values())
    assert [cell.split()[-1] for cell in mix] == list(MIX.values())
