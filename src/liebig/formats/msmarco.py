"""MS MARCO: passages, documents, RocketQA's titled passages, queries, qrels, runs, triples, mined negatives.

collection.tsv: `pid text`; msmarco-docs.tsv: `docid url title body`; titled: `pid title text`, or RocketQA's
para.txt with para.title.txt; triples: `qid pid pid`; msmarco-hard-negatives.jsonl of
sentence-transformers: {"qid", "pos", "neg": {system: [pid or {"pid", "ce-score"}]}}. Tabs between, quotes literal.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, Section
from liebig.formats.base import Export, Format, RunExport, RunFile
from liebig.formats.inputs import InputSource
from liebig.formats.items import (
    Item,
    Options,
    Row,
    Where,
    as_grade,
    as_id,
    as_list,
    as_row,
    as_score,
    field,
)
from liebig.formats.ledger import Ledger
from liebig.formats.output import tab_line
from liebig.formats.preview import Preview, are_ids, are_ranks
from liebig.formats.rows import rows, tab_fields
from liebig.formats.trec import by_query, by_rank, qrels_lines

RUN_DEPTH = 1000  # hits per query that the official script accepts


def is_passages(preview: Preview) -> bool:
    """Two tab-separated columns that start with an id."""
    table = preview.tabs
    return bool(table) and len(table[0]) == 2 and are_ids(table)


def read_passages(source: InputSource, options: Options) -> Iterator[Item]:
    """Passages of `pid <tab> text` lines."""
    for where, (name, text) in tab_fields(source, 2, "id, text"):
        yield Item(Passage(as_id(name, where), text), where)


def is_titled(preview: Preview) -> bool:
    """Three tab-separated columns that start with an id, or a folder with para.txt and para.title.txt."""
    if preview.source.is_folder:
        return bool(preview.source.find("para.txt") and preview.source.find("para.title.txt"))
    table = preview.tabs
    return bool(table) and len(table[0]) == 3 and are_ids(table)


def read_titled(source: InputSource, options: Options) -> Iterator[Item]:
    """Passages of `pid <tab> title <tab> text` lines, or of a folder with para.txt and para.title.txt."""
    if source.is_folder:
        yield from _read_para(source, options.ledger)
        return
    for where, (name, title, text) in tab_fields(source, 3, "id, title, text"):
        yield Item(Passage(as_id(name, where), text, title), where)


def _read_para(folder: InputSource, ledger: Ledger) -> Iterator[Item]:
    """RocketQA's two files, joined by id whatever their order; a passage may have no title."""
    texts, names = folder.find("para.txt"), folder.find("para.title.txt")
    if texts is None or names is None:
        raise DataError("the folder needs para.txt and para.title.txt", file=folder.label)
    with TitleFile(_titles(names)) as titles:
        for where, (name, text) in tab_fields(texts, 2, "id, text"):
            yield Item(Passage(as_id(name, where), text, titles.get(name)), where)
    for file in (texts, names):
        ledger.mark_read(file.label)


class TitleFile:
    """Texts by id for a join of two files in any order: kept in an anonymous file, 16 bytes each in memory."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed on leaving the block
        hashes, offsets, end = array("q"), array("q"), 0
        for name, text in pairs:
            hashes.append(hash(name))
            offsets.append(end)
            end += self._file.write(f"{name}\t{text}\n".encode())
        order = np.argsort(np.asarray(hashes), kind="stable")
        self._hashes, self._offsets = np.asarray(hashes)[order], np.asarray(offsets)[order]

    def __enter__(self) -> TitleFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def get(self, name: str) -> str:
        """The text of this id, "" where there is none."""
        first, last = (int(np.searchsorted(self._hashes, hash(name), side)) for side in ("left", "right"))
        for offset in self._offsets[first:last].tolist():
            self._file.seek(offset)
            key, _, text = self._file.readline().decode("utf-8").rstrip("\n").partition("\t")
            if key == name:
                return text
        return ""


def _titles(source: InputSource) -> Iterator[tuple[str, str]]:
    for where, (name, title) in tab_fields(source, 2, "id, title"):
        yield as_id(name, where), title


def titled_lines(passages: Iterable[Passage]) -> Iterator[str]:
    """`pid <tab> title <tab> text`."""
    return (tab_line(record.id, record.title, record.text) for record in passages)


def write_titled(export: Export) -> None:
    """corpus.tsv with id, title and text."""
    export.lines("corpus.tsv", titled_lines(export.passages()))


def is_documents(preview: Preview) -> bool:
    """Four tab-separated columns that start with an id."""
    table = preview.tabs
    return bool(table) and len(table[0]) == 4 and are_ids(table)


def read_documents(source: InputSource, options: Options) -> Iterator[Item]:
    """Documents of `docid <tab> url <tab> title <tab> body` lines."""
    for where, (name, url, title, body) in tab_fields(source, 4, "id, url, title, body"):
        sections = (Section("", (body,) if body else ()),)
        yield Item(Document(as_id(name, where), title, sections, {"url": url} if url else {}), where)


def is_queries(preview: Preview) -> bool:
    """Two tab-separated columns that start with an id, in a file whose name mentions queries."""
    return is_passages(preview) and preview.is_about_queries


def read_queries(source: InputSource, options: Options) -> Iterator[Item]:
    """Queries of `id <tab> text` lines, as MS MARCO and TREC's later tracks have them."""
    split = options.split_of(source, "")
    for where, (name, text) in tab_fields(source, 2, "id, text"):
        yield Item(Query(as_id(name, where), text), where, split)


