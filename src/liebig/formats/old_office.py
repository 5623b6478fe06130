"""Files of Office from before 2007: Word (.doc), PowerPoint (.ppt) and Excel (.xls).

Word keeps its text in pieces, in UTF-16 or in Windows-1252, that a table puts in order ([MS-DOC] 2.4.1); the table and
where the text ends stand in the header. PowerPoint keeps records in records ([MS-PPT] 2.3); the texts of a
slide stand in it, or, where the layout has a place for them, in the document's list. Objects are found through the
directories of the edits, the last one first. olefile reads the streams,
xlrd the workbooks. Cost: the streams in memory, at most LARGEST bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.outline import Article, numbered_section
from liebig.formats.sheet_rows import Cells, sheet_articles
from liebig.formats.xlsx import cell_text

LARGEST = 1 << 27
BROKEN = (*DAMAGE, struct.error, IndexError, KeyError, AttributeError, TypeError, AssertionError)
ENCRYPTED = ("is encrypted", "save it without a password")
LIKE_BYTES = "cp1252"
# Word: offsets in the header of 97 and later.
WORD, FLAGS, IS_ENCRYPTED, SECOND_TABLE = 0xA5EC, 0x0A, 0x0100, 0x0200
TEXT_LENGTH, PIECES = 0x4C, 0x1A2
FIELD = re.compile(r"\x13[^\x13-\x15]*\x14|\x13[^\x13-\x15]*\x15|\x15")  # what a field computes stays
MARKS = str.maketrans(
    {0x07: "\t", 0x0B: "\n", 0x1E: "-", 0xA0: " "} | dict.fromkeys((1, 2, 3, 4, 5, 8, 0x1F))
)
# PowerPoint: types of records.
CONTAINER, LIST, NEXT = 0xF, 4080, 1011
HEADER, TEXTS, TITLES = 3999, {4000: "utf-16-le", 4008: LIKE_BYTES}, (0, 6)
LOCKED = 0xF3D1C4DF  # of a presentation with a password
MOST_EDITS, DEEPEST = 1000, 30


def read_doc(source: InputSource) -> Article:
    """The text of a Word document; cells of a table are divided by tabs."""
    where = Where(source.label)
    with _opened(source, where) as ole:
        header = _stream(ole, "WordDocument", where)
        magic, flags = struct.unpack_from("<H", header)[0], struct.unpack_from("<H", header, FLAGS)[0]
        if magic != WORD:
            where.refuse("is a document of Word 95 or older", "save it as .docx")
        if flags & IS_ENCRYPTED:
            where.refuse(*ENCRYPTED)
        table = _stream(ole, "1Table" if flags & SECOND_TABLE else "0Table", where)
        text = _word_text(header, table)
        title, author = _properties(ole)
    lines = FIELD.sub("", FIELD.sub("", text)).translate(MARKS).replace("\f", "\r").split("\r")
    paragraphs = tuple(line.strip() for line in lines if line.strip())
    sections = (Section("", paragraphs),) if paragraphs else ()
    return Article(title, sections, metadata={"author": author} if author else {})


def _word_text(header: bytes, table: bytes) -> str:
    """The main text, without notes, headers and comments, which follow it."""
    (length,) = struct.unpack_from("<i", header, TEXT_LENGTH)
    start, size = struct.unpack_from("<II", header, PIECES)
    end = start + size
    while table[start] == 1:  # formats, before the table of pieces
        start += 3 + struct.unpack_from("<H", table, start + 1)[0]
    assert table[start] == 2 and start < end <= len(table), "the table of pieces"  # noqa: PT018
    (size,) = struct.unpack_from("<I", table, start + 1)
    count, start = (size - 4) // 12, start + 5
    places = struct.unpack_from(f"<{count + 1}I", table, start)
    parts = list[str]()
    for number in range(count):
        (place,) = struct.unpack_from("<I", table, start + 4 * (count + 1) + 8 * number + 2)
        characters = min(places[number + 1], length) - places[number]
        if characters <= 0:
            continue
        if place & 0x40000000:
            place = (place & 0x3FFFFFFF) // 2
            parts.append(header[place : place + characters].decode(LIKE_BYTES, "replace"))
        else:
            parts.append(header[place : place + 2 * characters].decode("utf-16-le", "replace"))
    return "".join(parts)


def read_ppt(source: InputSource) -> Article:
    """The slides of a presentation, each a section, without notes."""
    where = Where(source.label)
    with _opened(source, where) as ole:
        user = _stream(ole, "Current User", where)
        if ole.exists("EncryptedSummary") or struct.unpack_from("<I", user, 12)[0] == LOCKED:
            where.refuse(*ENCRYPTED)
        data = _stream(ole, "PowerPoint Document", where)
        document, places = _persistent(data, struct.unpack_from("<I", user, 16)[0])
        slides = list[list[tuple[bool, str]]]()
        kind = -1
        for type, path, body in _record(data, document):
            if path[-1:] != ((LIST, 0),):
                continue
            if type == NEXT:
                slide = places.get(struct.unpack_from("<I", body)[0])
                slides.append(list(_texts(data, slide)) if slide is not None else [])
            elif type == HEADER:
                kind = struct.unpack_from("<I", body)[0]
            elif type in TEXTS and slides:
                slides[-1].append((kind in TITLES, body.decode(TEXTS[type], "replace")))
        title, author = _properties(ole)
    sections = list[Section]()
    for number, texts in enumerate(slides, 1):
        heading = next((" ".join(text.split()) for is_title, text in texts if is_title), "")
        texts.sort(key=lambda pair: not pair[0])
        lines = [" ".join(line.split()) for _, text in texts for line in re.split(r"[\r\x0b]", text)]
        sections.append(numbered_section(heading, ((number, line) for line in dict.fromkeys(lines)), "slide"))
    first = next((section.heading for section in sections if section.heading), "")
    generic = title.lower() in ("", "powerpoint presentation", "presentation", "slide 1")
    kept = tuple(section for section in sections if section.paragraphs)
    return Article(first if generic else title, kept, metadata={"author": author} if author else {})


def _persistent(data: bytes, edit: int) -> tuple[int, dict[int, int]]:
    """Where the document stands, and every object that the last edit, or one before it, has left, by its number."""
    document, places = -1, dict[int, int]()
    for _ in range(MOST_EDITS):
        before, directory, number = struct.unpack_from("<8xIII", data, edit + 8)
        (size,) = struct.unpack_from("<4xI", data, directory)
        place, end = directory + 8, min(directory + 8 + size, len(data))
        while place + 4 <= end:
            (entry,) = struct.unpack_from("<I", data, place)
            count = min(entry >> 20, (end - place - 4) // 4)
            for n, offset in enumerate(struct.unpack_from(f"<{count}I", data, place + 4)):
                places.setdefault((entry & 0xFFFFF) + n, offset)
            place += 4 + 4 * count
        document = number if document < 0 else document
        if not before:
            break
        edit = before
    return places[document], places


def _texts(data: bytes, slide: int) -> Iterator[tuple[bool, str]]:
    """The texts of a slide that do not stand in the document's list, and whether each is its title."""
    kind = -1
    for type, _, body in _record(data, slide):
        if type == HEADER:
            kind = struct.unpack_from("<I", body)[0]
        elif type in TEXTS:
            yield kind in TITLES, body.decode(TEXTS[type], "replace")


