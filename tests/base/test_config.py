"""Recipes are refused with the dotted path, the value and the nearest right name; dump and load are inverse."""

import json
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import Field

from liebig.base import config
from liebig.base.config import Config
from liebig.base.errors import RecipeError


class Adam(Config):
    kind: Literal["adam"] = "adam"
    lr: float = Field(1e-4, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)


class Sam(Config):
    kind: Literal["sam"] = "sam"
    rho: float = 0.05


class Recipe(Config):
    name: str = "x"
    steps: int = 10
    path: Path | None = None
    flags: tuple[str, ...] = ()
    deep: bool = False
    weights: dict[str, float] = {}
    choice: Literal["cls", "mean"] = "cls"
    optim: Annotated[Adam | Sam, Field(discriminator="kind")] = Adam()
    stages: dict[str, Annotated[Adam | Sam, Field(discriminator="kind")]] = {}


def refused(*overrides: str, text: str = "", tmp_path: Path | None = None) -> str:
    with pytest.raises(RecipeError) as caught:
        config.load(Recipe, None, overrides)
    return str(caught.value)


def test_overrides_are_dotted_and_need_no_quotes():
    recipe = config.load(Recipe, None, ["optim.lr=3e-4", "name=plain words", "flags=['a', 'b']", "deep=true"])
    assert recipe.optim == Adam(lr=3e-4)
    assert (recipe.name, recipe.flags, recipe.deep) == ("plain words", ("a", "b"), True)


def test_an_unknown_key_names_the_nearest_right_one():
    assert "optim.lrr is not a key" in refused("optim.kind=adam", "optim.lrr=1")
    assert "write lr" in refused("optim.kind=adam", "optim.lrr=1")
    assert "write steps" in refused("step=3")
    assert "stages.a.rhoo" in refused("stages.a.kind=sam", "stages.a.rhoo=1")
    assert "write rho" in refused("stages.a.kind=sam", "stages.a.rhoo=1")


def test_a_wrong_type_gives_path_and_value():
    message = refused("steps=many")
    assert "steps = 'many'" in message
    assert "optim.lr = -1" in refused("optim.kind=adam", "optim.lr=-1").replace("adam.", "")


def test_a_wrong_choice_gives_the_nearest():
    assert "write 'mean'" in refused("choice=meen")
    message = refused("optim.kind=adamw")
    assert "has kind 'adamw'" in message
    assert "write 'adam'" in message


def test_a_wrong_value_in_a_table_with_a_kind_is_about_the_value():
    assert "kind" not in refused("optim.kind=adam", "optim.lr=much")
    assert "optim.kind: write 'adam'" in refused("optim=adamw")


def test_an_override_without_value_or_through_a_value_is_refused():
    assert "name=value" in refused("steps")
    assert "not a table" in refused("name=a", "name.b=1")


def test_errors_of_a_file_name_the_file(tmp_path):
    path = tmp_path / "r.toml"
    for text in ("steps = = 3", "stepz = 3", "steps = 'x'"):
        path.write_text(text)
        with pytest.raises(RecipeError) as caught:
            config.load(Recipe, path)
        assert str(path) in str(caught.value)
    with pytest.raises(RecipeError, match="no such recipe"):
        config.load(Recipe, tmp_path / "none.toml")


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
adams = st.builds(Adam, lr=st.floats(1e-9, 1e9), betas=st.tuples(floats, floats))
optims = st.one_of(adams, st.builds(Sam, rho=floats))
recipes = st.builds(
    Recipe,
    name=names,
    steps=st.integers(-(2**62), 2**62),
    path=st.none() | st.just(Path("a/b c")),
    flags=st.lists(names, max_size=3).map(tuple),
    deep=st.booleans(),
    weights=st.dictionaries(names, floats, max_size=3),
    choice=st.sampled_from(["cls", "mean"]),
    optim=optims,
    stages=st.dictionaries(names, optims, max_size=3),
)


@given(recipes)
def test_load_of_dump_is_the_recipe(recipe):
    import tomllib

    assert config.parse(Recipe, tomllib.loads(config.dump(recipe))) == recipe


def test_the_schema_is_json_with_every_field():
    assert set(json.loads(config.schema(Recipe))["properties"]) == set(Recipe.model_fields)


class Start(Config):
    model: config.InputPath
    others: tuple[config.InputPath, ...] = ()


def test_an_encoder_of_the_package_has_a_name():
    start = config.load(Start, None, ["model=liebig:mini-v3", "others=['liebig:mini-v3', 'x']"])
    assert (start.model / "model.safetensors").is_file()
    assert start.others == (start.model, Path("x"))
    assert config.inputs(start) == {"model": start.model, "others.0": start.model, "others.1": Path("x")}
    with pytest.raises(RecipeError, match="it has liebig:mini-v3"):
        config.load(Start, None, ["model=liebig:maxi"])


def test_lists_and_numbers_survive_a_shell_that_takes_quotes_away():
    recipe = config.load(Recipe, None, ["flags=[1000,b c,full]", "name=2019"])
    assert (recipe.flags, recipe.name) == (("1000", "b c", "full"), "2019")


def test_none_takes_a_number_of_a_recipe_back() -> None:
    from liebig.train.loop import LoopConfig

    tree = {"minutes": 3.0}
    for override in ("minutes=none", "steps=5"):
        config.assign(tree, override)
    found = config.parse(LoopConfig, tree)
    assert (found.minutes, found.steps) == (None, 5)
