"""Manual pages (ls.1, printf.3): sections, and text without the macros of man and mdoc."""

from __future__ import annotations

import re
import unicodedata

from liebig.formats.outline import LONG_LINE, Article, Outline

SECTION = re.compile(r"\.[1-9][a-z]{0,6}")
COMMENT, MACRO = re.compile(rb"[.']?\s*(?:\\\"|\"|$)"), re.compile(rb"[.'][ \t]*[A-Za-z]{2}")
FONT = re.compile(r"\\f(?:\[[^\]\n]*\]|\(..|.)|\\s[-+]?\d|\\[&|^/,:%]|\\\*(?:\[[^\]\n]*\]|\(..|.)")
CHARACTERS = {
    r"\-": "-", r"\e": "\\", r"\ ": " ", r"\~": " ", r"\'": "'", r"\`": "`",
}  # fmt: skip
GLYPH = re.compile(r"\\(?:\((..)|\[([^\]\n]{1,40})\])")
GLYPHS = {
    "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "bu": "•", "em": "—", "en": "–", "co": "©", "dq": '"',
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "/o": "ø", "/O": "Ø", "oa": "å", "oA": "Å", "hy": "-",
    "ha": "^", "ti": "~", "rs": "\\", "Fo": "«", "Fc": "»", "ga": "`", "at": "@", "sh": "#", "->": "→", "<=": "≤",
    ">=": "≥", "mu": "×", "de": "°", "Eu": "€",
}  # fmt: skip
ACCENTS = {
    ":": "\u0308",
    "'": "\u0301",
    "`": "\u0300",
    "^": "\u0302",
    "~": "\u0303",
    ",": "\u0327",
    "v": "\u030c",
}
PARAGRAPHS = frozenset(
    ("PP", "LP", "P", "TP", "IP", "HP", "Pp", "It", "sp", "br", "Bl", "El", "RS", "RE", "TQ", "Bd", "Ed")
)
DEFINES = frozenset(("de", "de1", "am", "am1", "ig"))
WORDS = frozenset(
    (
        "B", "I", "BR", "RB", "BI", "IB", "IR", "RI", "SM", "SB", "Nm", "Nd", "Ar", "Fl", "Op", "Cm", "Pa", "Xr", "Ic",
        "Em", "Sy", "Ql", "Dq", "Sq", "Pq", "Va", "Vt", "Ft", "Fn", "Fa", "Dv", "Ev", "Li", "An", "TP", "IP", "It",
        "UR", "Lk", "Mt", "In", "Er", "St", "No",
    )
)  # fmt: skip
JOINED = frozenset(
    ("BR", "RB", "BI", "IB", "IR", "RI")
)  # the words of these stand without spaces between them
CALLED = frozenset(
    ("Fl", "Ar", "Op", "Cm", "Pa", "Ic", "Em", "Sy", "Nm", "No", "Ns", "Xo", "Xc", "Li", "Va", "Ev", "Dv")
)
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')


def is_man_page(name_suffix: str, head: bytes) -> bool:
    """Whether a suffix and the first bytes are those of a manual page."""
    lines = (line for line in head.split(b"\n") if not COMMENT.match(line))
    return SECTION.fullmatch(name_suffix) is not None and MACRO.match(next(lines, b"")) is not None


def parse_man(text: str) -> Article:
    """The sections of a page; the title is its name with what NAME says."""
    outline, title, name, ignored = Outline("line"), "", "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if ignored:
            ignored = "" if line.rstrip() == ignored else ignored
        elif not line.strip():
            outline.end_paragraph()
        elif line[0] not in ".'":
            outline.line(_plain(line), number)
        else:
            macro, _, rest = line[1:].strip().partition(" ")
            words = [_plain((quoted or bare).replace('""', '"')) for quoted, bare in ARGUMENT.findall(rest)]
            if macro in DEFINES:  # to a line that is "..", or the name that is given behind
                ignored = "." + (words[macro != "ig" :] or ["."])[0]
            elif macro in ("TH", "Dt") and words:
                title = title or f"{words[0].lower()}({words[1]})" if len(words) > 1 else words[0].lower()
            elif macro in ("SH", "Sh", "SS", "Ss"):
                outline.heading(" ".join(words))
            else:
                if macro in PARAGRAPHS:
                    outline.end_paragraph()
                if macro == "Nm":
                    name = name or " ".join(words)
                    words = words or [name]
                told = _told(macro, words)
                if told:
                    outline.line(told, number)
    parsed = outline.parsed()
    first = next(
        (s.paragraphs[0] for s in parsed.sections if s.heading.upper() == "NAME" and s.paragraphs), ""
    )
    return Article(f"{title}: {' '.join(first.split())[:200]}" if first else title, parsed.sections)


def _told(macro: str, words: list[str]) -> str:
    """The text of a line with a macro; "" of macros for the layout."""
    if macro not in WORDS or not words:
        return ""
    flagged = [f"-{word}" if before == "Fl" else word for before, word in zip((macro, *words), words)]
    kept = [word for word in flagged if word not in CALLED and word not in ("-Ar", "-Ns")]
    return ("" if macro in JOINED else " ").join(kept)


def _plain(text: str) -> str:
    if len(text) > LONG_LINE:
        return text
    text = GLYPH.sub(_glyph, FONT.sub("", text))
    for escape, character in CHARACTERS.items():
        text = text.replace(escape, character)
    return text


def _glyph(match: re.Match[str]) -> str:
    """A character by its name in groff: a glyph, a letter with an accent, or a code point."""
    name = match[1] or match[2]
    if name[0] in ACCENTS and len(name) == 2:
        return unicodedata.normalize("NFC", name[1] + ACCENTS[name[0]])
    code = name[1:].partition("_")[0]
    if name[0] == "u" and len(code) in (4, 5) and re.fullmatch("[0-9A-F]+", code):
        return chr(int(code, 16))
    return GLYPHS.get(name, " ")
