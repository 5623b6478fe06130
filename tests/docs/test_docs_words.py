"""Public pages speak to users: plain words, no issue numbers, no paths outside of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "LABNOTES.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("*.md")),
]
SOURCES = [*sorted((ROOT / "bench").glob("*.py")), *sorted((ROOT / "experiments").rglob("*.py"))]
PHRASES = re.compile(
    r"\bso many\b|as it comes|was asked for|is asked for|take up what|waits for company|\bis ill\b"
    r"|nothing that can be told|one row a text|bytes a passage|is no retriever|\bissue #?\d"
    r"|if not given|leads? nowhere|in a circle|is in the way",
    re.IGNORECASE,
)
OUTSIDE = re.compile(r"\.\./shared|(?<![\w.])/(?:work|root|home|opt)/")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_uses_plain_words_and_names_no_outside_path(path):
    text = path.read_text(encoding="utf-8")
    assert sorted({found.group() for found in PHRASES.finditer(text)}) == []
    assert OUTSIDE.findall(text) == []


def test_no_benchmark_or_experiment_has_a_default_outside_of_the_repository():
    named = [path.name for path in SOURCES if OUTSIDE.search(path.read_text(encoding="utf-8"))]
    assert named == []


def test_lab_notes_have_short_lines_and_a_verdict_in_every_heading():
    lines = (ROOT / "LABNOTES.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) >= 160] == []
    assert [line for line in lines if line.startswith("## ") and not line.endswith(")")] == []


def test_experiments_keep_tables_and_no_values_of_single_questions():
    kept = [
        path
        for path in (ROOT / "experiments").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [path.name for path in kept if path.suffix in (".npz", ".npy") or ".tar" in path.name] == []
    assert sum(path.stat().st_size for path in kept) < 2 << 20
