"""Excel workbooks (.xlsx, .xlsm): every row of every sheet is a document. Formulas give the values last computed.

openpyxl reads them, row by row. Cost: the shared strings of the workbook in memory, at most LARGEST bytes unpacked. A
file need not hold the empty rows and cells before those it has, so all together are held to CELLS.
"""

from __future__ import annotations

import datetime
import re
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.outline import Article
from liebig.formats.sheet_rows import LARGEST_ROW, Cells, sheet_articles
from liebig.formats.xml_package import refuse_old_office

LARGEST = 1 << 28  # bytes of all parts, unpacked
# openpyxl's patterns take time that grows with the square of a format's length; Excel takes 255 characters.
STYLES, LONG_FORMAT = "xl/styles.xml", re.compile(rb"""formatCode\s*=\s*(?:"[^"]{2048}|'[^']{2048})""")
CELLS, OF_ROW = (
    1 << 25,
    16,
)  # cells of a workbook, the empty ones too; and what a row counts for beside its cells


def read_xlsx(source: InputSource) -> Iterator[Article]:
    import openpyxl  # late: only folders with workbooks pay for it

    refuse_old_office(source)
    with source.seekable() as file:
        try:
            # No part gives more bytes than the table of the archive says.
            archive = zipfile.ZipFile(file)
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                Where(source.label).refuse(f"unpacks to more than {LARGEST >> 20} MiB", "split it")
            if STYLES in archive.namelist() and LONG_FORMAT.search(archive.read(STYLES)):
                Where(source.label).refuse("has a number format of very many characters", "save it without")
            with warnings.catch_warnings(action="ignore"):
                book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
                author = str(book.properties.creator or "")
                about = {"author": author} if author not in ("", "openpyxl") else {}
                room = Room(source.label)
                for sheet in book.worksheets:
                    if sheet.sheet_state == "visible":
                        for article in sheet_articles(sheet.title, _rows(sheet, room)):
                            yield article._replace(metadata={**about, **article.metadata})
        except (*DAMAGE, LookupError, ArithmeticError, AttributeError, TypeError) as error:
            raise source.damaged(error) from None


class Room:
    """What is left of the cells that a workbook may have."""

    def __init__(self, label: str) -> None:
        self._label, self._cells = label, CELLS

    def take(self, cells: int) -> None:
        self._cells -= cells + OF_ROW
        if self._cells < 0:
            Where(self._label).refuse(f"has more than {CELLS:,} cells, the empty ones included", "split it")


def _rows(sheet: Any, room: Room) -> Iterator[Cells]:
    sheet.reset_dimensions()  # a file may claim to be larger than it is
    for row in sheet.iter_rows(values_only=True):
        room.take(len(row))
        yield [cell_text(value) for value in row[:LARGEST_ROW]]


def cell_text(value: Any) -> str:
    """A cell as text: whole numbers without a point, days without a time."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return str(value)
