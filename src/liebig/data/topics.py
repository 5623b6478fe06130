"""TREC topics: the old SGML-like files, and `id <tab> text` lines.

An old topic opens with <top>, closes with </top>, and its fields (<num>, <title>, <desc>, <narr>) run to the next
tag; newer collections write <topic number="1"> with <query>, <question>, <narrative>. The title is the query.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from liebig.data.fields import as_id
from liebig.data.items import Item, Options, Where
from liebig.data.lines import lines, tab_fields
from liebig.data.output import collapse, tab_line
from liebig.data.sources import Source
from liebig.errors import DataError
from liebig.records import Query

OPEN = re.compile(r"<top(?:ic)?(?:\s[^>]*)?>", re.IGNORECASE)
CLOSE = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
NUMBER = re.compile(r"""\b(?:number|id)\s*=\s*["']?([^"'>]+)["']?""", re.IGNORECASE)
TAG = re.compile(r"<(/?)(num|title|desc|narr|query|question|narrative|description)>", re.IGNORECASE)
GIANT = re.compile(r"&#[0-9]{8,};?")
LABEL = re.compile(r"^\s*(?:Number|Topic|Description|Narrative)\s*:", re.IGNORECASE)
NAMES = {"query": "title", "question": "desc", "description": "desc", "narrative": "narr"}
MAX_TOPIC = 1 << 22


def read_sgml(source: Source, options: Options) -> Iterator[Item]:
    """Queries of a topics file; `options.topic` names the field that is the query: title, desc or narr."""
    split = options.split_of(source, "")
    for where, block in _blocks(source):
        fields = _fields(block)
        name = fields.get("num", "")
        if not name:
            where.refuse("the topic has no <num>")
        text = fields.get(options.topic, "")
        if not text:
            where.refuse(f"topic {name} has no <{options.topic}>", "choose another field with --topic")
        yield Item(Query(as_id(name, where), text), where, split)


def _blocks(source: Source) -> Iterator[tuple[Where, str]]:
    """The text of each topic, from its opening tag to its end, with the line it starts at."""
    block: list[str] = []
    started = size = 0
    for number, line in lines(source):
        if not block:
            found = OPEN.search(line)
            if found is None:
                _refuse_stray(line, Where(source.label, number))
                continue
            started, size, line = number, 0, line[found.start() :]
        block.append(line)
        size += len(line)
        if CLOSE.search(line):
            yield Where(source.label, started), "\n".join(block)
            block = []
        elif size > MAX_TOPIC or (len(block) > 1 and OPEN.search(line)):
            Where(source.label, started).refuse("the topic that starts here is not closed with </top>")
    if block:
        Where(source.label, started).refuse("the topic that starts here is not closed with </top>")


def _refuse_stray(line: str, where: Where) -> None:
    """Between topics there is only mark-up."""
    if line.strip() and not line.lstrip().startswith("<"):
        where.refuse(f"there is text outside of a topic: {line.strip()[:40]!r}")


def _fields(block: str) -> dict[str, str]:
    """The fields of a topic, without their labels (`Number:`, `Description:`)."""
    found: dict[str, str] = {}
    opening = OPEN.match(block)
    number = NUMBER.search(opening[0]) if opening else None
    if number:
        found["num"] = number[1].strip()
    body = CLOSE.split(block)[0]
    marks = list(TAG.finditer(body))
    for mark, after in zip(marks, [*marks[1:], None]):
        if mark[1]:
            continue
        text = body[mark.end() : after.start() if after else len(body)]
        name = mark[2].lower()
        found.setdefault(NAMES.get(name, name), collapse(_unescape(LABEL.sub("", text))))
    return found


def _unescape(text: str) -> str:
    """Entities as characters; numbers beyond all characters are U+FFFD, as HTML has it, however long they are."""
    return html.unescape(GIANT.sub("\ufffd", text))


def sgml_lines(queries: Iterable[Query]) -> Iterator[str]:
    """Topics with a number and a title."""
    for query in queries:
        text = collapse(query.text)
        if not text or text != query.text or LABEL.match(text):
            raise DataError(
                f"the query {query.id!r} cannot be written as a topic: it is empty, or holds line breaks, "
                "runs of spaces or a label",
                fix="give --collapse, or choose a format of JSON lines, such as beir",
            )
        if query.id != collapse(query.id) or LABEL.match(query.id):
            raise DataError(f"the id {query.id!r} cannot be written as a topic's number")
        yield from ("<top>", f"<num> Number: {html.escape(query.id, quote=False)}")
        yield from (f"<title> {html.escape(text, quote=False)}", "</top>")


def read_tsv(source: Source, options: Options) -> Iterator[Item]:
    """Queries of `id <tab> text` lines, as MS MARCO and TREC's later tracks have them."""
    split = options.split_of(source, "")
    for where, (name, text) in tab_fields(source, 2, "id, text"):
        yield Item(Query(as_id(name, where), text), where, split)


def tsv_lines(queries: Iterable[Query]) -> Iterator[str]:
    """`id <tab> text`."""
    return (tab_line(query.id, query.text) for query in queries)