def query_lines(queries: Iterable[Query]) -> Iterator[str]:
    """`id <tab> text`."""
    return (tab_line(query.id, query.text) for query in queries)


def write_queries(export: Export) -> None:
    """queries.SPLIT.tsv."""
    for name, queries in export.query_files("queries.{}.tsv", "queries.tsv"):
        export.lines(name, query_lines(queries))


def tab_qrels_lines(judgements: Iterable[Judgement]) -> Iterator[str]:
    return (line.replace(" ", "\t") for line in qrels_lines(judgements))


def write_qrels(export: Export) -> None:
    """qrels.SPLIT.tsv, four columns with tabs."""
    for split in export.splits_of("judgements"):
        export.lines(f"qrels.{split}.tsv", tab_qrels_lines(export.judgements(split)))


def is_run(preview: Preview) -> bool:
    """Three tab-separated columns, the last counting ranks from 1, not named triples."""
    table = preview.tabs
    has_width = bool(table) and len(table[0]) == 3 and "triple" not in preview.name
    return has_width and preview.numbers(table, 2, whole=True) and are_ranks(table)


def read_run(source: InputSource, options: Options) -> Iterator[Item]:
    """Hits of `query passage rank` lines; a hit's score is 1 / rank, because the file has none.

    Passage 0 is a passage like any other, although the official script also uses it for ranks left empty.
    """
    for where, (query, passage, rank) in tab_fields(source, 3, "query, passage, rank"):
        place = as_grade(rank, where)
        if place < 1:
            where.refuse(f"ranks start at 1, and this is {place}")
        yield Item(Hit(as_id(query, where), as_id(passage, where), 1.0 / place, place), where)


def run_lines(hits: Iterable[Hit]) -> Iterator[str]:
    """`query passage rank`; the official script takes whole numbers as ids and no more than 1,000 ranks."""
    for group in by_query(hits):
        if len(group) > RUN_DEPTH:
            raise DataError(
                f"query {group[0].query!r} has {len(group):,} hits; MS MARCO's script refuses more than 1,000",
                fix="give --depth 1000",
            )
        for rank, hit in enumerate(group, 1):
            for name in (hit.query, hit.passage):
                if not (name.isascii() and name.isdigit()):
                    raise DataError(f"the id {name!r} is not a whole number, which MS MARCO's script needs")
            yield tab_line(hit.query, hit.passage, str(rank))


def _run_file_lines(export: RunExport) -> Iterator[str]:
    """run.tsv with query, passage and rank."""
    return run_lines(export.hits)


def is_id_triples(preview: Preview) -> bool:
    """Three tab-separated columns of whole numbers, or in a file named qidpidtriples."""
    table = preview.tabs
    if not table or len(table[0]) != 3:
        return False
    return "qidpid" in preview.name or all(preview.numbers(table, n, whole=True) for n in range(3))


def read_id_triples(source: InputSource, options: Options) -> Iterator[Item]:
    """Groups of `query <tab> positive <tab> negative` ids; neighbouring lines of one query and positive are one."""
    split = options.split_of(source, "train")
    start, query, positive = Where(source.label), "", ""
    negatives: list[str] = []
    for where, fields in tab_fields(source, 3, "query, positive, negative"):
        a, b, c = (as_id(name.strip(), where) for name in fields)
        if (a, b) != (query, positive):
            if negatives:
                yield Item(Group(query, (positive,), tuple(negatives)), start, split)
            start, query, positive, negatives = where, a, b, []
        negatives.append(c)
    if negatives:
        yield Item(Group(query, (positive,), tuple(negatives)), start, split)


def id_triple_lines(groups: Iterable[Group]) -> Iterator[str]:
    """One line for each positive and negative of a query."""
    for group in groups:
        for positive in group.positives:
            for negative in group.negatives:
                yield tab_line(group.query, positive, negative)


def write_id_triples(export: Export) -> None:
    """qidpidtriples.SPLIT.tsv."""
    for split in export.group_splits():
        export.lines(f"qidpidtriples.{split}.tsv", id_triple_lines(export.groups(split)))


def is_hard_negatives(preview: Preview) -> bool:
    """Rows with qid, pos and neg."""
    return preview.has("qid", "pos", "neg")


