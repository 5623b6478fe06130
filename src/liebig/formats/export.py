"""A collection about to be written out: its records as the user wants them, and the folder they go to.

Passages stand in for documents and documents for passages where a collection has only the one; white space is
collapsed where asked. Streamed; a record is looked up by its id with one read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Judgement, Passage, Query, Section, Tuple
from liebig.collection.collection import Collection
from liebig.formats import (
    beir,
    condenser_lines as condenser,
    documents,
    dpr,
    folder_of_texts as texts,
    msmarco,
    tevatron,
    trec,
    trec as topics,
    tuples,
)
from liebig.formats.output import collapse, json_array, write_lines


@dataclass(frozen=True)
class Export:
    """A collection to be written, and how: the splits, the suffix that packs files, and what becomes of white space."""

    collection: Collection
    folder: Path
    splits: tuple[str, ...]
    packed: str = ""
    collapse: bool = False
    container: str = "jsonl"
    tokenizer: Path | None = None

    def lines(self, name: str, found: Iterable[str]) -> None:
        """Write a file of lines; one without any is not left behind."""
        path = self.folder / (name + self.packed)
        if not write_lines(path, found):
            path.unlink()

    def of(self, kind: str) -> list[str]:
        """The chosen splits that have this kind of record."""
        return [split for split in self.collection.splits_of(kind) if split in self.splits]

    def text(self, value: str) -> str:
        """A text as it is written."""
        return collapse(value) if self.collapse else value

    def passages(self) -> Iterator[Passage]:
        """The passages, or each document as one."""
        if self.collection.has("passages"):
            found = self.collection.passages()
        else:
            found = (Passage(d.id, d.text, d.title, d.id) for d in self.collection.documents())
        return (replace(p, text=self.text(p.text), title=self.text(p.title)) for p in found)

    def documents(self) -> Iterator[Document]:
        """The documents, or each passage as one."""
        if self.collection.has("documents"):
            found = self.collection.documents()
        else:
            found = (Document(p.id, p.title, (Section("", (p.text,)),)) for p in self.collection.passages())
        return (self._collapsed(d) for d in found) if self.collapse else found

    def _collapsed(self, record: Document) -> Document:
        sections = tuple(
            Section(collapse(s.heading), tuple(map(collapse, s.paragraphs))) for s in record.sections
        )
        return replace(record, title=collapse(record.title), sections=sections)

    def queries(self, split: str | None = None) -> Iterator[Query]:
        """Queries, of a split or all."""
        return (replace(q, text=self.text(q.text)) for q in self.collection.queries(split))

    def query(self, name: str) -> Query:
        """A query by its id."""
        found = self.collection.query(name)
        return replace(found, text=self.text(found.text))

    def passage(self, name: str) -> Passage:
        """A passage by its id; a document stands in for it where there are no passages."""
        if self.collection.has("passages"):
            found = self.collection.passage(name)
        else:
            document = self.collection.document(name)
            found = Passage(document.id, document.text, document.title, document.id)
        return replace(found, text=self.text(found.text), title=self.text(found.title))

    def judgements(self, split: str) -> Iterator[Judgement]:
        """The judgements of a split."""
        return self.collection.judgements(split)

    def grouped(self) -> list[str]:
        """The chosen splits that have groups, or judgements that make some."""
        return sorted({*self.of("groups"), *self.of("judgements")})

    def groups(self, split: str) -> Iterator[Group]:
        """The groups of a split; where it has none, what was judged relevant and what was judged not to be."""
        if split in self.collection.splits_of("groups"):
            return self.collection.groups(split)
        return self._judged(split)

    def _judged(self, split: str) -> Iterator[Group]:
        found: dict[str, tuple[list[str], list[str]]] = {}
        for judgement in self.judgements(split):
            positives, negatives = found.setdefault(judgement.query, ([], []))
            (positives if judgement.relevance > 0 else negatives).append(judgement.passage)
        return (Group(q, tuple(good), tuple(bad)) for q, (good, bad) in found.items() if good)

    def tuples(self) -> Iterator[tuple[str, Iterator[Tuple]]]:
        """The tuples of every split; where it has none, those that its groups make."""
        for split in sorted({*self.of("tuples"), *self.grouped()}):
            yield split, self.tuples_of(split)

    def tuples_of(self, split: str) -> Iterator[Tuple]:
        """The tuples of a split, or those that its groups make, titles ahead of the texts."""
        if split in self.of("tuples"):
            return (self._collapsed_tuple(record) for record in self.collection.tuples(split))
        return self._grouped_tuples(split)

    def _collapsed_tuple(self, record: Tuple) -> Tuple:
        return Tuple(
            self.text(record.anchor), self.text(record.positive), tuple(map(self.text, record.negatives))
        )

    def _grouped_tuples(self, split: str) -> Iterator[Tuple]:
        for group in self.groups(split):
            anchor = self.query(group.query).text
            negatives = tuple(_with_title(self.passage(name)) for name in group.negatives)
            for positive in group.positives:
                yield Tuple(anchor, _with_title(self.passage(positive)), negatives)


def _with_title(passage: Passage) -> str:
    return f"{passage.title} {passage.text}" if passage.title else passage.text


# A collection written out in the field's formats: one table, each entry a function that fills a folder.
#
# A format writes the files its users expect (`collection.tsv`, `qrels.dev.tsv`, …), one for each split
# where there are splits; what a format cannot hold is refused, or left out where docs/formats.md says so.
# Memory: that of one record.


def to_beir(export: Export) -> None:
    """corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""
    write_lines(export.folder / ("corpus.jsonl" + export.packed), beir.passage_lines(export.passages()))
    write_lines(export.folder / ("queries.jsonl" + export.packed), beir.question_lines(export.queries()))
    for split in export.of("judgements"):
        write_lines(export.folder / "qrels" / f"{split}.tsv", beir.qrels_lines(export.judgements(split)))


