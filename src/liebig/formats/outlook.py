"""Messages of Outlook (.msg): subject, sender, recipients, date and body out of an OLE file.

Every property of a message is a stream that is named after its number and its type; olefile reads the streams. The
plain body is read, the HTML one where there is no other. Cost: the streams that are read, of at most LARGEST bytes.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_plain
from liebig.formats.outline import Article
from liebig.formats.parsers import parse_html

LARGEST = 1 << 26
PROPERTIES = "__properties_version1.0"
CODE_PAGES = (0x3FFD0003, 0x3FDE0003)  # of the message, and of its page
TIMES = (0x00390040, 0x0E060040)  # sent, delivered; in tenths of microseconds since EPOCH
EPOCH, LAST = datetime(1601, 1, 1, tzinfo=UTC), 2_650_000_000_000_000_000
SUBJECT, SENDER, SENDER_ADDRESS, TO, BODY, HTML = "0037", "0C1A", "0C1F", "0E04", "1000", "1013"


def read_outlook(source: InputSource) -> Article:
    import olefile  # late: only folders with such messages pay for it

    try:
        with source.seekable() as file, olefile.OleFileIO(file) as ole:
            numbers = _numbers(ole)
            page = next((f"cp{numbers[name]}" for name in CODE_PAGES if numbers.get(name)), "")
            read = {
                name: _property(ole, name, page, Where(source.label))
                for name in (SUBJECT, SENDER, SENDER_ADDRESS, TO, BODY, HTML)
            }
    except DAMAGE as error:
        raise source.damaged(error) from None
    body = read[BODY].replace("\r\n", "\n")
    parsed = parse_plain(body) if body.strip() else parse_html(read[HTML])
    sent = next((numbers[name] for name in TIMES if numbers.get(name)), 0)
    date = (
        (EPOCH + timedelta(microseconds=min(sent, LAST) // 10)).isoformat(timespec="seconds") if sent else ""
    )
    metadata = {"author": read[SENDER] or read[SENDER_ADDRESS], "to": read[TO], "date": date}
    kept = {name: value for name, value in metadata.items() if value}
    return Article(read[SUBJECT], parsed.unplaced, metadata=kept)


def _numbers(ole: Any) -> dict[int, int]:
    """The properties that are numbers or times: 16 bytes each, behind a header of 32."""
    if not ole.exists(PROPERTIES) or ole.get_size(PROPERTIES) > LARGEST:
        return {}
    raw = ole.openstream(PROPERTIES).read()[32:]
    return {tag: value for tag, _, value in struct.iter_unpack("<IIQ", raw[: len(raw) // 16 * 16])}


def _property(ole: Any, name: str, page: str, where: Where) -> str:
    """A property as text: UTF-16, else bytes in the code page of the message, or in an encoding that is guessed."""
    for kind in ("001F", "001E", "0102"):
        path = f"__substg1.0_{name}{kind}"
        if ole.exists(path):
            if ole.get_size(path) > LARGEST:
                where.refuse(f"the message is larger than {LARGEST >> 20} MiB", "save it as text")
            raw = ole.openstream(path).read()
            if kind == "001F":
                return str(raw.decode("utf-16-le", "replace")).rstrip("\0")
            raw = raw.rstrip(b"\0")
            try:
                return str(raw.decode(page if kind == "001E" and page else "utf-8"))
            except (LookupError, UnicodeDecodeError):
                return decode_text(raw, where)[0]
    return ""
