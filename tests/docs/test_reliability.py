"""docs/reliability.md promises only what a test holds: every promise names tests, and they exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_promise_names_a_test():
    table = PAGE.partition("## What holds")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 15
    assert [row for row in rows if not NAMED.search(row.rpartition(" | ")[2])] == []


def test_the_named_tests_exist():
    missing = []
    for file, name in NAMED.findall(PAGE):
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    assert missing == []