def to_passages(export: Export) -> None:
    """corpus.jsonl alone."""
    export.lines("corpus.jsonl", beir.passage_lines(export.passages()))


def to_documents(export: Export) -> None:
    """documents.jsonl, with sections and paragraphs."""
    export.lines("documents.jsonl", documents.document_lines(export.documents()))


def to_questions(export: Export) -> None:
    """queries.SPLIT.jsonl for each split, or queries.jsonl where there are none."""
    for name, found in _query_files(export, "queries.{}.jsonl", "queries.jsonl"):
        export.lines(name, beir.question_lines(found))


def _query_files(export: Export, pattern: str, alone: str) -> Iterator[tuple[str, Iterator[Query]]]:
    """The queries of every split, or all of them; splits without queries (pairs, tuples) are passed over."""
    asked = {kind: export.of(kind) for kind in ("judgements", "groups", "splits")}
    splits = sorted({split for found in asked.values() for split in found})
    for split in splits:
        yield pattern.format(split), export.queries(split)
    if not splits:
        yield alone, export.queries()


def to_beir_qrels(export: Export) -> None:
    """qrels/SPLIT.tsv alone, with a header."""
    for split in export.of("judgements"):
        export.lines(f"qrels/{split}.tsv", beir.qrels_lines(export.judgements(split)))


def to_trec_qrels(export: Export) -> None:
    """qrels.SPLIT.txt."""
    for split in export.of("judgements"):
        export.lines(f"qrels.{split}.txt", trec.qrels_lines(export.judgements(split)))


def to_trec_topics(export: Export) -> None:
    """topics.SPLIT.txt, in the old form with tags."""
    for name, found in _query_files(export, "topics.{}.txt", "topics.txt"):
        export.lines(name, topics.sgml_lines(found))


def to_marco_qrels(export: Export) -> None:
    """qrels.SPLIT.tsv, four columns with tabs."""
    for split in export.of("judgements"):
        export.lines(f"qrels.{split}.tsv", trec.marco_qrels_lines(export.judgements(split)))


def to_marco_queries(export: Export) -> None:
    """queries.SPLIT.tsv."""
    for name, found in _query_files(export, "queries.{}.tsv", "queries.tsv"):
        export.lines(name, topics.tsv_lines(found))


def to_marco_passages(export: Export) -> None:
    """collection.tsv; passages with titles are refused."""
    export.lines("collection.tsv", msmarco.passage_lines(export.passages()))


