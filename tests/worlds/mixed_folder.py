"""A folder as people have them, of more than 40 kinds and 60 files, with a question for each kind.

    python -m tests.worlds.mixed_folder DIR

writes it. Every file answers one question; some files cannot be read, and `LISTED` says which and why.
"""

from __future__ import annotations

import bz2
import email.message
import gzip
import io
import json
import lzma
import plistlib
import struct
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/"'
)


class Asked(NamedTuple):
    """A kind of file: the question, and the document that answers it."""

    kind: str
    question: str
    doc: str


def archive_of(parts: dict[str, str | bytes]) -> bytes:
    """A .zip of these parts, the same bytes every time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 5, 1, 12, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tar_of(parts: dict[str, bytes], mode: str = "w:gz") -> bytes:
    """A .tar of these parts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def pdf(pages: list[str], title: str = "", author: str = "") -> bytes:
    """A PDF with a line of text per page; a page without text has nothing on it."""
    import pypdf
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(612, 792)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b"")
        page[NameObject("/Contents")] = stream
    writer.add_metadata({key: value for key, value in (("/Title", title), ("/Author", author)) if value})
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def links(*targets: tuple[str, str]) -> str:
    """The links of a part of an Office document: kinds and targets, numbered from rId1."""
    rows = "".join(
        f'<Relationship Id="rId{n}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{RELATIONS}">{rows}</Relationships>'


def properties(title: str, author: str) -> str:
    """docProps/core.xml."""
    fields = f"<dc:title>{title}</dc:title><dc:creator>{author}</dc:creator>"
    return f'<c:core xmlns:c="c" xmlns:dc="http://purl.org/dc/elements/1.1/">{fields}</c:core>'


def docx(paragraphs: list[str], title: str, author: str) -> bytes:
    """A Word document."""
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    return archive_of(
        {
            "_rels/.rels": links(("officeDocument", "word/document.xml")),
            "word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
            "docProps/core.xml": properties(title, author),
        }
    )


def pptx(slides: list[tuple[str, str, str]], title: str, author: str) -> bytes:
    """A presentation of slides with a title, a text and notes."""

    def shape(kind: str, text: str) -> str:
        place = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
        return f"<p:sp>{place}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"

    names = f'xmlns:p="{SLIDES}" xmlns:a="{DRAWING}" xmlns:r="{OFFICE}"'
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "_rels/.rels": links(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {names}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": links(
            *(("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1))
        ),
        "docProps/core.xml": properties(title, author),
    }
    for n, (heading, text, notes) in enumerate(slides, 1):
        shapes = shape("title", heading) + shape("body", text)
        parts[f"ppt/slides/slide{n}.xml"] = (
            f"<p:sld {names}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
        parts[f"ppt/slides/_rels/slide{n}.xml.rels"] = links(("notesSlide", f"../notesSlides/notes{n}.xml"))
        notes_shapes = shape("body", notes) + shape("sldNum", str(n))
        parts[f"ppt/notesSlides/notes{n}.xml"] = (
            f"<p:notes {names}><p:spTree>{notes_shapes}</p:spTree></p:notes>"
        )
    return archive_of(parts)


def xlsx(sheets: dict[str, list[list[object]]]) -> bytes:
    """A workbook."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def odf(kind: str, body: str, title: str = "", author: str = "") -> bytes:
    """An OpenDocument file."""
    meta = f"<dc:title>{title}</dc:title><dc:creator>{author}</dc:creator>"
    body = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    return archive_of(
        {
            "content.xml": f"<office:document-content {ODF}>{body}</office:document-content>",
            "meta.xml": f"<office:document-meta {ODF}><office:meta>{meta}</office:meta></office:document-meta>",
        }
    )


def epub(title: str, author: str, text: str) -> bytes:
    """A book of one chapter."""
    container = '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    fields = f"<dc:title>{title}</dc:title><dc:creator>{author}</dc:creator>"
    book = (
        f'<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>{fields}</metadata>'
        '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    chapter = f"<html><body><h1>First</h1><p>{text}</p></body></html>"
    return archive_of({"META-INF/container.xml": container, "book.opf": book, "a.xhtml": chapter})


def message(subject: str, sender: str, text: str, attached: tuple[str, bytes] | None = None) -> bytes:
    """A mail message."""
    made = email.message.EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, sender, "office@example.org"
    made["Date"] = "Tue, 05 Mar 2024 09:30:00 +0000"
    made.set_content(text)
    if attached:
        name, data = attached
        made.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
        boundary = "=====same-every-time====="
        made.set_boundary(boundary)
    return made.as_bytes()


def outlook(properties: dict[str, str]) -> bytes:
    """A .msg file: a stream per property."""
    return ole({f"__substg1.0_{name}001F": text.encode("utf-16-le") for name, text in properties.items()})


def ole(contents: dict[str, bytes]) -> bytes:
    """An OLE container (version 3, sectors of 512 bytes).

    Streams are padded to 4,096 bytes, from which on they are kept in sectors of their own and not in a shared one.
    """
    streams = {name: data.ljust(4096, b"\0") for name, data in contents.items()}
    free, end, fat_mark = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
    directories = (len(streams) + 1 + 3) // 4
    fat, sectors = [fat_mark, *range(2, directories + 1), end], list[bytes]()
    entries = [("Root Entry", 5, 1, end, 0)]
    for name, data in streams.items():
        count = (len(data) + 511) // 512
        entries.append((name, 2, free, len(fat), len(data)))
        fat += [*range(len(fat) + 1, len(fat) + count), end]
        sectors += [data[at : at + 512].ljust(512, b"\0") for at in range(0, len(data), 512)]
    table = b""
    for number in range(4 * directories):
        if number >= len(entries):
            table += b"\0" * 68 + struct.pack("<III", free, free, free) + b"\0" * 48
            continue
        name, kind, child, start, size = entries[number]
        raw = (name + "\0").encode("utf-16-le")
        right = number + 1 if 0 < number < len(entries) - 1 else free
        table += (
            raw.ljust(64, b"\0")
            + struct.pack("<HBB", len(raw), kind, 1)
            + struct.pack("<III", free, right, child)
        )
        table += b"\0" * 36 + struct.pack("<IQ", start, size)
    assert len(fat) <= 128, "one sector of the allocation table is written"
    allocation = struct.pack("<128I", *fat, *[free] * (128 - len(fat)))
    head = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        + b"\0" * 16
        + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6)
        + b"\0" * 6
    )
    head += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, end, 0, end, 0) + struct.pack(
        "<109I", 0, *[free] * 108
    )
    return head + allocation + table + b"".join(sectors)


def doc(text: str, flags: int = 0) -> bytes:
    """A Word 97 file of two pieces: the first half in Windows-1252, the second in UTF-16."""
    half = len(text) // 2
    first, second = text[:half].encode("cp1252"), text[half:].encode("utf-16-le")
    header = bytearray(0x400)
    struct.pack_into("<H", header, 0, 0xA5EC)
    struct.pack_into("<H", header, 0x0A, flags)
    struct.pack_into("<i", header, 0x4C, len(text))
    places = struct.pack("<3I", 0, half, len(text))
    for at in (2 * 0x400 | 0x40000000, 0x400 + len(first)):
        places += struct.pack("<HIH", 0, at, 0)
    table = b"\x01\x02\0ab" + b"\x02" + struct.pack("<I", len(places)) + places
    struct.pack_into("<II", header, 0x1A2, 0, len(table))
    return ole({"0Table": table, "WordDocument": bytes(header) + first + second})


def ppt(slides: list[tuple[str, str]]) -> bytes:
    """A PowerPoint 97 file: titles in the document's list, texts on the slides; the first edit left another."""

    def record(type: int, data: bytes, version: int = 0) -> bytes:
        return struct.pack("<HHI", version, type, len(data)) + data

    def directory(first: int, places: list[int]) -> bytes:
        return record(6002, struct.pack(f"<I{len(places)}I", first | len(places) << 20, *places))

    listed = b"".join(
        record(1011, struct.pack("<I16x", 2 + n)) + record(3999, struct.pack("<I", 0))
        + record(4000, title.encode("utf-16-le"))
        for n, (title, _) in enumerate(slides)
    )  # fmt: skip
    data = record(1000, record(4080, listed, 0xF), 0xF)
    places, before = [0], 0
    for text in ("an older text", *(text for _, text in slides)):
        places.append(len(data))
        data += record(1006, record(3999, struct.pack("<I", 4)) + record(4008, text.encode("cp1252")), 0xF)
    for numbers, first in ((places[:2], 1), (places[2:], 2)):
        at = len(data)
        data += directory(first, numbers)
        before, edit = len(data), before
        data += record(4085, struct.pack("<5I8x", 0, 0, edit, at, 1))
    user = record(0x0FF6, struct.pack("<III", 0x14, 0xE391C05F, before))
    return ole({"Current User": user, "PowerPoint Document": data})


def xls(sheet: str, rows: list[list[str]]) -> bytes:
    """An Excel 97 file of one sheet."""

    def record(type: int, data: bytes) -> bytes:
        return struct.pack("<HH", type, len(data)) + data

    name = struct.pack("<BB", len(sheet), 0) + sheet.encode("latin-1")
    begin = record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 1997, 0, 0)) + record(
        0x42, struct.pack("<H", 1200)
    )
    size = len(begin) + 4 + 6 + len(name) + 4
    begin += record(0x85, struct.pack("<IBB", size, 0, 0) + name) + record(0x0A, b"")
    cells = b"".join(
        record(0x204, struct.pack("<HHHHB", y, x, 0, len(cell), 1) + cell.encode("utf-16-le"))
        for y, row in enumerate(rows)
        for x, cell in enumerate(row)
    )
    body = record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 1997, 0, 0)) + cells + record(0x0A, b"")
    return ole({"Workbook": begin + body})


