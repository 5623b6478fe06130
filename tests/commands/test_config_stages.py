"""The recipes of the stages themselves: written down and read again they are equal, and mistakes in them are named."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import HealthCheck, given, reject, settings, strategies as st
from pydantic import ValidationError

from liebig.base import config
from liebig.base.config import Config
from liebig.base.errors import RecipeError
from liebig.stages import STAGES
from liebig.stages.prepare import PrepareConfig

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def values(annotation: Any, marks: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Anything a field can hold."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values(parts[0], (*marks, *parts[1:]))
    if origin in (Union, UnionType):
        return st.one_of([values(part, marks) for part in parts])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (tuple, list):
        each = [values(part) for part in parts if part is not Ellipsis]
        return st.lists(each[0], max_size=3) if Ellipsis in parts or origin is list else st.tuples(*each)
    if origin is dict:
        return st.dictionaries(words, values(parts[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return configs(annotation)
    return plain(annotation, marks)


def bound(mark: Any, *names: str) -> Any:
    return next(getattr(mark, name) for name in names if hasattr(mark, name))


def plain(annotation: Any, marks: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    low = next((bound(m, "ge", "gt") for m in marks if isinstance(m, Ge | Gt)), 0)
    high = next((bound(m, "le", "lt") for m in marks if isinstance(m, Le | Lt)), low + 1000)
    if annotation is int:
        return st.integers(int(low), int(high))
    if annotation is float:
        return st.floats(low, high)
    table = {
        str: words,
        Path: words.map(lambda word: Path("in") / word),
        bool: st.booleans(),
        NoneType: st.none(),
    }
    return table[annotation]


@cache
def fields(model: type[Config]) -> dict[str, st.SearchStrategy[Any]]:
    """What the fields of a model can hold; hypothesis looks through a strategy once, and through a new one again."""
    known = {
        name: values(field.annotation, tuple(field.metadata))
        for name, field in model.model_fields.items()
        if name != "convert"  # commands, which no recipe may name
    }
    # Names of formats come from a table that packages extend, which a type cannot say.
    return known | ({"to": st.sampled_from(["beir", "documents"])} if "to" in known else {})


@st.composite
def configs(draw: Any, model: type[Config]) -> Any:
    """A recipe with some of its fields given; what the model itself refuses is left at its default."""
    given_values: dict[str, Any] = {}
    for name, strategy in fields(model).items():
        if model.model_fields[name].is_required() or draw(st.booleans()):
            given_values[name] = draw(strategy)
    try:
        return model(**given_values)
    except ValidationError as error:
        wrong = {part for found in error.errors() for part in found["loc"][:1]}
        required = {k: v for k, v in given_values.items() if model.model_fields[k].is_required()}
        try:
            return model(**({k: v for k, v in given_values.items() if k not in wrong} if wrong else required))
        except ValidationError:
            reject()


@pytest.mark.parametrize("name", sorted(STAGES))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_load_of_dump_is_the_recipe_of_every_stage(name, data):
    recipe = data.draw(configs(STAGES[name].config))
    again = config.parse(type(recipe), tomllib.loads(config.dump(recipe)))
    assert again == recipe


def wrong(stage: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        config.load(STAGES[stage].config, None, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("modle.kind=new",), ("modle is not a key", "write model")),
        (("stores=[{pth='a'}]",), ("stores.0.pth is not a key", "write path")),
        (("stores=[{path='a', weight='x'}]",), ("stores.0.weight = 'x'",)),
        (("stores=3",), ("stores = 3: should be a list",)),
        (("source={kind='mixture', parts=[{source={kind='spanz'}}]}",), ("source.parts.0.source", "'spans'")),
        (
            ("source={kind='mixture', parts=[{source={kind='spans', shrt=1}}]}",),
            ("parts.0.source.shrt", "write short"),
        ),
        (("objective=moco",), ("objective = 'moco'", "objective.kind", "'moco'")),
        (("objective.kind=condensr",), ("has kind 'condensr'", "write 'condenser'")),
        (("loop.chunk_tokens=hole",), ("loop.chunk_tokens = 'hole'", "integer", "write 'whole'")),
        (("loop.batch=true",), ("loop.batch = true",)),
        (("model.path=x",), ("model has no kind", "'folder', 'new'")),
    ],
)
def test_a_mistake_in_a_union_a_list_or_a_table_is_named_by_its_path(overrides, said):
    given_values = () if overrides[0].startswith("model.") else ("model.kind=new",)
    message = wrong("pretrain", *given_values, *overrides)
    assert all(part in message for part in said), message
    assert "function-" not in message


def test_names_of_validators_never_reach_the_user():
    assert wrong("init", "paths=[true]").startswith("paths.0 = True: should be a path")
    assert wrong("init", "paths=['a']", "format=bier") == (
        "format = 'bier': is none of the choices. To fix it: write 'beir'."
    )


def test_none_is_a_word_where_another_value_is_the_default():
    given_values = ("model.kind=new", "stores=[{path='a'}]")
    recipe = config.load(STAGES["pretrain"].config, None, (*given_values, "loop.clip=none"))
    assert recipe.loop.clip is None
    assert 'clip = "none"' in config.dump(recipe)


def test_how_a_stage_runs_is_written_down_but_not_recorded():
    recipe = PrepareConfig(collection=Path("a"), tokenizer=Path("b"), processes=3)
    assert "processes = 3" in config.dump(recipe)
    assert "processes" not in config.recorded(recipe)