def to_marco_titled(export: Export) -> None:
    """corpus.tsv with id, title and text."""
    export.lines("corpus.tsv", msmarco.titled_lines(export.passages()))


def to_marco_documents(export: Export) -> None:
    """msmarco-docs.tsv; a document's paragraphs become one text."""
    export.lines("msmarco-docs.tsv", msmarco.document_lines(export.documents()))


def to_id_triples(export: Export) -> None:
    """qidpidtriples.SPLIT.tsv."""
    for split in export.grouped():
        export.lines(f"qidpidtriples.{split}.tsv", msmarco.id_triple_lines(export.groups(split)))


def to_text_triples(export: Export) -> None:
    """triples.SPLIT.tsv, from tuples, or from groups or judgements with their texts."""
    for split, found in export.tuples():
        export.lines(f"triples.{split}.tsv", msmarco.text_triple_lines(found))


def to_hard_negatives(export: Export) -> None:
    """msmarco-hard-negatives.SPLIT.jsonl."""
    for split in export.grouped():
        found = msmarco.hard_negative_lines(export.groups(split))
        export.lines(f"msmarco-hard-negatives.{split}.jsonl", found)


def to_dpr_passages(export: Export) -> None:
    """psgs.tsv with the columns id, text, title."""
    export.lines("psgs.tsv", dpr.passage_lines(export.passages()))


def to_dpr_questions(export: Export) -> None:
    """SPLIT.qa.csv; ids are not written."""
    for name, found in _query_files(export, "{}.qa.csv", "questions.qa.csv"):
        export.lines(name, dpr.question_lines(found))


def to_dpr_training(export: Export) -> None:
    """SPLIT.json, an array with the passages written out."""
    for split in export.grouped():
        rows = dpr.training_rows(export.groups(split), export.query, export.passage)
        export.lines(f"{split}.json", json_array(rows))


def to_tevatron_first(export: Export) -> None:
    """corpus.jsonl, and SPLIT.jsonl with the passages written out."""
    export.lines("corpus.jsonl", tevatron.first_passage_lines(export.passages()))
    for split in export.grouped():
        found = tevatron.first_training_lines(export.groups(split), export.query, export.passage)
        export.lines(f"{split}.jsonl", found)


def to_tevatron_second(export: Export) -> None:
    """corpus.jsonl, and SPLIT.jsonl with ids."""
    export.lines("corpus.jsonl", tevatron.second_passage_lines(export.passages()))
    for split in export.grouped():
        export.lines(f"{split}.jsonl", tevatron.second_training_lines(export.groups(split), export.query))


def to_condenser(export: Export) -> None:
    """condenser.jsonl: a line for each paragraph, as text, or as token ids with --tokenizer."""
    encode = None if export.tokenizer is None else condenser.encoder(export.tokenizer)
    export.lines("condenser.jsonl", condenser.text_lines(export.documents(), encode))


def to_cocondenser(export: Export) -> None:
    """cocondenser.jsonl: a line for each document, its paragraphs as spans, or their token ids with --tokenizer."""
    encode = None if export.tokenizer is None else condenser.encoder(export.tokenizer)
    export.lines("cocondenser.jsonl", condenser.span_lines(export.documents(), encode))


def to_tuples(export: Export) -> None:
    """SPLIT.jsonl, .csv or .parquet with the columns anchor, positive, negative_1 …, and scored pairs."""
    for split, found in export.tuples():
        _write_tuples(export, split, found)
    _write_pairs(export)


def _write_tuples(export: Export, split: str, found: Iterator[Tuple]) -> None:
    width = _width(export.tuples_of(split))
    names = ["anchor", "positive", *(["negative"] if width == 1 else _numbered(width))]
    _table(export, f"tuples.{split}", tuples.tuple_rows(found, width), dict.fromkeys(names, "large_string"))


def _write_pairs(export: Export) -> None:
    columns = {"sentence1": "large_string", "sentence2": "large_string", "score": "float64"}
    for split in export.of("pairs"):
        _table(export, f"pairs.{split}", tuples.pair_rows(export.collection.pairs(split)), columns)


def _numbered(width: int) -> list[str]:
    return [f"negative_{number}" for number in range(1, width + 1)]


def _width(found: Iterable[Tuple]) -> int:
    return max((len(record.negatives) for record in found), default=0)


