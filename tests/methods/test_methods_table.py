"""The table of methods: every line loads, says what others ask of it, and unknown kinds are refused."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import BaseModel

from liebig.base.config import parse, schema
from liebig.base.errors import RecipeError
from liebig.base.mistakes import tag
from liebig.methods import METHODS, head_classes, methods
from liebig.methods.base import Method
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.sources.mixture import AnySource


@pytest.mark.parametrize("kind", METHODS)
def test_a_method_answers_what_others_ask(kind):
    method = methods()[kind]
    config = method.Config()
    assert tag(method.Config) == config.kind == kind
    assert config.negatives in ("none", "batch", "queue")
    assert {type(config.pairs), type(config.singles)} == {bool}
    for member in ("build", "represent", "saved"):
        assert getattr(method, member) is not getattr(Method, member)


def test_a_method_that_does_not_say_where_negatives_come_from_cannot_be_used():
    class Silent(Method.Config):
        kind: str = "silent"

    with pytest.raises(TypeError, match="negatives"):
        Silent()


def test_every_source_says_whether_it_reads_stores_and_is_symmetric():
    union, *_ = get_args(AnySource)
    for config in get_args(union):
        assert issubclass(config, BaseModel)
        if tag(config) != "mixture":
            assert {type(config.reads_store), type(config.symmetric)} == {bool}


def test_heads_are_found_through_the_table():
    assert set(head_classes()) == {"condenser", "cotmae", "causal"}


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(RecipeError) as error:
        parse(PretrainConfig, {"model": {"kind": "new"}, "objective": {"kind": "condensr"}})
    assert error.value.fix == "write 'condenser'"


def test_every_kind_is_in_the_schema():
    text = schema(PretrainConfig)
    assert all(f'"{kind}"' in text for kind in METHODS)
