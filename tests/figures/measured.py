"""Quality on small sets that never change; `python -m tests.figures.measured` writes what is measured now as expected.

`docs/` is a hundred paragraphs of Liebig's pages, as they once were, with forty questions written by hand. The other
set is that of the smoke recipes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from liebig import encoders
from liebig.base import pipeline
from liebig.base.progress import set_volume
from liebig.collection import Collection
from liebig.measures import parse_all
from liebig.measures.evaluator import block_from_mapping, evaluate, judgements_from_records
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES
from tests.worlds.smoke import ROOT

HOME = Path(__file__).parent
EXPECTED = HOME / "expected.json"
MEASURES = ("nDCG@10", "RR@10", "R@10")
SETS = {"docs": (HOME / "docs", "test"), "smoke": (ROOT / "recipes" / "smoke" / "texts", "generated")}
Figures = dict[str, dict[str, float]]


def measure(name: str, out: Path) -> Figures:
    """Every measure of every system on a set; by BM25 alone where the questions are many."""
    path, split = SETS[name]
    dense = name == "docs"
    model = f"{encoders.PREFIX}{encoders.DEFAULT}"
    recipe = {
        "collection": {"kind": "init", "paths": [str(path)]},
        "bm25": {"kind": "bm25", "collection": "@collection"},
        "index": {"kind": "encode", "source": "@collection", "model": model},
        "sentences": {"kind": "encode", "source": "@collection", "model": model, "what": "sentences"},
    }
    stages = recipe if dense else {part: recipe[part] for part in ("collection", "bm25")}
    pipeline.run(pipeline.plan_stages(STAGES, stages, out), lambda line: None)
    parts = {"collection": "collection", "bm25": "bm25"}
    if not dense:
        return {"bm25": _score(out, split, RetrieverDescription(1, "bm25", **parts))}
    (out / "model").symlink_to(encoders.folder())
    plain = RetrieverDescription(1, "hybrid", **parts, index="index", model="model")
    whole = RetrieverDescription(2, "hybrid", **parts, index="index", model="model", sentences="sentences")
    return {
        **{system: _score(out, split, plain, system) for system in ("bm25", "dense", "hybrid")},
        "hybrid with sentences": _score(out, split, whole),
    }


def _score(
    out: Path, split: str, description: RetrieverDescription, system: str | None = None
) -> dict[str, float]:
    write(out, description)
    collection = Collection(out / "collection")
    queries = list(collection.queries(split))
    results = Retriever.from_folder(out).search_many([query.text for query in queries], 10, system)
    run = {query.id: {hit.id: hit.score for hit in hits} for query, hits in zip(queries, results)}
    judgements = judgements_from_records(collection.judgements(split))
    means = evaluate([block_from_mapping(run)], judgements, parse_all(MEASURES)).means()
    return {name: round(value, 4) for name, value in means.items()}


if __name__ == "__main__":
    set_volume("quiet")
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, Path(folder) / name) for name in SETS}
    EXPECTED.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(EXPECTED.read_text())