def table_of(rows: list[tuple[str, ...]], delimiter: str) -> bytes:
    """A table of text."""
    return "".join(delimiter.join(row) + "\n" for row in rows).encode()


def mht(title: str, body: str) -> bytes:
    """A web page as browsers save it."""
    return (
        f"Subject: {title}\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\n"
        f"Content-Type: text/html; charset=utf-8\r\n\r\n<html><title>{title}</title>{body}</html>\r\n--b\r\n"
        "Content-Type: image/png\r\nContent-Location: a.png\r\n\r\nx\r\n--b--\r\n"
    ).encode()


CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VEVENT
DTSTART:20270309T190000Z
SUMMARY:Bell ringing
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Vienna:20270514T143000
UID:1234
SUMMARY:Open forge
DESCRIPTION:The blacksmith shows how to forge
  a nail\\, and everybody may try.
ORGANIZER;CN="Ann Smith":mailto:ann@example.org
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
END:VCALENDAR
"""
CONTACTS = """BEGIN:VCARD
VERSION:3.0
FN:Ines Moor
TEL;TYPE=home:+43 1 234
END:VCARD
BEGIN:VCARD
N:Reed;Paul;;;
EMAIL:paul@example.org
NOTE:Tunes bagpipes and hurdy-gurdies.
PHOTO;ENCODING=b:AAAA
END:VCARD
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Rainfall of the valley\n", "Gauges are read at dawn."]},
        {
            "cell_type": "code",
            "source": ["wettest = rain.groupby('month').sum().idxmax()\n", "wettest"],
            "outputs": [{"data": {"text/plain": ["'the wettest month was November'"]}}],
        },
    ],
    "metadata": {"authors": [{"name": "Ida Lund"}]},
    "nbformat": 4,
}
PYTHON = '''"""Tools for tuning pianos."""

import math

CONCERT_PITCH = 440.0


class Tuner:
    """Tunes the strings of a piano."""

    def stretch(self, octave: int) -> float:
        """Stretch an octave, because thick strings sound sharp."""
        return 2 ** (octave * 1.001)


def beat_frequency(first: float, second: float) -> float:
    """Count how often two detuned strings beat in a second."""
    return math.fabs(first - second)
'''
JAVASCRIPT = """// Opens and closes the greenhouse.
import { motor } from './motor.js';

/** Close the roof vents when the anemometer reports a storm. */
export function closeVents(anemometer) {
  if (anemometer.speed > 15) motor.close();
}

export const openVents = (hours) => motor.open(hours);
"""
JAVA = """package org.example.bakery;

/** Schedules the ovens of a bakery. */
public class OvenSchedule {
    /** Preheat the stone oven before the sourdough is proofed. */
    public void preheat(int minutes) {
        oven.start(minutes);
    }
}
"""
C = """#include <stdio.h>

/* Debounce the switch of the lighthouse lamp. */
static int debounce(int pin)
{
    return read_pin(pin) & read_pin(pin);
}
"""
GO = """package ferry

// AssignLanes puts lorries into the outer lanes of the ferry deck.
func AssignLanes(lorries []Lorry) []Lane {
	return outer(lorries)
}
"""
RUST = """/// Throttle the turbine when the penstock pressure surges.
pub fn throttle_turbine(pressure: f64) -> f64 {
    pressure.min(4.0)
}
"""
RUBY = """# Books of the village library.
class Loan
  # Renew a loan unless somebody has reserved the volume.
  def renew(volume)
    volume.reserved? ? nil : extend(volume)
  end
end
"""
SHELL = """#!/bin/bash
# Rotate the tape cartridges of the archive every Friday.
rotate_tapes() {
  mt -f /dev/st0 eject
}
rotate_tapes
"""
SQL = """-- Orchard trees with their grafting years.
CREATE TABLE orchard_trees (
  cultivar TEXT,  -- e.g. Boskoop
  grafted_year INTEGER
);
"""
TYPESCRIPT = """/** Convert knots to the beaufort scale for sailors. */
export function toBeaufort(knots: number): number {
  return Math.round(Math.cbrt(knots));
}
"""
CPP = """#include <vector>

namespace kiln {
// Ramp the kiln slowly so that the glaze does not crack.
double ramp(double target) {
    return target / 60.0;
}
}
"""
MAN = r""".TH FERMENT 1 "March 2024"
.SH NAME
ferment \- control the temperature of a cider vat
.SH SYNOPSIS
.B ferment
[\fB\-c\fR \fIdegrees\fR]
.SH DESCRIPTION
.B ferment
cools the cider vat until the yeast settles.
.TP
.B \-c
Cool the vat to this many degrees.
"""
TEX = r"""\documentclass{article}
\title{On the Flight of Swifts}
\author{Maria Keller}
\begin{document}
\maketitle
\section{Sleep}
% a comment that nobody reads
Swifts \emph{sleep on the wing} at great height~\cite{b}, as transmitters showed.
\end{document}
"""
ORG = """#+TITLE: Beekeeping diary
#+AUTHOR: Jon Bell
* TODO Spring :bees:
:PROPERTIES:
:END:
The queen of the third hive was marked with blue paint.
"""
ADOC = """= Handbook of the Cable Car
Rosa Alm <rosa@example.org>

== Rescue

In an evacuation the gondola is lowered with a *winch* from the pylon.
"""
RST = """Sundial manual
==============

Gnomon
------

The gnomon of a sundial must point at the celestial pole.
"""
XML = """<?xml version="1.0"?>
<museum>
  <title>Catalogue of the clock museum</title>
  <piece id="7"><maker>Harrison</maker><remark>A longitude chronometer with a grasshopper escapement.</remark></piece>
</museum>
"""
YAML = """name: aquarium controller
pumps:
  - location: jellyfish tank
    flow: gentle circular current for jellyfish
"""
TOML = """[heating]
# The chapel is heated only for the organ.
chapel_organ_minimum_celsius = 12
"""
INI = """[turnstile]
; the stadium turnstile opens for season tickets
season_ticket_gate = 4
"""
RTF = (
    r"{\rtf1\ansi{\info{\title Minutes of the choir}{\author Tom Reed}}\pard The choir will sing a requiem by Faur\'e9"
    r" in the abbey.\par Tenors are needed.\par}"
)
LOG = "".join(f"2024-03-0{n} 03:00:00 INFO backup of volume {n} done\n" for n in range(1, 6)) + (
    "2024-03-06 03:00:01 ERROR lighthouse-gateway lost its heartbeat to the buoy\n"
)
MBOX = (
    b"From a@example.org Tue Mar  5 09:30:00 2024\n"
    + message("Keys to the boathouse", "Ann <a@example.org>", "The boathouse keys hang behind the stove.\n")
    + b"\nFrom b@example.org Wed Mar  6 09:30:00 2024\n"
    + message("Lost umbrella", "Bob <b@example.org>", "A tartan umbrella was left in the cloakroom.\n")
)
FILLER = {
    "trains": "The night train to the coast leaves from platform nine after the mail van is loaded.",
    "pottery": "Wedging clay drives the air out of it before it is thrown on the wheel.",
    "chess": "The opposition decides endgames of king and pawn.",
    "cheese": "Alpine cheese ripens on spruce boards that take up its moisture.",
    "weaving": "A twill is woven by lifting the warp in steps.",
    "geysers": "A geyser erupts when superheated water flashes into steam.",
    "violins": "The sound post stands behind the foot of the bridge.",
    "falconry": "A falcon is weighed before it is flown at the lure.",
    "salt": "Salt pans are raked when the brine has crystallised in the sun.",
    "bells": "A bell is tuned by turning metal off its inside.",
    "ice": "Lake ice is cut with long saws and stored in sawdust.",
    "maps": "Contour lines lie close where a slope is steep.",
    "dyes": "Woad gives blue only after it has met the air.",
    "knots": "A bowline does not slip and can be untied after a load.",
}


