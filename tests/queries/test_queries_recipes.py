"""Recipes of query generation: the papers' numbers stand in them, and smoke ones run from beginning to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.stages import STAGES
from tests.worlds.smoke import shortened

ROOT = Path(__file__).parents[2]


def stages(name: str) -> dict:
    planned = pipeline.plan(STAGES, ROOT / "recipes" / "queries" / f"{name}.toml", [], Path("runs"))
    return {item.name: item.config for item in planned}


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("smoke")


def test_a_smoke_recipe_runs(out, monkeypatch):
    monkeypatch.chdir(ROOT)
    path, few = ROOT / "recipes" / "smoke" / "query-as-context.toml", shortened("query-as-context", out)
    pipeline.run(pipeline.plan(STAGES, path, few, out), lambda said: None)
    assert (out / "evaluation" / "manifest.json").is_file()
    assert all(item.up_to_date for item in pipeline.plan(STAGES, path, few, out))


def test_labels_are_known_through_the_generator(out, monkeypatch):
    """What the generator has seen is said where its queries are."""
    monkeypatch.chdir(ROOT)
    path, few = ROOT / "recipes" / "smoke" / "query-as-context.toml", shortened("query-as-context", out)
    planned = pipeline.plan(STAGES, path, few, out)
    names = [item.name for item in planned]
    pipeline.run(planned[: names.index("queries") + 1], lambda said: None)  # made already by the test above
    about = out / "queries" / "generation.json"
    assert json.loads(about.read_text())["labels"] == ["collection, generated: 128 pairs"]


def test_the_recipes_have_the_papers_numbers():
    whole = stages("msmarco")
    source = whole["queries"].source
    assert (whole["queries"].count, source.method.top_p, source.method.top_k) == (5, 0.95, 25)
    assert (source.prefix, source.query_length) == ("text2query: ", 64)
    gpl, genq = stages("gpl"), stages("genq")
    assert (gpl["model"].objective.loss, gpl["model"].loop.steps, gpl["model"].loop.batch) == (
        "margin-mse",
        140_000,
        32,
    )
    assert (genq["queries"].count, genq["model"].negatives, genq["model"].loop.batch) == (5, 0, 75)
