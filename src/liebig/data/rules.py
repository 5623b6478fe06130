"""How formats are told apart: one small rule a format, on what a sample shows."""

from __future__ import annotations

from liebig.data.beir import is_header
from liebig.data.collection import KINDS, SPLIT_KINDS
from liebig.data.dpr import COLUMNS
from liebig.data.sniff import Sample
from liebig.data.texts import SUFFIXES

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
