"""Messages of Outlook (.msg): subject, sender, recipients and body out of an OLE file.

Every property of a message is a stream that is named after its number and its type; olefile reads the streams. The
plain body is read, the HTML one where there is no other. Cost: the streams that are read, of at most LARGEST bytes.
"""

from __future__ import annotations

from typing import Any

from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_plain
from liebig.formats.outline import Article
from liebig.formats.parsers import parse_html

LARGEST = 1 << 26
SUBJECT, SENDER, SENDER_ADDRESS, TO, BODY, HTML = "0037", "0C1A", "0C1F", "0E04", "1000", "1013"


def read_outlook(source: InputSource) -> Article:
    import olefile  # late: only folders with such messages pay for it

    where = Where(source.label)
    try:
        with source.seekable() as file, olefile.OleFileIO(file) as ole:
            read = {
                name: _property(ole, name, where)
                for name in (SUBJECT, SENDER, SENDER_ADDRESS, TO, BODY, HTML)
            }
    except DAMAGE as error:
        raise source.damaged(error) from None
    body = read[BODY].replace("\r\n", "\n")
    parsed = parse_plain(body) if body.strip() else parse_html(read[HTML])
    metadata = {"author": read[SENDER] or read[SENDER_ADDRESS], "to": read[TO]}
    kept = {name: value for name, value in metadata.items() if value}
    return Article(read[SUBJECT], parsed.unplaced, metadata=kept)


def _property(ole: Any, name: str, where: Where) -> str:
    """A property as text: UTF-16, else bytes in an encoding that is guessed."""
    for kind in ("001F", "001E", "0102"):
        path = f"__substg1.0_{name}{kind}"
        if ole.exists(path):
            if ole.get_size(path) > LARGEST:
                where.refuse(f"the message is larger than {LARGEST >> 20} MiB", "save it as text")
            raw = ole.openstream(path).read()
            text = raw.decode("utf-16-le", "replace") if kind == "001F" else decode_text(raw, where)[0]
            return text.rstrip("\0")
    return ""
