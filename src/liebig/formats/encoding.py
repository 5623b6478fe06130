"""The encoding of a text file: its byte order mark, else UTF-8, what the file says, or what charset-normalizer guesses.

Only files that are one document are guessed at, and tables of any columns, which spreadsheets export in the code page
of a country; other formats of data are UTF-8. Short Western texts fit several code pages equally well: Windows-1252,
which HTML takes for Latin-1 too, wins such a tie. Cost: the text in memory; a guess decodes a few samples of the file
once for each encoding.
"""

from __future__ import annotations

import codecs
import contextlib
import re

from liebig.formats.inputs import DAMAGE, BytesSource, InputSource
from liebig.formats.items import Where

UTF_8 = "utf-8"
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is its beginning
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"
LIKELY = [
    WESTERN, "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "shift_jis", "cp932", "euc_jp",
    "gb18030", "big5", "cp949", "cp866", "cp874", "iso8859_5", "iso8859_2", "mac_cyrillic", "cp855",
]  # fmt: skip
JAPANESE, SAMPLE = ("euc_jp", "shift_jis", "cp932"), 1 << 14
# XML's declaration, the meta tag of a page, and the comment in which a program names its encoding.
SAID = re.compile(
    rb"(?:charset|coding)\s{0,9}[=:]\s{0,9}[\"']?((?:iso|win|cp|koi8|gb|big5|euc|shift|mac|latin|tis)[\w-]{1,20})",
    re.I,
)
ESCAPES = (b"\x1b$B", b"\x1b$@")  # of ISO-2022-JP, whose bytes are all ASCII
ORDER, DISORDER, COHERENT = 0.2, 0.4, 0.4  # shares of signs that look wrong, and of words that look right
STRAY = 1000  # one NUL in so many characters is a mark of a program, as in manuals of Info
LARGEST = 1 << 28
HEAD = 1 << 20


def is_utf_8(source: InputSource) -> bool:
    """Whether the start of a file is valid UTF-8; a character cut off at its end does not count."""
    head = source.head(HEAD)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UnicodeDecodeError:
        return False
    return True


def in_utf_8(source: InputSource) -> tuple[InputSource, str]:
    """The source, or what it holds as UTF-8 in memory where that is not its encoding; and its encoding."""
    if is_utf_8(source):
        return source, UTF_8
    text, encoding = whole_text(source)
    made = BytesSource(source.plain, text.encode("utf-8"))
    made.label = source.label
    return made, encoding


def whole_text(source: InputSource) -> tuple[str, str]:
    """A whole text file with its line ends made equal, and its encoding; for files that are one document."""
    where = Where(source.label)
    try:
        with source.open() as stream:
            raw = stream.read(LARGEST + 1)
    except DAMAGE as error:
        raise source.damaged(error) from None
    if len(raw) > LARGEST:
        where.refuse(f"the file is larger than {LARGEST >> 20} MiB", "split it")
    text, encoding = decode_text(raw, where)
    text = text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")  # the second: of old Macs
    return text.removesuffix("\n"), encoding


def decode_text(raw: bytes, where: Where) -> tuple[str, str]:
    marked = next((name for mark, name in MARKS.items() if raw.startswith(mark)), "")
    encoding = marked or utf_16(raw) or ("iso2022_jp" if any(sign in raw for sign in ESCAPES) else UTF_8)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        encoding = _guess(raw) or where.refuse("cannot detect the encoding of the text", "save it as UTF-8")
        text = raw.decode(encoding)
    if text.count("\0") * STRAY > len(text):
        where.refuse("the file contains NUL bytes, so it is not text", "remove it, or name it by its format")
    return text.replace("\0", " "), encoding.removesuffix("-sig")


def utf_16(raw: bytes) -> str:
    """UTF-16 without a mark, if every second byte is mostly NUL and the others are not; else an empty string."""
    even, odd = (raw[start:SAMPLE:2].count(0) * 10 / max(1, len(raw[start:SAMPLE:2])) for start in (0, 1))
    name = "utf-16-le" if even < 1 and odd > 5 else "utf-16-be" if odd < 1 and even > 5 else ""
    signs = raw[:SAMPLE].decode(name, "ignore") if name else ""
    odd_signs = sum(sign < " " and sign not in "\t\n\r\f" for sign in signs)  # numbers of two bytes have many
    return name if odd_signs * 100 <= len(signs) else ""


def _guess(raw: bytes) -> str | None:
    """The encoding that is named in the file, else the likeliest; of several that fit equally well the Western one."""
    from charset_normalizer import from_bytes

    if said := SAID.search(raw[:SAMPLE]):
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            name = codecs.lookup(said[1].decode("ascii")).name
            name = WESTERN if name == "iso8859-1" else name  # as browsers take it
            return name if raw.decode(name) else None
    for name in JAPANESE:  # whose kana other encodings have as letters that are rare there
        with contextlib.suppress(UnicodeDecodeError):
            letters = [sign for sign in raw[:SAMPLE].decode(name, "ignore") if sign > "\x7f"]
            if raw.decode(name) and sum("\u3041" <= sign <= "\u3093" for sign in letters) * 5 > len(letters):
                return name
    matches = from_bytes(raw, cp_isolation=LIKELY)
    if (
        not matches
    ):  # rulers and tables of signs count as disorder, so words of a language have to speak for it
        matches = from_bytes(raw, cp_isolation=LIKELY, threshold=DISORDER)
    best = matches.best()
    if best is None or (best.chaos > ORDER and best.coherence < COHERENT):
        return None
    ties = [m for m in matches if (m.chaos, m.coherence) == (best.chaos, best.coherence)]
    western = any(WESTERN in (m.encoding, *m.could_be_from_charset) for m in ties)
    return WESTERN if western else best.encoding
