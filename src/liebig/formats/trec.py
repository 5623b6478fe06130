"""TREC's judgements and runs, and the two other runs that are lines: MS MARCO's and Tevatron's.

qrels: `query iteration document grade`; run: `query Q0 document rank score tag`, any ASCII white space between.
trec_eval ignores the rank and sorts by score as 32-bit floats, ties by document id descending; so a run is written
with scores that decrease strictly in 32 bits, and its order survives.
"""

from __future__ import annotations

import html
import re
import struct
from collections.abc import Iterable, Iterator
from itertools import groupby

from liebig.base.errors import DataError
from liebig.base.records import Hit, Judgement, Query
from liebig.formats.inputs import Source
from liebig.formats.items import Item, Options, Where, as_grade, as_id, as_score
from liebig.formats.output import collapse, space_line, tab_line
from liebig.formats.rows import lines, space_fields, tab_fields, text_lines

MARCO_DEPTH = 1000


def read_qrels(source: Source, options: Options) -> Iterator[Item]:
    """Judgements of a TREC or MS MARCO qrels file; grades may be negative."""
    split = options.split_of(source, "test")
    for where, (query, _, passage, grade) in _columns(source, 4, "query iteration document relevance"):
        record = Judgement(as_id(query, where), as_id(passage, where), as_grade(grade, where))
        yield Item(record, where, split)


def qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    """`query 0 document grade`."""
    for record in judgements:
        yield space_line(record.query, "0", record.passage, str(record.relevance))


def marco_qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    """The same with tabs, as MS MARCO has it."""
    return (line.replace(" ", "\t") for line in qrels_lines(judgements))


def read_run(source: Source, options: Options) -> Iterator[Item]:
    """Hits of a TREC run, in the order of the file."""
    for where, (query, _, passage, rank, score, _) in _columns(source, 6, "query Q0 document rank score tag"):
        hit = Hit(as_id(query, where), as_id(passage, where), as_score(score, where), as_grade(rank, where))
        yield Item(hit, where)


def read_tevatron_run(source: Source, options: Options) -> Iterator[Item]:
    """Hits of `query document score` lines; ranks are counted."""
    ranks: dict[str, int] = {}
    for where, (query, passage, score) in _columns(source, 3, "query document score"):
        ranks[query] = ranks.get(query, 0) + 1
        yield Item(
            Hit(as_id(query, where), as_id(passage, where), as_score(score, where), ranks[query]), where
        )


def read_marco_run(source: Source, options: Options) -> Iterator[Item]:
    """Hits of `query passage rank` lines; a hit's score is 1 / rank, because the file has none.

    Passage 0 is a passage like any other, although the official script also uses it for ranks left empty.
    """
    for where, (query, passage, rank) in tab_fields(source, 3, "query, passage, rank"):
        place = as_grade(rank, where)
        if place < 1:
            where.refuse(f"ranks count from 1, and this is {place}")
        yield Item(Hit(as_id(query, where), as_id(passage, where), 1.0 / place, place), where)


def _columns(source: Source, count: int, columns: str) -> Iterator[tuple[Where, list[str]]]:
    for number, line in text_lines(source):
        fields, where = space_fields(line), Where(source.label, number)
        if len(fields) != count:
            where.refuse(f"the line has {len(fields)} columns instead of {count} ({columns})")
        yield where, fields


def by_query(hits: Iterable[Hit]) -> Iterator[list[Hit]]:
    """The hits of one query after another, in the order they come."""
    seen: set[str] = set()
    for query, group in groupby(hits, key=lambda hit: hit.query):
        if query in seen:
            raise DataError(f"the hits of query {query!r} do not stand together", fix="sort the run by query")
        seen.add(query)
        yield list(group)


def by_score(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The hits ranked as trec_eval ranks them: by score in 32 bits, then by id, both descending."""
    for group in by_query(hits):
        group.sort(key=lambda hit: (float32(hit.score), hit.passage), reverse=True)
        for rank, hit in enumerate(group, 1):
            yield Hit(hit.query, hit.passage, hit.score, rank)


def by_rank(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The hits in the order of their ranks, which are counted anew."""
    for group in by_query(hits):
        group.sort(key=lambda hit: hit.rank)
        for rank, hit in enumerate(group, 1):
            yield Hit(hit.query, hit.passage, hit.score, rank)


def cut(hits: Iterable[Hit], depth: int | None) -> Iterator[Hit]:
    """The first `depth` hits of each query."""
    return (hit for group in by_query(hits) for hit in group[:depth])


def run_lines(hits: Iterable[Hit], tag: str = "liebig") -> Iterator[str]:
    """A TREC run in the order given; scores decrease strictly in 32 bits, by the smallest step where they did not."""
    for group in by_query(hits):
        last = float("inf")
        for rank, hit in enumerate(group, 1):
            score = hit.score if float32(hit.score) < last else _below(last)
            last = float32(score)
            yield space_line(hit.query, "Q0", hit.passage, str(rank), digits(score), tag)


def tevatron_run_lines(hits: Iterable[Hit]) -> Iterator[str]:
    """`query document score`, in the order given."""
    for hit in hits:
        yield space_line(hit.query, hit.passage, digits(hit.score)).replace(" ", "\t")


def marco_run_lines(hits: Iterable[Hit]) -> Iterator[str]:
    """`query passage rank`; the official script takes whole numbers as ids and no more than 1,000 ranks."""
    for group in by_query(hits):
        if len(group) > MARCO_DEPTH:
            raise DataError(
                f"query {group[0].query!r} has {len(group):,} hits; MS MARCO's script refuses more than 1,000",
                fix="give --depth 1000",
            )
        for rank, hit in enumerate(group, 1):
            for name in (hit.query, hit.passage):
                if not (name.isascii() and name.isdigit()):
                    raise DataError(f"the id {name!r} is no whole number, which MS MARCO's script needs")
            yield tab_line(hit.query, hit.passage, str(rank))


def digits(score: float) -> str:
    """A score with at least six decimals, and as many as it takes to read the same number back."""
    short = f"{score:.6f}"
    return short if float(short) == score else repr(score)


def float32(score: float) -> float:
    """The score as trec_eval keeps it."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", score))[0])
    except OverflowError:
        return float("inf") if score > 0 else float("-inf")


def _below(value: float) -> float:
    """The next smaller 32-bit float."""
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    step = -1 if value > 0 else 1
    if value == 0:
        return -float32(1.4e-45)
    return float(struct.unpack("<f", struct.pack("<i", bits + step))[0])


# TREC topics: the old SGML-like files, and `id <tab> text` lines.
#
# An old topic opens with <top>, closes with </top>, and its fields (<num>, <title>, <desc>, <narr>) run to
# the next tag; newer collections write <topic number="1"> with <query>, <question>, <narrative>. The title
# is the query.

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