def contents() -> dict[str, bytes]:
    """Every file with its bytes, by its path."""
    texts = {
        "notes/compost.txt": "Compost\n\nTurn the compost heap every fortnight so that it stays warm.\n",
        "notes/mushrooms.md": "# Mushrooms\n\nChanterelles grow near old beeches and smell of apricots.\n",
        "notes/sundial.rst": RST,
        "notes/bees.org": ORG,
        "notes/cable-car.adoc": ADOC,
        "notes/plain.text": "Skates are sharpened on a stone with a hollow of half an inch.\n",
        "web/harbour.html": "<html><head><title>Harbour</title></head><body><main><h1>Harbour</h1>"
        "<p>The drawbridge of the harbour lifts at every full hour.</p></main></body></html>",
        "web/old.htm": "<html><body><p>Visitors of the planetarium reserve reclining seats.</p></body></html>",
        "README": "This folder belongs to the cooperative dairy of Hillside.\n",
        "LICENSE": "Permission to photograph the tapestry is granted to pupils.\n",
        "code/piano.py": PYTHON,
        "code/greenhouse.js": JAVASCRIPT,
        "code/OvenSchedule.java": JAVA,
        "code/lamp.c": C,
        "code/ferry.go": GO,
        "code/turbine.rs": RUST,
        "code/loan.rb": RUBY,
        "code/tapes.sh": SHELL,
        "code/orchard.sql": SQL,
        "code/wind.ts": TYPESCRIPT,
        "code/kiln.cpp": CPP,
        "analysis/rain.ipynb": json.dumps(NOTEBOOK, indent=1),
        "paper/swifts.tex": TEX,
        "man/ferment.1": MAN,
        "settings/aquarium.yaml": YAML,
        "settings/heating.toml": TOML,
        "settings/turnstile.ini": INI,
        "settings/elevator.json": json.dumps(
            {"name": "elevator", "doors": {"hold": "the doors stay open longer for wheelchairs"}}, indent=2
        ),
        "data/museum.xml": XML,
        "data/stock.csv": "article,shelf,remark\nbeeswax,C4,melts above sixty degrees\n"
        "turpentine,F1,keep from sparks\n",
        "data/staff.tsv": "name\tduty\tdescription\nOlga\tbell ringer\tclimbs the tower before sunrise\n"
        "Piet\tmiller\tdresses the millstones\n",
        "data/tickets.jsonl": '{"ticket": 71, "body": "The espresso machine leaks at the gasket."}\n'
        '{"ticket": 72, "body": "The revolving door squeaks."}\n',
        "data/birds.json": json.dumps(
            [
                {"species": "kingfisher", "habit": "digs its burrow into river banks of loam"},
                {"species": "dipper", "habit": "walks under water against the current"},
            ]
        ),
        "logs/gateway.log": LOG,
        "dates/village.ics": CALENDAR,
        "dates/people.vcf": CONTACTS,
        "film/beavers.srt": "1\n00:00:01,000 --> 00:00:03,000\n<i>Beavers build</i> a lodge\n\n2\n00:00:03,100 --> "
        "00:00:05,000\nof peeled willow branches.\n",
        "film/owls.vtt": "WEBVTT\n\n00:01.000 --> 00:04.000\nThe barn owl hunts voles by ear alone.\n",
        "code/fix.patch": "--- a/dam.c\n+++ b/dam.c\n@@ -1 +1 @@\n-open_spillway(3);\n+open_spillway(4); "
        "/* four gates since the flood */\n",
        "office/choir.rtf": RTF,
        "run/backup": "#!/usr/bin/env python3\n\ndef seal_vault():\n"
        "    '''Seal the seed vault after each delivery.'''\n",
    }
    made = {path: text.encode() for path, text in texts.items()}
    made |= {f"filler/{name}.md": f"# {name.title()}\n\n{text}\n".encode() for name, text in FILLER.items()}
    made |= {
        "packed/tides.txt.gz": gzip.compress(b"Spring tides follow the new moon by two days.\n", mtime=0),
        "packed/moss.md.xz": lzma.compress(
            b"# Moss\n\nSphagnum moss holds twenty times its weight in water.\n"
        ),
        "packed/glass.txt.bz2": bz2.compress(b"Molten glass is gathered on a blowpipe and marvered.\n"),
        "packed/leather.txt.zst": _zst(b"Leather is tanned with oak bark for a year.\n"),
        "packed/quarry.zip": archive_of(
            {
                "slate.md": "# Slate\n\nSlate is split along its cleavage with a broad chisel.\n",
                "b.md": "# B\n\nBasalt.\n",
            }
        ),
        "packed/vineyard.tar.gz": tar_of(
            {"riesling.txt": b"Riesling on steep slate is harvested with a monorail.\n", "x.txt": b"Pinot.\n"}
        ),
        "settings/metronome.plist": plistlib.dumps(
            {"metronome": {"tempo of the polonaise": 92}}, fmt=plistlib.FMT_BINARY
        ),
        "web/saved.mht": mht(
            "Sundials", "<main><p>The noon mark of the abbey is carved in marble.</p></main>"
        ),
        "office/minutes.doc": doc("Minutes of the allotment club\rThe hosepipe ban of July was lifted.\r"),
        "office/kites.ppt": ppt(
            [("Kites", "Box kites lift a camera."), ("Tails", "A tail steadies a kite in gusts.")]
        ),
        "office/harvest.xls": xls(
            "Harvest", [["crop", "remark"], ["quince", "The quince was made into jelly for the fair."]]
        ),
        "office/contract.docx": docx(
            ["The lessee of the windmill repairs the sails at his own cost."],
            "Lease of the windmill",
            "Nora Vane",
        ),
        "office/plan.pptx": pptx(
            [
                ("Opening", "Welcome to the regatta.", "Greet the sponsors."),
                ("Safety", "Rescue boats wait at the weir.", "Mention the flare pistol."),
            ],
            "Regatta plan",
            "Eva Stone",
        ),
        "office/budget.xlsx": xlsx(
            {
                "Costs": [
                    ["item", "supplier", "euros"],
                    ["fireworks", "Comet & Sons", 1250],
                    ["lanterns", "Glow", 90],
                ],
                "Guests": [
                    ["guest", "diet"],
                    ["Ambassador Lindqvist", "no shellfish"],
                    ["Dr Okafor", "vegan"],
                ],
            }
        ),
        "office/letter.odt": odf(
            "text",
            '<text:h text:outline-level="1">Letter</text:h><text:p>The weathervane was struck by <text:span>lightning'
            "</text:span> and will be gilded again.</text:p>",
            "Letter to the parish",
            "Hugo Brandt",
        ),
        "office/talk.odp": odf(
            "presentation",
            '<draw:page draw:name="p1"><draw:frame><draw:text-box><text:p>Glaciers</text:p></draw:text-box>'
            "</draw:frame>"
            '</draw:page><draw:page draw:name="p2"><text:p>Moraines show how far a glacier once reached.</text:p>'
            "</draw:page>",
        ),
        "office/seeds.ods": odf(
            "spreadsheet",
            '<table:table table:name="Seeds">'
            + "".join(
                "<table:table-row>"
                + "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row)
                + "</table:table-row>"
                for row in (
                    ("plant", "sowing"),
                    ("parsnip", "sow under fleece in February"),
                    ("leek", "April"),
                )
            )
            + "</table:table>",
        ),
        "office/paper.pdf": pdf(
            [
                f"Abstract. {' '.join(FILLER.values())}",
                "Drained peat bogs release carbon dioxide for decades.",
            ],
            "Peat report",
            "Lena Moor",
        ),
        "office/novel.epub": epub(
            "The Lamplighter", "Otto Fern", "The lamplighter kept a tame jackdaw in his attic."
        ),
        "mail/ferry.eml": message(
            "Ferry timetable",
            "Kim Dale <kim@example.org>",
            "The last ferry waits for the theatre audience.\n",
            ("lost.txt", b"A monocle was found on the upper deck.\n"),
        ),
        "mail/village.mbox": MBOX,
        "mail/offer.msg": outlook(
            {
                "0037": "Offer for the carousel",
                "0C1A": "Paula Winter",
                "1000": "We offer to regild the carousel horses.\r\n",
            }
        ),
        "old/latin.txt": "Die Mühle\n\nDas Wehr der Mühle wird im März gespült.\n".encode("latin-1"),
        "old/utf16.txt": "Sluice\n\nThe sluice keeper lives above the lock.\n".encode("utf-16"),
    }
    return made