def _table(export: Export, name: str, rows: Iterator[dict[str, Any]], columns: dict[str, str]) -> None:
    """Rows in the container asked for."""
    if export.container == "parquet":
        tuples.write_parquet(export.folder / f"{name}.parquet", rows, columns)
    elif export.container == "csv":
        export.lines(f"{name}.csv", tuples.csv_lines(rows))
    else:
        export.lines(f"{name}.jsonl", tuples.json_lines(rows))


def to_sts(export: Export) -> None:
    """SPLIT.csv with sentence, sentence, score."""
    for split in export.of("pairs"):
        export.lines(f"{split}.csv", tuples.sts_lines(export.collection.pairs(split)))


def to_huggingface(export: Export) -> None:
    """Parquet files corpus/, queries/ and default/SPLIT, as the data sets of MTEB have them; tuples and pairs too."""
    strings = {"_id": "large_string", "title": "large_string", "text": "large_string"}
    if export.collection.has("passages") or export.collection.has("documents"):
        rows = ({"_id": p.id, "title": p.title, "text": p.text} for p in export.passages())
        tuples.write_parquet(export.folder / "corpus" / "corpus-00000-of-00001.parquet", rows, strings)
    if export.collection.has("queries"):
        asked = ({"_id": q.id, "text": q.text} for q in export.queries())
        columns = {"_id": "large_string", "text": "large_string"}
        tuples.write_parquet(export.folder / "queries" / "queries-00000-of-00001.parquet", asked, columns)
    for split in export.of("judgements"):
        judged = (
            {"query-id": j.query, "corpus-id": j.passage, "score": j.relevance}
            for j in export.judgements(split)
        )
        columns = {"query-id": "large_string", "corpus-id": "large_string", "score": "int64"}
        tuples.write_parquet(export.folder / "default" / f"{split}-00000-of-00001.parquet", judged, columns)
    packed = replace(export, container="parquet")
    for split in export.of("tuples"):
        _write_tuples(packed, split, packed.tuples_of(split))
    _write_pairs(packed)


def to_texts(export: Export) -> None:
    """A Markdown file for each document."""
    texts.write_texts(export.folder, export.documents())


def to_lines(export: Export) -> None:
    """paragraphs.txt: every paragraph on a line; name the file to read it, in a folder it is one document."""
    export.lines("paragraphs.txt", documents.paragraph_lines(export.documents()))


EXPORTS: dict[str, Callable[[Export], None]] = {
    "beir": to_beir,
    "beir-qrels": to_beir_qrels,
    "passages": to_passages,
    "documents": to_documents,
    "questions": to_questions,
    "trec-qrels": to_trec_qrels,
    "trec-topics": to_trec_topics,
    "msmarco-passages": to_marco_passages,
    "msmarco-titled": to_marco_titled,
    "msmarco-documents": to_marco_documents,
    "msmarco-queries": to_marco_queries,
    "msmarco-qrels": to_marco_qrels,
    "msmarco-id-triples": to_id_triples,
    "msmarco-triples": to_text_triples,
    "msmarco-hard-negatives": to_hard_negatives,
    "dpr-passages": to_dpr_passages,
    "dpr-questions": to_dpr_questions,
    "dpr-train": to_dpr_training,
    "tevatron-v1": to_tevatron_first,
    "tevatron-v2": to_tevatron_second,
    "condenser": to_condenser,
    "cocondenser": to_cocondenser,
    "tuples": to_tuples,
    "sts": to_sts,
    "huggingface": to_huggingface,
    "texts": to_texts,
    "lines": to_lines,
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "msmarco": ("msmarco-titled", "msmarco-queries", "msmarco-qrels", "msmarco-id-triples"),
    "trec": ("trec-topics", "trec-qrels"),
    "dpr": ("dpr-passages", "dpr-questions", "dpr-train"),
}


def write(name: str, export: Export) -> None:
    """Write a collection in the format, or the family of formats, of this name."""
    for member in FAMILIES.get(name, (name,)):
        EXPORTS[member](export)
    if not any(path.is_file() and not path.name.startswith(".") for path in export.folder.rglob("*")):
        raise DataError(f"the collection has nothing that {name} could hold", file=export.collection.path)
