"""Texts whose lines count: settings (.yaml, .toml, .ini and the like), logs, subtitles, and JSON and property lists as
lines of paths and values.

Passages end with a line. Of a large log only the beginning and the end are read, which the ledger says. Cost: one pass.
"""

from __future__ import annotations

import html
import re
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any
from xml.parsers.expat import ExpatError

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.outline import BLOCK, Article, line_blocks, numbered_section
from liebig.formats.rows import parse

NAMED = re.compile(
    r"""^["']?(?:title|name)["']?[ \t]*[:=][ \t]*["']?([^"'\n{}\[\]]{1,200})["']?,?[ \t]*$""", re.MULTILINE
)
LOG_END = 1 << 22  # bytes of a log that are read at each end
CHUNK = 1 << 16
LARGEST_PLIST = 1 << 26  # bytes
NUMBERS = 64  # of a list of lists of numbers that are given: nobody asks for the points of a map
CUT = "cut"  # the field that says how much of a log was left out
TITLES = ("title", "name", "subject")
AUTHORS = ("author", "creator")


def parse_settings(text: str) -> Article:
    """Lines as they are; a title or name at the top level is the title."""
    named = NAMED.search(text)
    section = lines_section(text)
    return Article(named[1].strip() if named else "", (section,) if section.paragraphs else ())


def lines_section(text: str, first: int = 1) -> Section:
    return numbered_section("", line_blocks(enumerate(text.split("\n"), first)), "line")


def read_log(source: InputSource) -> Article:
    """The lines of a log: all of a small one, the beginning and the end of a large one."""
    head, tail, left_out, lines_before = _ends(source)
    text, _ = decode_text(head, Where(source.label))
    sections = [lines_section(text)]
    if tail:
        more, _ = decode_text(tail, Where(source.label))
        sections.append(lines_section(more, lines_before + 1))
    cut = (
        {CUT: f"the first and last {LOG_END >> 20} MiB are read; {left_out:,} bytes are not"}
        if left_out
        else {}
    )
    return Article("", tuple(sections), metadata=cut)


def _ends(source: InputSource) -> tuple[bytes, bytes, int, int]:
    """Both ends of a log in whole lines, the bytes between them, and the number of lines before the second."""
    try:
        with source.open() as stream:
            head = stream.read(LOG_END)
            kept: deque[bytes] = deque()
            size = left_out = lines = 0
            while chunk := stream.read(CHUNK):
                kept.append(chunk)
                size += len(chunk)
                if size - len(kept[0]) >= LOG_END:
                    gone = kept.popleft()
                    size -= len(gone)
                    left_out += len(gone)
                    lines += gone.count(b"\n")
    except DAMAGE as error:
        raise source.damaged(error) from None
    rest = b"".join(kept)
    if not left_out:
        return head + rest, b"", 0, 0
    head, _, part = head.rpartition(b"\n")
    lines += head.count(b"\n") + 1
    broken, _, tail = rest.partition(b"\n")
    return head, tail, left_out + len(part) + len(broken), lines + 1


def parse_json(text: str) -> Article:
    """Every value on a line behind its path; JSON with comments, or broken JSON, as the lines it has."""
    try:
        value = parse(text.removeprefix("\ufeff"), Where(""))
    except DataError:
        return parse_settings(text)
    fields = value if isinstance(value, dict) else {}
    texts = {str(key).lower(): field for key, field in fields.items() if isinstance(field, str)}
    title = next((texts[name] for name in TITLES if texts.get(name)), "")
    author = next((texts[name] for name in AUTHORS if texts.get(name)), "")
    blocks = tuple(block for _, block in line_blocks(enumerate(_leaves(value), 1)))
    sections = (Section("", blocks),) if blocks else ()
    return Article(title[:200], sections, metadata={"author": author} if author else {})


def _leaves(value: Any) -> Iterator[str]:
    """`a.b: value` for every value that is not a list or an object; values of one list share a line.

    Of the lists of numbers in a list, such as the points of a border, the first are given, up to NUMBERS numbers.
    """
    stack: list[tuple[str, Any, list[int]]] = [("", value, [])]  # the last: numbers given of the outer list
    while stack:
        path, value, given = stack.pop()
        if isinstance(value, dict):
            stack += [
                (f"{path}.{key}" if path else str(key), inner, []) for key, inner in reversed(value.items())
            ]
        elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
            given = given or [0]
            stack += [(path, inner, given) for inner in reversed(value)]
        else:
            values = value if isinstance(value, list) else [value]
            if given and isinstance(value, list) and all(isinstance(inner, int | float) for inner in value):
                if given[0] >= NUMBERS:
                    continue
                given[0] += len(value)
            told = ", ".join(str(inner) for inner in values if inner not in (None, ""))
            if told:
                yield f"{path}: {told}" if path else told


CUE = re.compile(r"(?:\d+:)?\d+:\d\d[.,]\d{1,3}[ \t]*(?:-->|,)[ \t]*(?:\d+:)?\d+:\d\d[.,]\d{1,3}.*")
MARKUP = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}")


def parse_subtitles(text: str) -> Article:
    """The words of subtitles, without numbers, times and marks; several cues make a paragraph."""
    lines: list[tuple[int, str]] = []
    skipping, begins, last = False, True, ""
    rows = [line.strip() for line in text.split("\n")]
    for number, (line, below) in enumerate(zip(rows, (*rows[1:], "")), 1):
        is_name = begins and CUE.fullmatch(below) is not None
        if not line:
            skipping = False
        elif begins and line.startswith(("WEBVTT", "NOTE", "STYLE", "REGION")):
            skipping = True
        elif not (skipping or is_name or line.isdecimal() or CUE.fullmatch(line)):
            words = html.unescape(MARKUP.sub("", line)).strip()
            if words and words != last:  # rolling captions repeat a line
                lines.append((number, words))
            last = words
        begins = not line
    section = numbered_section("", _joined(lines), "line")
    return Article("", (section,) if section.paragraphs else ())


def _joined(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines as paragraphs of about a passage, each with the number of its first line."""
    block: list[str] = []
    first = size = 0
    for number, words in lines:
        is_full = size > BLOCK and block[-1].endswith((".", "!", "?", "…"))
        if is_full or size > 4 * BLOCK:
            yield first, " ".join(block)
            block, size = [], 0
        first = first if block else number
        block.append(words)
        size += len(words) + 1
    if block:
        yield first, " ".join(block)


def read_plist(source: InputSource) -> Article:
    """A property list of macOS, binary or XML: a line per value behind its path."""
    import plistlib

    try:
        with source.open() as stream:
            value = plistlib.loads(stream.read(LARGEST_PLIST))
    except (*DAMAGE, ExpatError, OverflowError, IndexError, struct.error, RecursionError) as error:
        raise source.damaged(error) from None
    blocks = tuple(block for _, block in line_blocks(enumerate(_leaves(value), 1)))
    return Article("", (Section("", blocks),) if blocks else ())
