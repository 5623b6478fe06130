"""The formats that can be read: one table, and how each is told from the others.

`find(path)` looks at a path and says which formats it holds and why; a folder may hold several. The first rule of
the table that fits decides, so the special ones stand first. `--format NAME` skips the rules.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from liebig.base.errors import DataError
from liebig.collection.collection import KINDS, SPLIT_KINDS
from liebig.formats import (
    beir,
    condenser_lines as condenser,
    documents,
    dpr,
    dpr as dpr_results,
    folder_of_texts as texts,
    msmarco,
    named as elsewhere,
    tevatron,
    trec,
    trec as topics,
    tuples,
)
from liebig.formats.beir import is_header
from liebig.formats.dpr import COLUMNS
from liebig.formats.folder_of_texts import SUFFIXES
from liebig.formats.inputs import Source, source_of
from liebig.formats.items import Item, Options, Skipped
from liebig.formats.sniff import Sample

# How formats are told apart: one small rule a format, on what a sample shows.

TEXT = ("text", "contents", "content")
ID_LENGTH = 80


def is_collection(sample: Sample) -> bool:
    """A folder with passages.jsonl, or with summary.json beside other files of a collection."""
    names = {child.name for child in sample.source.children()}
    parts = {f"{kind}.jsonl" for kind in KINDS} | set(SPLIT_KINDS)
    return "passages.jsonl" in names or ("summary.json" in names and bool(names & parts))


def is_beir(sample: Sample) -> bool:
    """A folder with corpus.jsonl, and queries.jsonl or qrels."""
    folder = sample.source
    return bool(folder.find("corpus.jsonl") and (folder.find("queries.jsonl") or folder.find("qrels")))


def is_tevatron_first(sample: Sample) -> bool:
    """Rows with query_id and positive_passages, or with docid and text."""
    return sample.has("query_id", "positive_passages") or sample.has("docid", "text")


def is_tevatron_second(sample: Sample) -> bool:
    """Rows with positive_document_ids, or with docid and document_text."""
    return sample.has("query_id", "positive_document_ids") or sample.has("docid", "document_text")


def is_hard_negatives(sample: Sample) -> bool:
    """Rows with qid, pos and neg."""
    return sample.has("qid", "pos", "neg")


def is_dpr_training(sample: Sample) -> bool:
    """Elements with question and positive_ctxs."""
    return sample.has("question", "positive_ctxs")


def is_dpr_results(sample: Sample) -> bool:
    """Elements with question and ctxs, or one object of results with contexts."""
    return sample.has("question", "ctxs") or sample.container == "json object"


def is_cocondenser(sample: Sample) -> bool:
    """Rows with spans."""
    return sample.has("spans")


def is_condenser(sample: Sample) -> bool:
    """Rows with text and nothing else."""
    return set(sample.row) == {"text"}


def is_qrels_rows(sample: Sample) -> bool:
    """Rows with query-id and corpus-id."""
    return sample.has("query-id", "corpus-id")


def is_questions(sample: Sample) -> bool:
    """Rows with an id and text and answers, or a name that speaks of queries."""
    named = any(sample.has(name) for name in ("_id", "id", "qid", "query_id"))
    asked = any(sample.has(name) for name in ("text", "question", "query"))
    return named and asked and (sample.has("answers") or sample.is_about_queries)


def is_documents(sample: Sample) -> bool:
    """Rows with sections, or with id and text."""
    return sample.has("sections") or (sample.has("id") and any(sample.has(name) for name in TEXT))


def is_passages(sample: Sample) -> bool:
    """Rows with _id and text."""
    return sample.has("_id") and any(sample.has(name) for name in TEXT)


def is_sts(sample: Sample) -> bool:
    """CSV without a header, three columns, the last a number."""
    if sample.container != "csv" or not sample.lines:
        return False
    return sample.lines[0].count(",") >= 2 and sample.numbers([sample.lines[0].rsplit(",", 1)], 1)


def is_tuples(sample: Sample) -> bool:
    """Rows of two texts or more, or lists of texts."""
    if isinstance(sample.first, list):
        return len(sample.first) > 1 and all(isinstance(text, str) for text in sample.first)
    lists = sample.has("pos") and (sample.has("query") or sample.has("anchor"))
    return lists or sum(isinstance(value, str) for value in sample.row.values()) > 1


def is_topics(sample: Sample) -> bool:
    """Text that opens with <top> or <topic>."""
    start = " ".join(sample.lines[:3]).lower()
    return start.startswith("<") and ("<top>" in start or "<topic" in start)


def is_trec_run(sample: Sample) -> bool:
    """Six columns, the fourth a whole number, the fifth a number."""
    table = sample.spaces
    return (
        bool(table)
        and len(table[0]) == 6
        and sample.numbers(table, 3, whole=True)
        and sample.numbers(table, 4)
    )


def is_trec_qrels(sample: Sample) -> bool:
    """Four columns, the last a whole number, or in a file named qrels."""
    table = sample.spaces
    return (
        bool(table) and len(table[0]) == 4 and (sample.numbers(table, 3, whole=True) or sample.is_named_qrels)
    )


def is_beir_qrels(sample: Sample) -> bool:
    """Three tab-separated columns under a header, in a file named qrels, or with a grade from -2 to 10; no triples."""
    table = sample.tabs
    if not table or len(table[0]) != 3 or "triple" in sample.name:
        return False
    if is_header(table[0]) or sample.is_named_qrels:
        return True
    return (
        sample.numbers(table, 2)
        and {float(row[2]) for row in table} <= set(range(-2, 11))
        and not _counts(table)
    )


def is_marco_run(sample: Sample) -> bool:
    """Three tab-separated columns, the last counting ranks from 1, not named triples."""
    table = sample.tabs
    return (
        bool(table)
        and len(table[0]) == 3
        and "triple" not in sample.name
        and sample.numbers(table, 2, whole=True)
        and _counts(table)
    )


def is_tevatron_run(sample: Sample) -> bool:
    """Three columns, the last a number with decimals."""
    table = sample.spaces
    return (
        bool(table)
        and len(table[0]) == 3
        and sample.numbers(table, 2)
        and any("." in row[2] for row in table)
    )


def is_id_triples(sample: Sample) -> bool:
    """Three tab-separated columns of whole numbers, or in a file named qidpidtriples."""
    table = sample.tabs
    if not table or len(table[0]) != 3:
        return False
    return "qidpid" in sample.name or all(sample.numbers(table, n, whole=True) for n in range(3))


def is_dpr_passages(sample: Sample) -> bool:
    """Three tab-separated columns under the header id, text, title, in any order."""
    first = sample.lines[0].split("\t") if sample.lines else []
    return sorted(name.strip().lower() for name in first) == sorted(COLUMNS)


def is_dpr_questions(sample: Sample) -> bool:
    """Two tab-separated columns, the second a list in brackets."""
    table = sample.tabs
    lists = [row[1].strip().strip('"') for row in table] if table and len(table[0]) == 2 else []
    return bool(lists) and all(text.startswith("[") and text.endswith("]") for text in lists)


def is_marco_documents(sample: Sample) -> bool:
    """Four tab-separated columns that start with an id."""
    table = sample.tabs
    return bool(table) and len(table[0]) == 4 and _ids(table)


def is_titled(sample: Sample) -> bool:
    """Three tab-separated columns that start with an id, or a folder with para.txt and para.title.txt."""
    if sample.source.is_folder:
        return bool(sample.source.find("para.txt") and sample.source.find("para.title.txt"))
    table = sample.tabs
    return bool(table) and len(table[0]) == 3 and _ids(table)


def is_text_triples(sample: Sample) -> bool:
    """Three tab-separated columns of texts."""
    table = sample.tabs
    return bool(table) and len(table[0]) == 3


def is_marco_queries(sample: Sample) -> bool:
    """Two tab-separated columns that start with an id, in a file whose name speaks of queries."""
    return is_marco_passages(sample) and sample.is_about_queries


def is_marco_passages(sample: Sample) -> bool:
    """Two tab-separated columns that start with an id."""
    table = sample.tabs
    return bool(table) and len(table[0]) == 2 and _ids(table)


def is_text_file(sample: Sample) -> bool:
    """A .md, .rst, .html or .pdf file, or a .txt with blank lines in it or not in UTF-8."""
    if sample.source.suffix in (".txt", ".text"):
        body = "\n".join(sample.raw_lines).strip()
        return "\n\n" in body or not sample.is_utf8
    return sample.source.suffix in SUFFIXES


def is_paragraphs(sample: Sample) -> bool:
    """A .txt file, or other lines of text, none of the above and not named qrels."""
    plain = sample.source.suffix in (".txt", ".text", "") and sample.container is None
    if sample.is_named_qrels:
        return False
    return plain and bool(sample.lines) and "\0" not in sample.lines[0] and "\ufffd" not in sample.lines[0]


def is_stdlib(sample: Sample) -> bool:
    """The name stdlib:, or stdlib:json,heapq."""
    return sample.source.label.startswith("stdlib:")


def is_ir_datasets(sample: Sample) -> bool:
    """A name such as ir_datasets:beir/scifact/test."""
    return sample.source.label.startswith("ir_datasets:")


def _ids(table: list[list[str]]) -> bool:
    """Whether the first column looks like ids: no spaces, not long, no two the same."""
    first = [row[0] for row in table]
    plain = all(name and len(name) <= ID_LENGTH and len(name.split()) == 1 for name in first)
    return plain and len(set(first)) == len(first)


def _counts(table: list[list[str]]) -> bool:
    """Whether the last column counts 1, 2, 3, … anew for every query."""
    expected, query = 0, ""
    for row in table:
        expected = expected + 1 if row[0] == query else 1
        query = row[0]
        if row[2].strip() != str(expected):
            return False
    return len(table) > len({row[0] for row in table})


Rule = Callable[[Sample], bool]
DATA = frozenset(
    (".jsonl", ".json", ".ndjson", ".tsv", ".csv", ".parquet", ".arrow", ".trec", ".qrels", ".run")
)
TABLES = frozenset((".parquet", ".arrow"))
ABOUT = frozenset(
    (
        "dataset_info.json",
        "dataset_infos.json",
        "dataset_dict.json",
        "state.json",
        "summary.json",
        "manifest.json",
    )
)
UTF16 = (b"\xff\xfe", b"\xfe\xff")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True)
class Format:
    """A format: what it is, the rule that tells it (its docstring is what is printed), and its reader."""

    name: str
    about: str
    rule: Rule
    read: Callable[[Source, Options], Iterator[Item]]
    is_folder: bool = False

    @property
    def told_by(self) -> str:
        """The rule in words."""
        return (self.rule.__doc__ or "").strip().rstrip(".")


@dataclass(frozen=True)
class Found:
    """A source, its format and the reason for it."""

    source: Source
    format: Format
    why: str

    def items(self, options: Options) -> Iterator[Item]:
        """The records of the source."""
        return self.format.read(self.source, options)


_TABLE = (
    Format("collection", "a collection made by liebig init", is_collection, elsewhere.read_collection, True),
    Format("beir", "BEIR folder", is_beir, beir.read_folder, True),
    Format("dpr-questions", "DPR's questions with answers", is_dpr_questions, dpr.read_questions),
    Format("sts", "scored pairs as STS benchmark has them", is_sts, tuples.read_sts),
    Format("tevatron-v1", "Tevatron, first generation", is_tevatron_first, tevatron.read_first),
    Format("tevatron-v2", "Tevatron, second generation", is_tevatron_second, tevatron.read_second),
    Format(
        "msmarco-hard-negatives",
        "sentence-transformers' mined negatives",
        is_hard_negatives,
        msmarco.read_hard_negatives,
    ),
    Format("dpr-train", "DPR's training data", is_dpr_training, dpr.read_training),
    Format("dpr-results", "DPR's or Pyserini's results", is_dpr_results, dpr_results.read_results),
    Format("cocondenser", "coCondenser's lines of spans", is_cocondenser, condenser.read_spans),
    Format("condenser", "Condenser's lines of text", is_condenser, condenser.read_text),
    Format("qrels-rows", "judgements as a table", is_qrels_rows, beir.read_qrels_rows),
    Format("questions", "questions, with answers or without", is_questions, beir.read_questions),
    Format("documents", "documents, with sections or without", is_documents, documents.read_documents),
    Format("passages", "passages as BEIR's corpus has them", is_passages, beir.read_passages),
    Format("tuples", "pairs, triplets, n-tuples or scored pairs", is_tuples, tuples.read_tuples),
    Format("trec-topics", "TREC topics", is_topics, topics.read_sgml),
    Format("trec-run", "TREC run", is_trec_run, trec.read_run),
    Format("trec-qrels", "TREC or MS MARCO qrels", is_trec_qrels, trec.read_qrels),
    Format("msmarco-run", "MS MARCO run", is_marco_run, trec.read_marco_run),
    Format("beir-qrels", "BEIR's judgements", is_beir_qrels, beir.read_qrels),
    Format("tevatron-run", "Tevatron's run", is_tevatron_run, trec.read_tevatron_run),
    Format("msmarco-id-triples", "MS MARCO triples of ids", is_id_triples, msmarco.read_id_triples),
    Format("dpr-passages", "DPR's passages", is_dpr_passages, dpr.read_passages),
    Format("msmarco-documents", "MS MARCO documents", is_marco_documents, msmarco.read_documents),
    Format("msmarco-titled", "MS MARCO passages with RocketQA's titles", is_titled, msmarco.read_titled),
    Format("msmarco-triples", "MS MARCO triples of texts", is_text_triples, msmarco.read_text_triples),
    Format("msmarco-queries", "MS MARCO or TREC queries", is_marco_queries, topics.read_tsv),
    Format("msmarco-passages", "MS MARCO passages", is_marco_passages, msmarco.read_passages),
    Format("texts", "a folder or file of text", is_text_file, texts.read_texts),
    Format("lines", "a paragraph on every line", is_paragraphs, documents.read_paragraphs),
    Format("stdlib", "Python's own documentation", is_stdlib, elsewhere.read_stdlib),
    Format("ir-datasets", "a data set of ir_datasets", is_ir_datasets, elsewhere.read_ir_datasets),
)
FORMATS: dict[str, Format] = {format.name: format for format in _TABLE}


def find(path: Path | str, name: str | None = None, skipped: Skipped | None = None) -> list[Found]:
    """What a path holds, by the rules or by the name given; what cannot be read is refused, or `skipped`."""
    skipped = skipped or Skipped()
    source = elsewhere.named(str(path)) or source_of(path)
    for _, below in source.walk():
        for flaw in below.flaws:
            skipped.add(flaw)
    if name is None:
        return detect(source, skipped)
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0.4)
        raise DataError(
            f"{name!r} is not a format",
            fix=f"write {near[0]}" if near else f"use one of {', '.join(FORMATS)}",
        )
    format, why = FORMATS[name], "named"
    whole = format.is_folder or name in ("texts", "msmarco-titled") or not source.is_folder
    files = [source] if whole else [file for file in _files(source) if not _is_readme(file)]
    return [Found(file, format, why) for file in files]


def detect(source: Source, skipped: Skipped) -> list[Found]:
    """What a source holds; a folder that is no format itself is looked into."""
    if isinstance(source, elsewhere.NamedSource):
        format = FORMATS["stdlib" if is_stdlib(Sample(source)) else "ir-datasets"]
        return [Found(source, format, format.told_by)]
    if not source.is_folder:
        return [_detect_file(source)]
    sample = Sample(source)
    for name in ("collection", "beir", "msmarco-titled"):
        if FORMATS[name].rule(sample):
            return [Found(source, FORMATS[name], FORMATS[name].told_by)]
    files = _files(source)
    data = [file for file in files if file.suffix in DATA]
    prose = [file for file in files if file.suffix in texts.SUFFIXES and not _is_readme(file)]
    tables = [file for file in data if file.suffix in TABLES]
    if tables:
        return _but(files, _detect_files(tables, skipped))
    if data and len(data) >= len(prose) and (found := _detect_files(data, skipped) + _data_among(prose)):
        return _but(files, found)
    if prose and len(_data_among(prose)) == len(prose):
        return _but(files, _data_among(prose))
    if prose:
        others = [file for file in files if file.suffix not in texts.SUFFIXES]
        return _but(others, [Found(source, FORMATS["texts"], f"a folder of {len(prose):,} text files")])
    raise DataError("the folder holds nothing that can be read", file=source.label, fix="name its files")


def _but(files: list[Source], found: list[Found]) -> list[Found]:
    """What was found, the last with a word on the files that are not read, so that none is missed unawares."""
    read = [item.source for item in found]
    left = [file for file in files if file not in read and not _is_readme(file)]
    if not left:
        return found
    kinds = sorted({file.suffix or file.plain for file in left})
    shown = ", ".join([*kinds[:5], *(["…"] if len(kinds) > 5 else [])])
    are = "file is" if len(left) == 1 else "files are"
    why = f"{found[-1].why}; {len(left):,} other {are} left alone: {shown}"
    return [*found[:-1], replace(found[-1], why=why)]


def _data_among(prose: list[Source]) -> list[Found]:
    """Text files that are data all the same (topics.txt, qrels.txt); stops at the first one that is prose."""
    found: list[Found] = []
    for file in prose:
        if file.suffix not in (".txt", ".text"):
            break
        best = _detect_file(file)
        if best.format.name in ("texts", "lines"):
            break
        found.append(best)
    return found


def _detect_files(files: list[Source], skipped: Skipped) -> list[Found]:
    """The formats of files, without those whose format cannot be told; one at least must be left."""
    found: list[Found] = []
    first: DataError | None = None
    for file in files:
        try:
            found.append(_detect_file(file))
        except DataError as error:
            skipped.add(error)
            first = first or error
    if not found and first is not None:
        raise first
    return found


def _files(folder: Source) -> list[Source]:
    """The files below a folder, without those that only describe others."""
    return [f for f in folder.files() if f.plain not in ABOUT and not f.name.startswith("cache-")]


def _is_readme(file: Source) -> bool:
    return file.stem.lower() in texts.README


def _detect_file(source: Source) -> Found:
    if source.suffix in PICKLES:
        _refuse_pickle(source)
    if source.suffix in texts.MARKUP:  # what a page begins with says nothing: it may be a bracket or a tab
        return Found(source, FORMATS["texts"], FORMATS["texts"].told_by)
    sample = Sample(source)
    for format in FORMATS.values():
        if not format.is_folder and format.rule(sample):
            return Found(source, format, format.told_by)
    if source.head(4).startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        _refuse_pickle(source)
    if not source.head(1):
        raise DataError("the file is empty", file=source.label, fix="leave it out")
    _refuse_encodings(sample)
    raise DataError(
        "the file holds NUL bytes, so it is no text"
        if b"\0" in source.head(4096)
        else "the format cannot be told",
        file=source.label,
        fix="name it with --format; docs/formats.md lists them all",
    )


def _refuse_encodings(sample: Sample) -> None:
    """Data in an encoding that is not ours is named with the way to convert it."""
    head = sample.source.head(4096)
    name = "UTF-16" if head[:2] in UTF16 else "latin1"
    if not sample.is_utf8 and (name == "UTF-16" or b"\0" not in head):
        raise DataError(
            "this is UTF-16 text" if name == "UTF-16" else "this is not UTF-8 text",
            file=sample.source.label,
            fix=f"convert it, e.g. with iconv -f {name.lower()} -t utf-8",
        )


def _refuse_pickle(source: Source) -> NoReturn:
    raise DataError(
        "this is a pickle, which can run code when it is read, so it is not read",
        file=source.label,
        fix="for vectors that Tevatron wrote, use liebig convert FILE --to vectors",
    )
