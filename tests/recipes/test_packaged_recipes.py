"""Recipes come with the package and are found by name from any folder; all their mistakes are told at once."""

import tomllib
from pathlib import Path

import pytest

from liebig.base import config, pipeline
from liebig.base.errors import RecipeError
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["smoke/mlm", "smoke/mlm.toml", "recipes/smoke/mlm.toml", "smoke/gpl"])
def test_a_packaged_recipe_is_found_from_any_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    planned = pipeline.plan(STAGES, Path(name), [], tmp_path / "out")
    paths = [path for item in planned for path in config.inputs(item.config).values()]
    assert paths[0].is_dir()
    assert all(path.exists() or path.is_relative_to(tmp_path / "out") for path in paths)


def test_a_file_of_the_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlm.toml").write_text("[stages.x]\nkind = 'init'\npaths = ['stdlib:json']\n")
    assert [item.name for item in pipeline.plan(STAGES, Path("mlm.toml"), [], tmp_path)] == ["x"]


def test_an_unknown_recipe_says_where_packaged_ones_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"no such recipe.*recipes"):
        pipeline.plan(STAGES, Path("smoke/nowhere"), [], tmp_path)


def test_the_wheel_has_the_recipes():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"] == {"recipes": "liebig/recipes"}


def test_recipes_inside_the_package_come_first(tmp_path, monkeypatch):
    """As a wheel is installed: the recipes lie in the package, and there is no checkout around it."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "own.toml").write_text("[stages.x]\nkind = 'init'\npaths = ['stdlib:json']\n")
    monkeypatch.setattr("liebig.base.config.resources.files", lambda package: tmp_path)
    assert config.recipes_home() == tmp_path / "recipes"
    assert [item.name for item in pipeline.plan(STAGES, Path("own"), [], tmp_path)] == ["x"]


def test_all_mistakes_of_a_recipe_are_told_at_once(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        "[stages.a]\nkind = 'init'\npaths = ['stdlib:']\nlimit = 0\nstrickt = true\n"
        "[stages.b]\nkind = 'bm25'\ncollection = '@a'\nk1 = true\n[stages.c]\nkind = 'nothing'\n"
    )
    with pytest.raises(RecipeError) as error:
        pipeline.plan(STAGES, recipe, [], tmp_path)
    for part in ("stages.a.strickt", "write strict", "stages.a.limit", "stages.b.k1", "stages.c.kind"):
        assert part in str(error.value), part


def test_a_single_mistake_stays_one_sentence(tmp_path):
    with pytest.raises(RecipeError, match=r"^limit = 0: .*greater than or equal to 1"):
        config.parse(STAGES["init"].config, {"paths": ["stdlib:"], "limit": 0})
