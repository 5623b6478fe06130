"""Collections written as Parquet files for the Hugging Face hub, as the data sets of MTEB have them.

They are read as `passages`, `questions`, `qrels-rows` and `tuples`, whose rules know Parquet; hub_dataset.py reads data
sets by their names.
"""

from __future__ import annotations

from dataclasses import replace

from liebig.formats.base import Export, Format
from liebig.formats.output import write_parquet
from liebig.formats.tuples import write_pair_tables, write_tuple_table


def write_huggingface(export: Export) -> None:
    """Parquet files corpus/, queries/ and default/SPLIT, as the data sets of MTEB have them; tuples and pairs too."""
    string, number = "large_string", "00000-of-00001.parquet"
    if export.collection.has("passages") or export.collection.has("documents"):
        passages = ({"_id": p.id, "title": p.title, "text": p.text} for p in export.passages())
        columns = {"_id": string, "title": string, "text": string}
        write_parquet(export.folder / "corpus" / f"corpus-{number}", passages, columns)
    if export.collection.has("queries"):
        queries = ({"_id": q.id, "text": q.text} for q in export.queries())
        write_parquet(
            export.folder / "queries" / f"queries-{number}", queries, {"_id": string, "text": string}
        )
    for split in export.splits_of("judgements"):
        judgements = (
            {"query-id": j.query, "corpus-id": j.passage, "score": j.relevance}
            for j in export.judgements(split)
        )
        columns = {"query-id": string, "corpus-id": string, "score": "int64"}
        write_parquet(export.folder / "default" / f"{split}-{number}", judgements, columns)
    tables = replace(export, container="parquet")
    for split in export.splits_of("tuples"):
        write_tuple_table(tables, split)
    write_pair_tables(tables)


HUGGINGFACE = Format(
    name="huggingface", about="Parquet files for the Hugging Face Hub", write=write_huggingface
)
