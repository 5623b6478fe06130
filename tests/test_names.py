"""A name means one thing in the whole package."""

import ast
from collections import Counter
from pathlib import Path

import liebig


def test_no_class_name_is_defined_twice():
    trees = [ast.parse(path.read_text()) for path in Path(liebig.__file__).parent.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set()
