"""Every shipped recipe parses; every pre-training stage in one plans, with numbers that make sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.base.config import parse
from liebig.methods import cost as plans
from liebig.methods.cocondenser import MLM_WEIGHT
from liebig.methods.cost import plan
from liebig.methods.cotmae import DECODER_LAYERS
from liebig.methods.mlm import MaskedLM
from liebig.methods.pretraining import MIX, PretrainConfig, resolve
from liebig.methods.simclr import DELETION, SimCLR
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
FULL = [path for path in RECIPES if path.parent.name == "recipes"]


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch):
    monkeypatch.setattr(plans, "matrix_rate", lambda device: 1e14)


def stages(path: Path) -> list[PretrainConfig]:
    planned = pipeline.plan(STAGES, path, [], Path("runs") / path.stem)
    return [stage.config for stage in planned if isinstance(stage.config, PretrainConfig)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_parses_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(("name = ", "# "))
    assert "description = " in text
    assert pipeline.plan(STAGES, path, [], Path("runs"))


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_a_full_size_recipe_plans(path):
    for config in stages(path):
        found = plan(config)
        assert found.flop_a_step > 1e12
        assert 2 < found.memory / 2**30 < 60
        assert (found.seconds is None) == (config.loop.steps is None)
        assert "assumed" in str(found)


def test_a_contrast_alone_costs_no_head_and_no_vocabulary():
    both = config_of("cocondenser-msmarco")
    alone = both.model_copy(update={"objective": both.objective.model_copy(update={"mlm": False})})
    simclr = both.model_copy(update={"objective": SimCLR.Config()})
    assert plan(alone).flop_a_step == plan(simclr).flop_a_step < plan(both).flop_a_step


def config_of(name: str) -> PretrainConfig:
    (config,) = stages(ROOT / "recipes" / f"{name}.toml")
    return resolve(config)


def test_the_speed_of_an_earlier_run_decides_the_time(tmp_path):
    rates = "".join(
        f'{{"step": {i}, "tokens_per_second": {rate}}}\n' for i, rate in enumerate((1e3, 5e5, 9e5))
    )
    (tmp_path / "timing.jsonl").write_text(rates)
    found = plan(config_of("contriever"), tmp_path)
    assert found.seconds == pytest.approx(found.tokens / 5e5)


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


def test_the_work_of_an_objective_in_the_docs_is_the_work_that_is_counted():
    """Spans of 102 tokens, BERT's vocabulary; half of CoT-MAE's tokens are decoded."""
    sizes = (plans.Size(12, 768, 3072, 30_522), plans.Size(6, 384, 1536, 30_522))
    page = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")
    table = page[page.index("| objective | 12 × 768 |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    assert len(rows) == 8
    for kind, *said in rows:
        objective = resolve(recipe_of(kind)).objective
        decoded = 0.5 if kind == "cotmae" else 0.0
        load = plans.Load(1000, 1e5 * (1 - decoded), 1e5 * decoded, 102, None)
        plain = plans.Load(1000, 1e5, 0, 102, None)
        counted = [
            plans.flop_a_step(objective, size, load) / plans.flop_a_step(MaskedLM.Config(), size, plain)
            for size in sizes
        ]
        assert [float(x) for x in said] == pytest.approx(counted, abs=0.05), kind


def recipe_of(kind: str) -> PretrainConfig:
    source = {"mlm": "blocks", "condenser": "blocks", "bow": "blocks"}.get(kind, "spans")
    tables = {"objective": {"kind": kind}, "source": {"kind": source}}
    if kind == "vectors":
        tables["source"] = {"kind": "texts", "vectors": "v"}
    return parse(PretrainConfig, {"model": {"kind": "new"}, "stores": [{"path": "s"}], **tables})