Containers = tuple[tuple[int, int], ...]  # types and instances, the outermost first


def _record(data: bytes, start: int) -> Iterator[tuple[int, Containers, bytes]]:
    """A record and those in it, each with its type, the containers it is in, and its contents (b"" of a container)."""
    size = struct.unpack_from("<I", data, start + 4)[0]
    stack: list[tuple[int, int, Containers]] = [(start, min(start + 8 + size, len(data)), ())]
    while stack:
        start, end, path = stack.pop()
        if start + 8 > end:
            continue
        version, type, size = struct.unpack_from("<HHI", data, start)
        start += 8
        stop = min(start + size, end)
        stack.append((stop, end, path))
        if version & 0xF == CONTAINER:
            yield type, path, b""
            if len(path) < DEEPEST:
                stack.append((start, stop, (*path, (type, version >> 4))))
        else:
            yield type, path, data[start:stop]


def read_xls(source: InputSource) -> Iterator[Article]:
    """A document per row of every visible sheet."""
    import xlrd  # late: only folders with such workbooks pay for it

    where = Where(source.label)
    try:
        with source.seekable() as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            where.refuse(f"the workbook is larger than {LARGEST >> 20} MiB", "split it")
        with xlrd.open_workbook(file_contents=raw, on_demand=True, logfile=_Silence()) as book:
            about = {"author": book.user_name.strip()} if book.user_name.strip() else {}
            for number in range(book.nsheets):
                sheet = book.sheet_by_index(number)
                if sheet.visibility == 0:
                    for article in sheet_articles(sheet.name, _rows(book, sheet)):
                        yield article._replace(metadata={**about, **article.metadata})
                book.unload_sheet(number)
    except DataError:
        raise
    except Exception as error:  # xlrd lets nearly any exception out of a damaged file
        raise source.damaged(error) from None


