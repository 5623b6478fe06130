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

from liebig.data import (
    beir,
    condenser,
    documents,
    dpr,
    dpr_results,
    elsewhere,
    msmarco,
    rules,
    tevatron,
    texts,
    topics,
    trec,
    tuples,
)
from liebig.data.items import Item, Options, Skipped
from liebig.data.sniff import Sample
from liebig.data.sources import Source, source_of
from liebig.errors import DataError

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
    Format(
        "collection", "a collection made by liebig init", rules.is_collection, elsewhere.read_collection, True
    ),
    Format("beir", "BEIR folder", rules.is_beir, beir.read_folder, True),
    Format("dpr-questions", "DPR's questions with answers", rules.is_dpr_questions, dpr.read_questions),
    Format("sts", "scored pairs as STS benchmark has them", rules.is_sts, tuples.read_sts),
    Format("tevatron-v1", "Tevatron, first generation", rules.is_tevatron_first, tevatron.read_first),
    Format("tevatron-v2", "Tevatron, second generation", rules.is_tevatron_second, tevatron.read_second),
    Format(
        "msmarco-hard-negatives",
        "sentence-transformers' mined negatives",
        rules.is_hard_negatives,
        msmarco.read_hard_negatives,
    ),
    Format("dpr-train", "DPR's training data", rules.is_dpr_training, dpr.read_training),
    Format("dpr-results", "DPR's or Pyserini's results", rules.is_dpr_results, dpr_results.read_results),
    Format("cocondenser", "coCondenser's lines of spans", rules.is_cocondenser, condenser.read_spans),
    Format("condenser", "Condenser's lines of text", rules.is_condenser, condenser.read_text),
    Format("qrels-rows", "judgements as a table", rules.is_qrels_rows, beir.read_qrels_rows),
    Format("questions", "questions, with answers or without", rules.is_questions, beir.read_questions),
    Format("documents", "documents, with sections or without", rules.is_documents, documents.read_documents),
    Format("passages", "passages as BEIR's corpus has them", rules.is_passages, beir.read_passages),
    Format("tuples", "pairs, triplets, n-tuples or scored pairs", rules.is_tuples, tuples.read_tuples),
    Format("trec-topics", "TREC topics", rules.is_topics, topics.read_sgml),
    Format("trec-run", "TREC run", rules.is_trec_run, trec.read_run),
    Format("trec-qrels", "TREC or MS MARCO qrels", rules.is_trec_qrels, trec.read_qrels),
    Format("msmarco-run", "MS MARCO run", rules.is_marco_run, trec.read_marco_run),
    Format("beir-qrels", "BEIR's judgements", rules.is_beir_qrels, beir.read_qrels),
    Format("tevatron-run", "Tevatron's run", rules.is_tevatron_run, trec.read_tevatron_run),
    Format("msmarco-id-triples", "MS MARCO triples of ids", rules.is_id_triples, msmarco.read_id_triples),
    Format("dpr-passages", "DPR's passages", rules.is_dpr_passages, dpr.read_passages),
    Format("msmarco-documents", "MS MARCO documents", rules.is_marco_documents, msmarco.read_documents),
    Format(
        "msmarco-titled", "MS MARCO passages with RocketQA's titles", rules.is_titled, msmarco.read_titled
    ),
    Format("msmarco-triples", "MS MARCO triples of texts", rules.is_text_triples, msmarco.read_text_triples),
    Format("msmarco-queries", "MS MARCO or TREC queries", rules.is_marco_queries, topics.read_tsv),
    Format("msmarco-passages", "MS MARCO passages", rules.is_marco_passages, msmarco.read_passages),
    Format("texts", "a folder or file of text", rules.is_text_file, texts.read_texts),
    Format("lines", "a paragraph on every line", rules.is_paragraphs, documents.read_paragraphs),
    Format("stdlib", "Python's own documentation", rules.is_stdlib, elsewhere.read_stdlib),
    Format("ir-datasets", "a data set of ir_datasets", rules.is_ir_datasets, elsewhere.read_ir_datasets),
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
        format = FORMATS["stdlib" if rules.is_stdlib(Sample(source)) else "ir-datasets"]
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
