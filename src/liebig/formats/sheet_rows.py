"""Rows of a spreadsheet as documents: the first full row names the columns, each row below it is a document.

The columns are used as those of any table (any_table.py). Rows above the header, and sheets of a single column, are
text. Cost: one pass, with the sample of any_table.py in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from liebig.formats.any_table import SAMPLE, choose_columns, row_document
from liebig.formats.items import Where
from liebig.formats.outline import Article, numbered_section

Cells = Sequence[str]
LARGEST_ROW = 1_000  # cells


def sheet_articles(sheet: str, rows: Iterable[Cells]) -> Iterator[Article]:
    """The articles of a sheet; those of rows are named after the sheet and the row, which counts from 1."""
    numbered = ((number, [cell.strip() for cell in row[:LARGEST_ROW]]) for number, row in enumerate(rows, 1))
    filled = ((number, row) for number, row in numbered if any(row))
    above: list[tuple[int, str]] = []
    names: list[str] = []
    for number, row in filled:
        if sum(map(bool, row)) > 1:
            names = _names(row)
            break
        above.append((number, next(cell for cell in row if cell)))
    about = {"sheet": sheet} if sheet else {}
    if above:
        yield Article(sheet, (numbered_section("", above, "line"),), sheet or "sheet", about)
    records = ((number, {n: cell for n, cell in zip(names, row) if n}) for number, row in filled)
    sample = list(islice(records, SAMPLE))
    columns = choose_columns([record for _, record in sample])
    for number, record in chain(sample, records):
        made = row_document("row", record, columns, Where(sheet))
        title = made.title or " ".join(
            text for text in (sheet, next(filter(None, record.values()), "")) if text
        )
        yield Article(
            title[:200],
            made.sections,
            f"{sheet}:{number}" if sheet else str(number),
            {**about, **made.metadata},
        )


def _names(row: Cells) -> list[str]:
    """The names of columns: those of the header, made different; a column without a name gets its number."""
    names: list[str] = []
    for number, cell in enumerate(row, 1):
        name = " ".join(cell.split())[:60] or f"column {number}"
        names.append(f"{name} {number}" if name in names else name)
    return names