@contextmanager
def _opened(source: InputSource, where: Where) -> Iterator[Any]:
    """The streams of a file; whatever goes wrong with them is damage."""
    import olefile  # late: only folders with such files pay for it

    try:
        with source.seekable() as file:
            if not olefile.isOleFile(file):
                where.refuse("is not a file of Office from before 2007", "give it the suffix of what it is")
            file.seek(0)
            with olefile.OleFileIO(file) as ole:
                if ole.exists("EncryptedPackage"):
                    where.refuse(*ENCRYPTED)
                yield ole
    except DataError:
        raise
    except BROKEN as error:
        raise source.damaged(error) from None


def _stream(ole: Any, name: str, where: Where) -> bytes:
    if not ole.exists(name):
        where.refuse(f"has no stream {name!r}, so it is damaged or of another program", "save it anew")
    if ole.get_size(name) > LARGEST:
        where.refuse(f"has more than {LARGEST >> 20} MiB of text", "split it")
    data: bytes = ole.openstream(name).read()
    return data


def _properties(ole: Any) -> tuple[str, str]:
    """Title and author, in the code page that the file names."""
    said = ole.get_metadata()
    page = f"cp{said.codepage}" if said.codepage and said.codepage > 0 else "utf-8"
    texts = []
    for raw in (said.title, said.author):
        try:
            texts.append(
                (raw or b"").decode("utf-8" if page in ("cp65001",) else page, "replace").strip("\0 \t\r\n")
            )
        except LookupError:
            texts.append((raw or b"").decode(LIKE_BYTES, "replace").strip("\0 \t\r\n"))
    return texts[0], texts[1]


class _Silence:
    """A log that nobody reads."""

    def write(self, text: str) -> None:
        """Drop a remark."""


def _rows(book: Any, sheet: Any) -> Iterator[Cells]:
    from xlrd import XL_CELL_BOOLEAN, XL_CELL_DATE, XL_CELL_ERROR, xldate_as_datetime

    def text(cell: Any) -> str:
        if cell.ctype == XL_CELL_DATE:
            return cell_text(xldate_as_datetime(cell.value, book.datemode))
        if cell.ctype == XL_CELL_ERROR:
            return ""
        return cell_text(bool(cell.value) if cell.ctype == XL_CELL_BOOLEAN else cell.value)

    return ([text(cell) for cell in sheet.row(number)] for number in range(sheet.nrows))
