"""TREC's judgements, runs and topics, and the order of hits in runs of any format.

qrels: `query iteration document grade`; run: `query Q0 document rank score tag`, any ASCII white space between.
trec_eval ignores the rank and sorts by score as 32-bit floats, ties by document id descending; so a run is written
with scores that decrease strictly in 32 bits, and its order survives. A topic starts with <top>, ends with </top>, and
its fields (<num>, <title>, <desc>, <narr>) run to the next tag; newer collections write <topic number="1"> with
<query>, <question>, <narrative>. The title is the query.
"""

from __future__ import annotations

import html
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.json_output import to_json
from liebig.base.records import Hit, Judgement, Query
from liebig.formats.base import Export, Format, RunExport, RunFile
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_grade, as_id, as_score
from liebig.formats.output import collapse, space_line
from liebig.formats.preview import Preview
from liebig.formats.rows import lines, space_fields, text_lines

Doubles = NDArray[np.float64]
OPEN = re.compile(r"<top(?:ic)?(?:\s[^>]*)?>", re.IGNORECASE)
CLOSE = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
NUMBER = re.compile(r"""\b(?:number|id)\s*=\s*["']?([^"'>]+)["']?""", re.IGNORECASE)
TAG = re.compile(r"<(/?)(num|title|desc|narr|query|question|narrative|description)>", re.IGNORECASE)
GIANT = re.compile(r"&#[0-9]{8,};?")
LABEL = re.compile(r"^\s*(?:Number|Topic|Description|Narrative)\s*:", re.IGNORECASE)
NAMES = {"query": "title", "question": "desc", "description": "desc", "narrative": "narr"}
MAX_TOPIC = 1 << 22


def is_qrels(preview: Preview) -> bool:
    """Four columns, the last a whole number, or in a file named qrels."""
    table = preview.spaces
    has_width = bool(table) and len(table[0]) == 4
    return has_width and (preview.numbers(table, 3, whole=True) or preview.is_named_qrels)


def read_qrels(source: InputSource, options: Options) -> Iterator[Item]:
    """Judgements of a TREC or MS MARCO qrels file; grades may be negative."""
    split = options.split_of(source, "test")
    for where, (query, _, passage, grade) in columns(source, 4, "query iteration document relevance"):
        record = Judgement(as_id(query, where), as_id(passage, where), as_grade(grade, where))
        yield Item(record, where, split)


def qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    """`query 0 document grade`."""
    for record in judgements:
        yield space_line(record.query, "0", record.passage, str(record.relevance))


def write_qrels(export: Export) -> None:
    """qrels.SPLIT.txt."""
    for split in export.splits_of("judgements"):
        export.lines(f"qrels.{split}.txt", qrels_lines(export.judgements(split)))


def is_run(preview: Preview) -> bool:
    """Six columns, the fourth a whole number, the fifth a number."""
    table = preview.spaces
    has_width = bool(table) and len(table[0]) == 6
    return has_width and preview.numbers(table, 3, whole=True) and preview.numbers(table, 4)


def read_run(source: InputSource, options: Options) -> Iterator[Item]:
    """Hits of a TREC run, in the order of the file."""
    for where, (query, _, passage, rank, score, _) in columns(source, 6, "query Q0 document rank score tag"):
        hit = Hit(as_id(query, where), as_id(passage, where), as_score(score, where), as_grade(rank, where))
        yield Item(hit, where)


def columns(source: InputSource, count: int, names: str) -> Iterator[tuple[Where, list[str]]]:
    """Lines split at white space; one with another number of columns is refused."""
    for number, line in text_lines(source):
        fields, where = space_fields(line), Where(source.label, number)
        if len(fields) != count:
            where.refuse(f"the line has {len(fields)} columns instead of {count} ({names})")
        yield where, fields


def by_query(hits: Iterable[Hit]) -> Iterator[list[Hit]]:
    """The hits of one query after another, in the order they come."""
    seen: set[str] = set()
    for query, group in groupby(hits, key=lambda hit: hit.query):
        if query in seen:
            raise DataError(f"the hits of query {query!r} are not consecutive", fix="sort the run by query")
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
        passages, scores = [hit.passage for hit in group], [hit.score for hit in group]
        yield from query_lines(group[0].query, passages, scores, tag)


def query_lines(
    query: str, passages: Sequence[str], scores: Sequence[float] | Doubles, tag: str = "liebig"
) -> list[str]:
    """The lines of one query's hits, checked together, because a run may have millions of hits."""
    space_line(query, tag, *passages)
    written = _written(decreasing(np.array(scores, np.float64)))
    ranks = _ranks(len(passages))
    return list(map(" ".join, zip(repeat(f"{query} Q0"), passages, ranks, written, repeat(tag))))


@lru_cache(1)
def _ranks(count: int) -> list[str]:
    """1 to `count`, kept for the next query: most have as many hits."""
    return [str(rank) for rank in range(1, count + 1)]


def _written(scores: Doubles) -> list[str]:
    """`digits` of each score, most of them in one call: JSON's numbers are `repr`'s where neither has an exponent."""
    written: list[str] = to_json(scores)[1:-1].decode().split(",")
    # Six decimals may be enough only for a score near a whole number of millionths; large and infinite ones are tried.
    with np.errstate(invalid="ignore", over="ignore"):
        millionths = np.abs(scores) * 1e6
        plain = (np.abs(millionths - np.rint(millionths)) > 1e-3) & (millionths > 1e3) & (millionths < 1e12)
    for i in np.flatnonzero(~plain).tolist():
        written[i] = digits(float(scores[i]))
    return written


