"""Mail: a message (.eml), and mailboxes (.mbox) of many, each message a document.

The subject is the title, the sender the author; date and recipients are metadata. The plain body is read, the HTML one
where it says more than a plain one of a line or two ("see this message in a browser"); attachments of a kind that is
read follow as sections. Cost: one message in memory; headers are decoded without the grammar of Python's own policy,
which takes most of the time of a short message.
"""

from __future__ import annotations

import email
from collections.abc import Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from email.utils import getaddresses, parsedate_to_datetime
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE, BytesSource, InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_plain
from liebig.formats.outline import Article
from liebig.formats.parsers import articles, kind_of, parse_html

LARGEST = 1 << 26  # bytes of a message
SHORT = 250  # characters of a plain body that may stand for one in HTML


class PlainHeaders(EmailPolicy):
    """Headers as the text they have, on one line."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        if (
            name.lower() == "content-disposition"
        ):  # whether a part is an attachment is asked of the parsed header
            return super().header_fetch_parse(name, value)
        return " ".join(value.split())


POLICY = PlainHeaders()


def read_message(source: InputSource) -> Article:
    try:
        with source.open() as stream:
            raw = stream.read(LARGEST + 1)
    except DAMAGE as error:
        raise source.damaged(error) from None
    return message_article(raw, source.label)


def read_mailbox(source: InputSource) -> Iterator[Article]:
    lines = list[bytes]()
    number, is_blank = 0, True
    try:
        with source.open() as stream:
            while line := stream.readline(LARGEST):
                if is_blank and line.startswith(b"From ") and lines:
                    number += 1
                    yield message_article(b"".join(lines), source.label)._replace(part=str(number))
                    lines = []
                elif lines or line.strip():
                    # A line that begins with "From " was quoted when the message was stored.
                    lines.append(line[1:] if line.startswith(b">From ") else line)
                is_blank = not line.strip()
    except DAMAGE as error:
        raise source.damaged(error) from None
    if lines:
        yield message_article(b"".join(lines), source.label)._replace(part=str(number + 1))


def message_article(raw: bytes, label: str) -> Article:
    where = Where(label)
    if len(raw) > LARGEST:
        where.refuse(f"the message is larger than {LARGEST >> 20} MiB", "split it")
    first, _, rest = raw.partition(b"\n")
    if first.strip().isdigit():  # of Apple's Mail: the size of the message, and a property list behind it
        raw = rest[: int(first[:20])]
    raw = rest if first.startswith(b"From ") else raw
    message = email.message_from_bytes(raw, policy=POLICY)
    assert isinstance(message, EmailMessage), "the policy makes these"
    return _article(message, where)


def _article(message: EmailMessage, where: Where) -> Article:
    bodies = (message.get_body((kind,)) for kind in ("plain", "html"))
    sections = list[Section]()
    for body in filter(None, bodies):
        if _size(sections) < SHORT:
            sections = max(sections, list(_body(body, where)), key=_size)
    is_message = message.get_content_type() == "message/rfc822"  # which is its whole body
    for part in [message] if is_message else message.iter_attachments():
        sections += _attachment(part, where)
    fields = {name: " ".join(_header(message, name).split()) for name in ("from", "to", "cc", "subject")}
    author = "" if fields["from"].startswith("<Saved by") else fields["from"]  # a web page
    metadata = {"author": author, "to": fields["to"], "cc": fields["cc"], "date": _date(message)}
    return Article(fields["subject"], tuple(sections), metadata={k: v for k, v in metadata.items() if v})


def _size(sections: list[Section]) -> int:
    return sum(len(text) for section in sections for text in section.paragraphs)


def _header(message: EmailMessage, name: str) -> str:
    """A header as people read it; bytes that no encoding is named for are UTF-8 or Windows-1252."""
    raw = str(message.get(name, "")).encode("ascii", "surrogateescape")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    if name in ("from", "to", "cc"):
        people = [(_decoded(person), address) for person, address in getaddresses([text])]
        if all("@" in address for _, address in people):
            text = ", ".join(f"{person} <{address}>" if person else address for person, address in people)
    return _decoded(text)


def _decoded(text: str) -> str:
    """Encoded words as what they say."""
    if "=?" not in text:
        return text
    try:
        return str(make_header(decode_header(text)))
    except (ValueError, LookupError, MessageError):  # of an encoding that is not known, or broken
        return text


def _date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(_header(message, "date")).isoformat()
    except (ValueError, TypeError, IndexError):
        return ""


def _body(part: MIMEPart, where: Where) -> Iterator[Section]:
    raw = part.get_payload(decode=True)
    data = raw if isinstance(raw, bytes) else b""
    try:
        text = data.decode(part.get_content_charset() or "utf-8")
    except (UnicodeDecodeError, LookupError):
        text, _ = decode_text(data, where)
    text = text.replace("\r\n", "\n").replace("\0", "")
    yield from (parse_html(text) if part.get_content_subtype() == "html" else parse_plain(text)).unplaced


def _attachment(part: MIMEPart, where: Where) -> Iterator[Section]:
    """The text of an attachment under its name; of one that cannot be read the name alone."""
    name = part.get_filename() or ""
    inner: Any = part.get_payload() if part.get_content_type() == "message/rfc822" else None
    if isinstance(inner, list) and inner:  # a message that was forwarded
        article = _article(inner[0], where)
        told = filter(None, (article.title or name, *article.metadata.values()))
        yield Section(f"Attachment {name or article.title}".strip(), (f"Attachment: {', '.join(told)}",))
        yield from article.unplaced
        return
    try:
        raw = part.get_payload(decode=True)
        source = BytesSource(name, raw if isinstance(raw, bytes) else b"")
        kind = kind_of(source) if name and raw else None
        read = list(articles(source, kind)) if kind is not None else []
    except (DataError, ImportError):
        read = []
    if name:
        yield Section(f"Attachment {name}", (f"Attachment: {name}",))
    for article in read:
        yield from article.unplaced
