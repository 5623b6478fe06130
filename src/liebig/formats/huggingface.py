"""Collections written as Parquet files for the Hugging Face hub, as the data sets of MTEB have them.

They are read as `passages`, `questions` and `qrels-rows`, whose rules know Parquet; hub_dataset.py reads data sets by
their names.
"""

from __future__ import annotations

from liebig.formats.base import Export, Format
from liebig.formats.output import write_parquet

STRING, PART = "large_string", "00000-of-00001.parquet"


def write_huggingface(export: Export) -> None:
    """Parquet files corpus/, queries/ and default/SPLIT, as the data sets of MTEB have them."""
    folder, collection = export.folder, export.collection
    if collection.has("passages") or collection.has("documents"):
        rows = ({"_id": p.id, "title": p.title, "text": p.text} for p in export.passages())
        columns = {"_id": STRING, "title": STRING, "text": STRING}
        write_parquet(folder / "corpus" / f"corpus-{PART}", rows, columns)
    if collection.has("queries"):
        rows = ({"_id": q.id, "text": q.text} for q in export.queries())
        write_parquet(folder / "queries" / f"queries-{PART}", rows, {"_id": STRING, "text": STRING})
    columns = {"query-id": STRING, "corpus-id": STRING, "score": "int64"}
    for split in export.splits_of("judgements"):
        judged = (
            {"query-id": j.query, "corpus-id": j.passage, "score": j.relevance}
            for j in export.judgements(split)
        )
        write_parquet(folder / "default" / f"{split}-{PART}", judged, columns)


HUGGINGFACE = Format(
    name="huggingface", about="Parquet files for the Hugging Face Hub", write=write_huggingface
)
