"""The table of methods: every line loads, says what others ask of it, and other packages can add to it."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from pydantic import BaseModel

from liebig.base.config import parse, schema, tag
from liebig.base.errors import RecipeError
from liebig.methods import METHODS, head_classes, methods
from liebig.methods.base import Method
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.sources import AnySource
from tests.worlds.processes import run_commands, together

PACKAGE = '''
from typing import ClassVar, Literal

from liebig.methods.base import Cost, Method, Saved
from liebig.methods.shapes import plain_text, text_of
from liebig.train.objective import Represented


class Quiet(Method):
    """Vectors as short as possible."""

    class Config(Method.Config):
        kind: Literal["quiet"] = "quiet"
        pairs: ClassVar[bool] = False
        singles: ClassVar[bool] = True

        @property
        def negatives(self):
            return "none"

        def shape(self, tokenizer):
            return plain_text

        def cost(self, size, load):
            return Cost()

    def __init__(self, config, backbone):
        super().__init__()
        self.config, self.backbone = config, backbone

    @classmethod
    def build(cls, recipe, backbone, start):
        return cls(recipe.objective, backbone)

    def counts(self, batch):
        return {"length": len(text_of(batch).packed)}

    def represent(self, chunk):
        packed = text_of(chunk).packed
        states = self.backbone(packed).last
        return Represented(terms={"length": states[packed.firsts].square().sum()})

    def saved(self):
        return Saved("cls")
'''


@pytest.mark.parametrize("kind", METHODS)
def test_a_method_answers_what_others_ask(kind):
    method = methods()[kind]
    config = method.Config()
    assert tag(method.Config) == config.kind == kind
    assert config.negatives in ("none", "batch", "queue")
    assert {type(config.pairs), type(config.singles), type(config.decodes)} == {bool}
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


def test_another_package_adds_a_method(smoke, tmp_path):
    site = tmp_path / "package"
    about = site / "quiet-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "quiet.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[liebig.methods]\nquiet = quiet:Quiet\n")
    command = [
        "pretrain",
        "model={kind='new', layers=1, width=16, heads=2}",
        f"stores=[{{path='{smoke / 'store'}'}}]",
        "objective.kind=quiet",
        "loop={steps=2, batch=4, log_every=1}",
        "--out",
        str(tmp_path / "out"),
    ]
    [[(code, output)]] = together(run_commands, 1, tmp_path / "process", site, tmp_path, [command])
    assert code == 0, output
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert next(line["losses"].keys() for line in lines if "losses" in line) == {"length"}
