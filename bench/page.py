"""The tables that benchmarks write into Markdown pages, each between two marks that name its script."""

from __future__ import annotations

from pathlib import Path


def read_table(page: Path, script: str) -> str:
    """What a script wrote into a page last time."""
    return _split(page, script)[1].strip()


def write_table(page: Path, script: str, table: str) -> None:
    """Put a table in the place of what the script wrote last time."""
    before, _, after = _split(page, script)
    page.write_text(f"{before}\n\n{table}\n\n{after}", encoding="utf-8")


def _split(page: Path, script: str) -> tuple[str, str, str]:
    """The page up to the first mark, what is between the two, and the rest from the second mark on."""
    begin, end = f"<!-- written by {script} -->", f"<!-- end of what {script} wrote -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    table, after = rest.split(end)
    return before + begin, table, end + after
