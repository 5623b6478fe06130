"""A tiny retrieval world: a BEIR folder, runs on it, and a function that embeds texts by their words."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.config import inputs, load
from liebig.base.workspace import stage
from liebig.evaluation.comparison import CompareConfig
from liebig.stages.evaluate import EvaluateConfig
from liebig.stages.init import InitConfig

PASSAGES = {
    "p1": ("Berlin", "Berlin is the capital of Germany."),
    "p2": ("Paris", "The capital of France lies on the Seine."),
    "p3": ("", "Rome was not built in a day."),
    "p4": ("Vienna", "Vienna has been a capital for centuries."),
    "p5": ("", "Bananas are yellow."),
}
QUERIES = {
    "q1": ("capital of Germany", ["Berlin"]),
    "q2": ("capital of France", ["Paris"]),
    "q3": ("city on the Tiber", ["Rome", "Roma"]),
    "q4": ("yellow fruit", ["..."]),
}
GRADES = {"q1": {"p1": 2, "p4": 0}, "q2": {"p2": 1}, "q3": {"p3": 1, "p9": 1}, "q4": {"p5": 1}}
GOOD = {
    "q1": {"p1": 3.0, "p2": 2.0, "p4": 1.0},
    "q2": {"p2": 3.0, "p1": 2.0},
    "q3": {"p5": 1.0, "p3": 0.5},
}
BAD = {"q1": {"p5": 3.0, "p1": 2.0}, "q2": {"p5": 3.0}, "q4": {"p1": 1.0}}


def beir_folder(path: Path, passages: Mapping[str, tuple[str, str]] = PASSAGES) -> Path:
    (path / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in passages.items()]
    (path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": name, "text": text, "answers": answers} for name, (text, answers) in QUERIES.items()]
    (path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"{query}\t{p}\t{grade}\n" for query, of in GRADES.items() for p, grade in of.items())
    (path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return path


def write_run(path: Path, run: Mapping[str, Mapping[str, float]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{q} Q0 {p} {i} {s} t\n" for q, hits in run.items() for i, (p, s) in enumerate(hits.items(), 1)]
    path.write_text("".join(lines))
    return path


def bag_of_words(texts: Sequence[Any], role: str | None) -> NDArray[np.float32]:
    """Counts of hashed words: similar texts have similar vectors."""
    vectors = np.zeros((len(texts), 4096), dtype=np.float32)
    for i, text in enumerate(texts):
        words = text if isinstance(text, str) else text.text
        for word in words.lower().replace(".", "").split():
            vectors[i, zlib.crc32(word.encode()) % 4096] += 1
    return vectors


def exact(queries: NDArray[np.float32], passages: NDArray[np.float32], k: int) -> tuple[Any, Any]:
    scores = queries @ passages.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


def run_evaluate(out: Path, **values: Any) -> Path:
    return _run(EvaluateConfig, "liebig.stages.evaluate", out, values)


def run_compare(out: Path, **values: Any) -> Path:
    return _run(CompareConfig, "liebig.stages.compare", out, values)


def run_init(out: Path, *paths: Path) -> Path:
    return _run(InitConfig, "liebig.stages.init", out, {"paths": [str(path) for path in paths]})


def _run(config: Any, module: str, out: Path, values: dict[str, Any]) -> Path:
    from importlib import import_module

    recipe = load(config, values=values)
    with stage(out, kind="test", recipe=recipe.model_dump(mode="json"), inputs=inputs(recipe)) as folder:
        import_module(module).run(recipe, folder)
    return out
