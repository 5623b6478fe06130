"""Expressions of a tokenizer: those in use are accepted, those that can take exponential time are refused."""

import json
from pathlib import Path

import pytest

from liebig.base.errors import ModelError
from liebig.text.expressions import is_safe
from liebig.text.tokenizer import Tokenizer
from tests.worlds.models import tokenizer

IN_USE = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'t|'re)?|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r" {2,}",
    r"[\]+*]",
]
PATHOLOGICAL = [
    r"(a+)+$", r"(a|a)*b", r"(a*)*", r"((a+))+", r"(?:a+){2,}", r"(a+){50}", r"([a-z]+)*\d", r"(x+x+)+y",
    r"a*a*a*a*a*a*b", r"(.+)\1", r"(?R)", r"\g<0>", "(", ")", "x" * 30_000,
]  # fmt: skip


@pytest.mark.parametrize("expression", IN_USE)
def test_expressions_in_use_are_accepted(expression):
    assert is_safe(expression)


@pytest.mark.parametrize("expression", PATHOLOGICAL)
def test_expressions_that_can_take_exponential_time_are_not(expression):
    assert not is_safe(expression)


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer"])
def test_a_tokenizer_with_such_an_expression_is_refused(tmp_path: Path, part: str) -> None:
    tokenizer().save(tmp_path)
    path = tmp_path / "tokenizer.json"
    row = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    row[part] = {
        "type": "Sequence",
        **({"pretokenizers": [split]} if part == "pre_tokenizer" else {"normalizers": [replace]}),
    }
    path.write_text(json.dumps(row))
    with pytest.raises(ModelError, match="exponential time"):
        Tokenizer.from_folder(tmp_path)