def _zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


LISTED = {
    "broken/photo.png": (b"\x89PNG\r\n\x1a\n\0\0", "picture"),
    "broken/song.mp3": (b"ID3\x03\0\0", "audio or video"),
    "broken/empty.txt": (b"", "empty"),
    "broken/blank.md": (b"\n \n", "no text found"),
    "broken/scan.pdf": (pdf(["", ""]), "no text found"),
    "broken/damaged.pdf": (b"%PDF-1.4 rubbish", "cannot be read completely"),
    "broken/damaged.docx": (b"PK\x03\x04 rubbish", "cannot be read completely"),
    "broken/locked.docx": (ole({"EncryptedPackage": b"\x01"}), "is encrypted"),
    "broken/old.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "cannot be read completely"),
    "broken/tool.exe": (b"MZ\x90\0\x03\0\0\0", "a program"),
    "broken/state.bin": (b"\x01\x02\0\x03", "binary"),
    "broken/papers.7z": (b"7z\xbc\xaf\x27\x1c\0\x04", "an archive that is not read"),
    "broken/places.sqlite": (b"SQLite format 3\0\x10", "a database"),
    "broken/cut.txt.gz": (gzip.compress(b"cut off " * 500, mtime=0)[:-20], "cannot be read completely"),
    "broken/entities.xml": (
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        "the file declares XML entities, which are never expanded",
    ),
}
ASKED = [
    Asked("txt", "How often should the compost heap be turned?", "notes/compost.txt"),
    Asked("md", "Which mushrooms smell of apricots?", "notes/mushrooms.md"),
    Asked("rst", "Where must the gnomon of a sundial point?", "notes/sundial.rst"),
    Asked("org", "How was the queen of the third hive marked?", "notes/bees.org"),
    Asked("adoc", "How is a gondola lowered in an evacuation?", "notes/cable-car.adoc"),
    Asked("text", "On what are skates sharpened?", "notes/plain.text"),
    Asked("html", "When does the drawbridge of the harbour lift?", "web/harbour.html"),
    Asked("htm", "Which seats do visitors of the planetarium reserve?", "web/old.htm"),
    Asked("no suffix", "Who does this folder belong to, which dairy?", "README"),
    Asked("licence", "Who may photograph the tapestry?", "LICENSE"),
    Asked("python function", "count how often two detuned strings beat", "code/piano.py:beat_frequency"),
    Asked("python method", "stretch an octave of thick piano strings", "code/piano.py:Tuner.stretch"),
    Asked("javascript", "close the roof vents in a storm", "code/greenhouse.js:closeVents"),
    Asked(
        "java",
        "preheat the stone oven before proofing sourdough",
        "code/OvenSchedule.java:OvenSchedule.preheat",
    ),
    Asked("c", "debounce the switch of the lighthouse lamp", "code/lamp.c:debounce"),
    Asked("go", "put lorries into the outer lanes of the ferry deck", "code/ferry.go:AssignLanes"),
    Asked(
        "rust", "throttle the turbine when the penstock pressure surges", "code/turbine.rs:throttle_turbine"
    ),
    Asked("ruby", "renew a loan unless the volume is reserved", "code/loan.rb:Loan.renew"),
    Asked("shell", "rotate the tape cartridges every Friday", "code/tapes.sh:rotate_tapes"),
    Asked("sql", "table of orchard trees with their grafting years", "code/orchard.sql:orchard_trees"),
    Asked("typescript", "convert knots to the beaufort scale", "code/wind.ts:toBeaufort"),
    Asked("c++", "ramp the kiln slowly so that the glaze does not crack", "code/kiln.cpp:ramp"),
    Asked("script without suffix", "seal the seed vault after each delivery", "run/backup:seal_vault"),
    Asked("ipynb", "Which was the wettest month of the valley?", "analysis/rain.ipynb"),
    Asked("tex", "Do swifts sleep on the wing?", "paper/swifts.tex"),
    Asked("man", "cool a cider vat until the yeast settles", "man/ferment.1"),
    Asked("yaml", "flow of the pump in the jellyfish tank", "settings/aquarium.yaml"),
    Asked("toml", "minimum temperature of the chapel organ", "settings/heating.toml"),
    Asked("ini", "stadium turnstile for season tickets", "settings/turnstile.ini"),
    Asked("json object", "How long do elevator doors stay open for wheelchairs?", "settings/elevator.json"),
    Asked("xml", "longitude chronometer with a grasshopper escapement", "data/museum.xml"),
    Asked("csv", "Above how many degrees does beeswax melt?", "data/stock.csv:1"),
    Asked("tsv", "Who dresses the millstones?", "data/staff.tsv:2"),
    Asked("jsonl", "Where does the espresso machine leak?", "data/tickets.jsonl:1"),
    Asked("json array", "Which bird walks under water?", "data/birds.json:2"),
    Asked("log", "Which gateway lost its heartbeat to the buoy?", "logs/gateway.log"),
    Asked("rtf", "What will the choir sing in the abbey?", "office/choir.rtf"),
    Asked("gz", "When do spring tides follow the new moon?", "packed/tides.txt"),
    Asked("xz", "How much water does sphagnum moss hold?", "packed/moss.md"),
    Asked("bz2", "On what is molten glass gathered?", "packed/glass.txt"),
    Asked("zst", "With what is leather tanned?", "packed/leather.txt"),
    Asked("zip", "How is slate split along its cleavage?", "packed/quarry.zip/slate.md"),
    Asked("tar", "How is riesling on steep slate harvested?", "packed/vineyard.tar.gz/riesling.txt"),
    Asked("docx", "Who repairs the sails of the windmill?", "office/contract.docx"),
    Asked("pptx", "Where do rescue boats wait at the regatta?", "office/plan.pptx"),
    Asked("xlsx", "Who supplies the fireworks?", "office/budget.xlsx:Costs:2"),
    Asked("second sheet", "Which guest eats no shellfish?", "office/budget.xlsx:Guests:2"),
    Asked("odt", "What happened to the weathervane in lightning?", "office/letter.odt"),
    Asked("odp", "What do moraines show about a glacier?", "office/talk.odp"),
    Asked("ods", "When are parsnips sown under fleece?", "office/seeds.ods:Seeds:2"),
    Asked("pdf", "What do drained peat bogs release?", "office/paper.pdf"),
    Asked("epub", "Which tame bird did the lamplighter keep?", "office/novel.epub"),
    Asked("eml", "For whom does the last ferry wait?", "mail/ferry.eml"),
    Asked("attachment", "Where was a monocle found?", "mail/ferry.eml"),
    Asked("mbox", "Where do the boathouse keys hang?", "mail/village.mbox:1"),
    Asked("doc", "When was the hosepipe ban lifted?", "office/minutes.doc"),
    Asked("ppt", "What steadies a kite in gusts?", "office/kites.ppt"),
    Asked("xls", "What was the quince made into?", "office/harvest.xls:Harvest:2"),
    Asked("ics", "When does the blacksmith show how to forge a nail?", "dates/village.ics:event-8"),
    Asked("vcf", "Who tunes bagpipes?", "dates/people.vcf:contact-7"),
    Asked("srt", "Of what do beavers build their lodge?", "film/beavers.srt"),
    Asked("vtt", "How does the barn owl hunt voles?", "film/owls.vtt"),
    Asked("patch", "open four gates of the spillway since the flood", "code/fix.patch"),
    Asked("plist", "tempo of the polonaise on the metronome", "settings/metronome.plist"),
    Asked("mht", "Where is the noon mark carved in marble?", "web/saved.mht"),
    Asked("msg", "Who offers to regild the carousel horses?", "mail/offer.msg"),
    Asked("latin-1", "Wann wird das Wehr der Mühle gespült?", "old/latin.txt"),
    Asked("utf-16", "Where does the sluice keeper live?", "old/utf16.txt"),
]
PLACES = {  # the page, slide or line that the hit of a question says
    "pdf": ("page", "2"),
    "pptx": ("slide", "2"),
    "odp": ("slide", "2"),
    "python function": ("line", "16"),
    "rst": ("line", "7"),
    "csv": ("line", "2"),
    "md": ("line", "3"),
    "java": ("line", "5"),
    "log": ("line", "6"),
    "xml": ("line", "3"),
}


def write(folder: Path) -> Path:
    """The folder on disk."""
    for path, data in [*contents().items(), *((path, data) for path, (data, _) in LISTED.items())]:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