def decreasing(scores: Doubles) -> Doubles:
    """The scores, lowered by the smallest steps where they do not decrease strictly in 32 bits."""
    with np.errstate(over="ignore"):
        short = np.concatenate([[np.inf], np.where(np.isnan(scores), np.inf, scores)]).astype(np.float32)
    if np.all(short[1:] < short[:-1]):
        return scores
    bits = short.view(np.int32).astype(np.int64)
    number = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # of a float among all floats, 0 being the 0th
    place = np.arange(len(number))
    lowered = np.minimum.accumulate(number + place) - place
    floats = np.where(lowered < 0, -lowered | 0x80000000, lowered).astype(np.uint32).view(np.float32)
    return np.where(lowered < number, floats, np.append(np.inf, scores))[1:]


def _run_file_lines(export: RunExport) -> Iterator[str]:
    """run.trec, with scores that decrease strictly."""
    return run_lines(export.hits, export.tag)


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


def is_topics(preview: Preview) -> bool:
    """Text that opens with <top> or <topic>."""
    start = " ".join(preview.lines[:3]).lower()
    return start.startswith("<") and ("<top>" in start or "<topic" in start)


def read_sgml(source: InputSource, options: Options) -> Iterator[Item]:
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


def _blocks(source: InputSource) -> Iterator[tuple[Where, str]]:
    """The text of each topic, from its opening tag to its end, with the line it starts at."""
    block: list[str] = []
    started = size = 0
    for number, line in lines(source):
        if not block:
            opening = OPEN.search(line)
            if opening is None:
                _refuse_stray(line, Where(source.label, number))
                continue
            started, size, line = number, 0, line[opening.start() :]
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
    fields: dict[str, str] = {}
    opening = OPEN.match(block)
    number = NUMBER.search(opening[0]) if opening else None
    if number:
        fields["num"] = number[1].strip()
    body = CLOSE.split(block)[0]
    marks = list(TAG.finditer(body))
    for mark, after in zip(marks, [*marks[1:], None]):
        if mark[1]:
            continue
        text = body[mark.end() : after.start() if after else len(body)]
        name = mark[2].lower()
        fields.setdefault(NAMES.get(name, name), collapse(_unescape(LABEL.sub("", text))))
    return fields


def _unescape(text: str) -> str:
    """Entities as characters; numbers beyond all characters are U+FFFD, as HTML has it, however long they are."""
    return html.unescape(GIANT.sub("\ufffd", text))


def sgml_lines(queries: Iterable[Query]) -> Iterator[str]:
    """Topics with a number and a title."""
    for query in queries:
        text = collapse(query.text)
        if not text or text != query.text or LABEL.match(text):
            raise DataError(
                (
                    f"the query {query.id!r} cannot be written as a topic: it is empty, or contains line breaks, runs "
                    "of spaces or a label"
                ),
                fix="give --collapse, or choose a format of JSON lines, such as beir",
            )
        if query.id != collapse(query.id) or LABEL.match(query.id):
            raise DataError(f"the id {query.id!r} cannot be written as a topic's number")
        yield from ("<top>", f"<num> Number: {html.escape(query.id, quote=False)}")
        yield from (f"<title> {html.escape(text, quote=False)}", "</top>")


def write_topics(export: Export) -> None:
    """topics.SPLIT.txt, in the old form with tags."""
    for name, queries in export.query_files("topics.{}.txt", "topics.txt"):
        export.lines(name, sgml_lines(queries))


def write_all(export: Export) -> None:
    """The files of `trec-topics` and `trec-qrels`."""
    write_topics(export)
    write_qrels(export)


TOPICS = Format(
    name="trec-topics",
    about="TREC topics",
    fields='`<top>` with `<num>`, `<title>`, `<desc>`, `<narr>` up to `</top>`; or `<topic number="1">` with '
    "`<query>`. `--topic` chooses the field",
    yields=("queries",),
    rule=is_topics,
    read=read_sgml,
    write=write_topics,
    sample={
        "topics.301-350.txt": "<top>\n\n<num> Number: 301\n<title> International Organized Crime\n\n"
        "<desc> Description:\nIdentify it.\n\n<narr> Narrative:\nA document.\n\n</top>\n"
    },
)
RUN = Format(
    name="trec-run",
    about="TREC run",
    fields="query, Q0, document, rank, score, tag between white space. The rank is ignored, as trec_eval does",
    yields=("hits",),
    rule=is_run,
    read=read_run,
    run=RunFile("run.trec", by_score, _run_file_lines),
    sample={"run.trec": "301 Q0 FBIS3-1 1 12.5 bm25\n301 Q0 FBIS3-2 2 11.25 bm25\n"},
)
QRELS = Format(
    name="trec-qrels",
    about="TREC or MS MARCO qrels",
    fields="query, iteration, document, grade between white space or tabs; grades may be negative",
    yields=("judgements",),
    rule=is_qrels,
    read=read_qrels,
    write=write_qrels,
    sample={"qrels.test.txt": "301 0 FBIS3-1 1\n301 0 FBIS3-2 -1\n"},
)
TREC = Format(name="trec", about="TREC's files", write=write_all)
