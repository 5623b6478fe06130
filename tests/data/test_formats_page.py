"""docs/formats.md lists every format as it is."""

from pathlib import Path

import pytest

from liebig.formats.detect import FORMATS
from liebig.formats.export import EXPORTS, FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_on_the_page_with_its_rule(name):
    [row] = [line for line in PAGE.split("\n") if line.startswith(f"| `{name}` | {FORMATS[name].about}")]
    assert FORMATS[name].told_by.replace("|", "\\|") in row


@pytest.mark.parametrize("name", EXPORTS)
def test_every_target_is_on_the_page_with_its_files(name):
    files = (EXPORTS[name].__doc__ or "").strip().rstrip(".")
    assert f"| `{name}` | {files} |" in PAGE


def test_every_family_is_on_the_page():
    assert all(f"| `{name}` | " in PAGE for name in FAMILIES)
