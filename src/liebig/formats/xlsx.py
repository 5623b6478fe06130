"""Excel workbooks (.xlsx, .xlsm): every row of every sheet is a document. Formulas give the values last computed.

openpyxl reads them, row by row. Cost: the shared strings of the workbook in memory, at most LARGEST bytes unpacked.
"""

from __future__ import annotations

import datetime
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.outline import Article
from liebig.formats.sheet_rows import Cells, sheet_articles
from liebig.formats.xml_package import refuse_old_office

LARGEST = 1 << 28  # bytes of all parts, unpacked


def read_xlsx(source: InputSource) -> Iterator[Article]:
    """A document per row."""
    import openpyxl  # late: only folders with workbooks pay for it

    refuse_old_office(source)
    with source.seekable() as file:
        try:
            # No part gives more bytes than the table of the archive says.
            if sum(member.file_size for member in zipfile.ZipFile(file).infolist()) > LARGEST:
                Where(source.label).refuse(f"unpacks to more than {LARGEST >> 20} MiB", "split it")
            with warnings.catch_warnings(action="ignore"):
                book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
                author = str(book.properties.creator or "")
                about = {"author": author} if author not in ("", "openpyxl") else {}
                for sheet in book.worksheets:
                    if sheet.sheet_state == "visible":
                        for article in sheet_articles(sheet.title, _rows(sheet)):
                            yield article._replace(metadata={**about, **article.metadata})
        except (*DAMAGE, KeyError, AttributeError, TypeError) as error:
            raise source.damaged(error) from None


def _rows(sheet: Any) -> Iterator[Cells]:
    sheet.reset_dimensions()  # a file may claim to be larger than it is
    return ([cell_text(value) for value in row] for row in sheet.iter_rows(values_only=True))


def cell_text(value: Any) -> str:
    """A cell as text: whole numbers without a point, days without a time."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return str(value)