def read_hard_negatives(source: InputSource, options: Options) -> Iterator[Item]:
    """Groups of sentence-transformers' mined negatives, those of all systems together, each once."""
    split = options.split_of(source, "train")
    return (Item(hard_negatives(row, where), where, split) for where, row in rows(source))


def hard_negatives(row: Row, where: Where) -> Group:
    """The group of a line; cross-encoder scores are teacher scores where every passage has one."""
    systems = as_row(field(row, ("neg",), where), where, "neg")
    mined = chain.from_iterable(as_list(passages, where, name) for name, passages in systems.items())
    positives = _scored(as_list(field(row, ("pos",), where), where, "pos"), where)
    negatives = {name: score for name, score in _scored(mined, where).items() if name not in positives}
    is_scored = None not in positives.values() and None not in negatives.values()
    return Group(
        query=as_id(field(row, ("qid",), where), where),
        positives=tuple(positives),
        negatives=tuple(negatives),
        positive_scores=tuple(s for s in positives.values() if s is not None) if is_scored else (),
        negative_scores=tuple(s for s in negatives.values() if s is not None) if is_scored else (),
    )


def _scored(entries: Iterable[Any], where: Where) -> dict[str, float | None]:
    """Passage ids with their scores; the first one of an id counts."""
    scores: dict[str, float | None] = {}
    for entry in entries:
        if isinstance(entry, dict):
            score = entry.get("ce-score", entry.get("score"))
            name = as_id(field(entry, ("pid",), where), where)
            scores.setdefault(name, None if score is None else as_score(score, where, "ce-score"))
        else:
            scores.setdefault(as_id(entry, where), None)
    return scores


def write_all(export: Export) -> None:
    """The files of `msmarco-titled`, `msmarco-queries`, `msmarco-qrels` and `msmarco-id-triples`."""
    for write in (write_titled, write_queries, write_qrels, write_id_triples):
        write(export)


PASSAGES = Format(
    name="msmarco-passages",
    about="MS MARCO passages",
    fields="id, text with tabs; passage 0 is a passage",
    yields=("passages",),
    rule=is_passages,
    read=read_passages,
    sample={"collection.tsv": "0\tThe presence of communication\n1\tThe Manhattan Project\n"},
)
TITLED = Format(
    name="msmarco-titled",
    about="MS MARCO passages with RocketQA's titles",
    fields="id, title, text with tabs; or RocketQA's folder with `para.txt` and `para.title.txt`, joined by id",
    yields=("passages",),
    place="both",
    rule=is_titled,
    read=read_titled,
    write=write_titled,
    sample={"corpus.tsv": "0\tManhattan\tThe presence of communication\n7\t\tNo title\n"},
)
DOCUMENTS = Format(
    name="msmarco-documents",
    about="MS MARCO documents",
    fields="id, url, title, body with tabs",
    yields=("documents",),
    rule=is_documents,
    read=read_documents,
    sample={"msmarco-docs.tsv": "D1555982\thttps://a.b/\tTitle\tThe body of it.\n"},
)
QUERIES = Format(
    name="msmarco-queries",
    about="MS MARCO or TREC queries",
    fields="id, text with tabs; TREC topics as TSV too",
    yields=("queries",),
    rule=is_queries,
    read=read_queries,
    write=write_queries,
    sample={"queries.dev.small.tsv": "1048578\tcost of endless pools\n"},
)
QRELS = Format(name="msmarco-qrels", about="MS MARCO qrels, read as trec-qrels", write=write_qrels)
RUN = Format(
    name="msmarco-run",
    about="MS MARCO run",
    fields="query, passage, rank",
    yields=("hits",),
    rule=is_run,
    read=read_run,
    run=RunFile("run.tsv", by_rank, _run_file_lines),
    sample={"run.tsv": "2\t0\t1\n2\t17\t2\n3\t5\t1\n"},
)
ID_TRIPLES = Format(
    name="msmarco-id-triples",
    about="MS MARCO triples of ids",
    fields="query, positive, negative (ids); neighbouring lines of one query and positive become one group",
    yields=("groups",),
    rule=is_id_triples,
    read=read_id_triples,
    write=write_id_triples,
    sample={"qidpidtriples.train.full.2.tsv": "1\t20\t300\n1\t20\t301\n2\t5\t6\n"},
)
HARD_NEGATIVES = Format(
    name="msmarco-hard-negatives",
    about="sentence-transformers' mined negatives",
    fields="{`qid`, `pos`: [pid], `neg`: {system: [pid]}}, or {`pid`, `ce-score`} instead of pid. Negatives of all "
    "systems, each once; scores become teacher scores if all have one",
    yields=("groups",),
    rule=is_hard_negatives,
    read=read_hard_negatives,
    sample={
        "msmarco-hard-negatives.jsonl": '{"qid": 867436, "pos": [5238393], "neg": {"bm25": [1, 0], "tas-b": [0, 7]}}\n'
    },
)
MSMARCO = Format(name="msmarco", about="MS MARCO's files", write=write_all)
