"""Rich text (.rtf): paragraphs under their headings, with title and author where the file says them.

One pass over its words, groups and characters. A group begins with the word that says what it holds: what is no text
(fonts, pictures, headers, fields' commands, anything optional) is skipped. Notes follow the paragraph they are of.
Bytes are in the code page of their font, and of a character given by its number the replacement for old programs is
left out.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace

from liebig.base.errors import DataError
from liebig.formats.outline import Article, Outline

LARGEST = 1 << 26
TOKEN = re.compile(r"\\([a-zA-Z]{1,32})(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\(.|\n)|([{}])|([^\\{}]+)|\\")
# fmt: off
SKIPPED = frozenset((
    "fonttbl", "colortbl", "stylesheet", "info", "pict", "header", "headerl", "headerr", "headerf", "footer", "footerl",
    "footerr", "footerf", "annotation", "fldinst", "nonshppict", "listtext", "pntext", "list", "shprslt",
    "sp", "xe", "tc", "nonesttables", "objdata", "objclass", "objname", "revtbl", "filetbl", "bkmkstart", "bkmkend",
))
ENDS = frozenset(("par", "sect", "page", "row", "nestrow", "column"))
SIGNS = {
    "tab": "\t", "cell": " | ", "nestcell": " | ", "line": "\n", "emdash": "—", "endash": "–", "emspace": " ",
    "enspace": " ", "qmspace": " ", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”",
    "~": " ", "_": "-", "\\": "\\", "{": "{", "}": "}",
}
CODE_PAGES = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk", 136: "cp950", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}
# fmt: on


@dataclass(frozen=True)
class RtfGroup:
    """What holds until a group ends: where its text goes ("" is the document), its font, and whether it is hidden."""

    place: str = ""
    font: int = -1
    hidden: bool = False
    replacement: int = 1  # characters that follow a character given by its number


@dataclass
class Reading:
    """What was read so far."""

    outline: Outline = field(default_factory=Outline)
    group: RtfGroup = RtfGroup()
    groups: list[RtfGroup] = field(default_factory=list)
    texts: dict[str, list[str]] = field(
        default_factory=lambda: {"": [], "footnote": [], "title": [], "author": []}
    )
    page: str = "cp1252"
    pages: dict[int, str] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)  # of headings, by the number of the style
    style: int = 0
    level: int | None = None
    decoder: codecs.IncrementalDecoder | None = None
    skip: int = 0

    def write(self, text: str) -> None:
        if self.group.place in self.texts and not self.group.hidden:
            self.texts[self.group.place].append(text)

    def write_byte(self, byte: int) -> None:
        if self.decoder is None:
            name = self.pages.get(self.group.font, self.page)
            self.decoder = codecs.getincrementaldecoder(name)("replace")
        self.write(self.decoder.decode(bytes((byte,))))

    def end_paragraph(self) -> None:
        text = _joined(self.texts[""]).rstrip("| ")
        self.texts[""] = []
        if text and self.level is not None and len(text) < 200:
            self.outline.heading(text, is_title=self.level == 0)
        elif text:
            self._paragraph(text)
        for note in _joined(self.texts["footnote"]).split("\n"):
            self._paragraph(note)
        self.texts["footnote"] = []

    def _paragraph(self, text: str) -> None:
        if text.strip():
            self.outline.line(text.strip())
            self.outline.end_paragraph()


def parse_rtf(text: str) -> Article:
    if not text.lstrip().startswith("{\\rtf"):
        raise DataError("this is not rich text", fix="give it another suffix")
    if len(text) > LARGEST:
        raise DataError(f"the file is larger than {LARGEST >> 20} MiB", fix="split it")
    reading, at = Reading(), 0
    while match := TOKEN.match(text, at):
        at = match.end()
        word, number, byte, sign, brace, plain = match.groups()
        if byte or (plain and reading.decoder is not None and reading.decoder.getstate()[0]):
            # The second byte of a character may be written as a letter.
            code = int(byte, 16) if byte else ord(plain[0]) & 0xFF
            reading.skip, is_skipped = max(0, reading.skip - 1), reading.skip > 0
            if not is_skipped:
                reading.write_byte(code)
            if byte:
                continue
            plain = plain[1:]
        reading.decoder = None
        if plain:
            plain = plain.replace("\r", "").replace("\n", "")
            reading.write(plain[reading.skip :])
            reading.skip = max(0, reading.skip - len(plain))
        elif brace == "{":
            reading.groups.append(reading.group)
        elif brace:
            reading.group, reading.skip = reading.groups.pop() if reading.groups else RtfGroup(), 0
            if not reading.groups:
                break  # what follows the document is none of it
        elif word == "bin":
            at += max(0, int(number or 0))
        elif word or sign:
            _obey(reading, word or sign, None if number is None else int(number))
    reading.end_paragraph()
    parsed, title, author = (
        reading.outline.parsed(),
        *map(_joined, (reading.texts["title"], reading.texts["author"])),
    )
    return Article(parsed.title or title, parsed.sections, metadata={"author": author} if author else {})


def _obey(reading: Reading, word: str, number: int | None) -> None:
    """What a control word does."""
    group = reading.group
    if word in ("title", "author") and group.place == "info":
        reading.group, reading.texts[word] = replace(group, place=word), []  # the second one is in Unicode
    elif word == "shpinst" and group.place == "*":
        reading.group = replace(group, place="")  # a text box
    elif word == "footnote" and group.place in ("", "*"):
        reading.group = replace(group, place=word)
        reading.texts[word].append("\n")
    elif word in SKIPPED or word == "*":
        reading.group = replace(group, place=word if group.place in ("", "footnote") else group.place)
    elif word == "u" and number is not None:
        reading.write(chr(number % 0x10000))
        reading.skip = group.replacement
    elif word == "uc":
        reading.group = replace(group, replacement=max(0, number or 0))
    elif word == "f":
        reading.group = replace(group, font=number or 0)
    elif word == "fcharset" and number in CODE_PAGES:
        reading.pages[group.font] = CODE_PAGES[number]
    elif word == "ansicpg" and number:
        try:
            reading.page = codecs.lookup(f"cp{number}").name
        except LookupError:
            reading.page = "cp1252"
    elif word in ("v", "deleted"):
        reading.group = replace(group, hidden=number != 0)
    elif word == "plain":
        reading.group = replace(group, hidden=False)
    elif word in ("pard", "s", "outlinelevel"):
        _style(reading, word, number or 0)
    elif group.place == "" and (word in ENDS or word in "\r\n"):
        reading.end_paragraph()
    elif group.place == "footnote" and word in ENDS:
        reading.write("\n")
    else:
        reading.write(SIGNS.get(word, ""))


def _style(reading: Reading, word: str, number: int) -> None:
    """A style of the document, or the one of a paragraph: it may be that of a heading."""
    if reading.group.place == "stylesheet":
        reading.style = number if word == "s" else reading.style
        reading.levels |= {reading.style: number} if word == "outlinelevel" else {}
    elif reading.group.place == "":
        level = reading.levels.get(number) if word == "s" else number if word == "outlinelevel" else None
        reading.level = level if level is not None and level < 9 else None


def _joined(texts: list[str]) -> str:
    """Texts as one, with the halves of characters that were given by two numbers."""
    return (
        "".join(texts)
        .encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le", "replace")
        .replace("\0", "")
        .strip()
    )
