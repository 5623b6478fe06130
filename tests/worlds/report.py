"""A folder of stages as a project leaves them: data, a training run, evaluations of two systems, analyses."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.config import inputs, load
from liebig.base.statistics import bootstrap
from liebig.base.workspace import stage
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.evaluation.results import PerQuery, Results, TaskResult, query_lines
from liebig.stages.report import ReportConfig, run

NASTY = '<script>alert("x")</script> & "quotes"'


def make_world(root: Path) -> Path:
    make_stage(root / "data", "init", {"summary.json": summary()})
    make_stage(root / "train" / "mlm", "pretrain", {}, log=True, seed=7)
    rng = np.random.default_rng(0)
    easy = rng.random(40)
    make_stage(root / "bm25", "evaluate", {}, values=easy * 0.5, system="BM25")
    make_stage(root / "dense", "evaluate", {}, values=easy * 0.5 + 0.3, system=NASTY)
    make_stage(root / "attention", "attention", {}, plot=True)
    make_stage(root / "space", "space", {"space.json": {"passages": 50, "models": {"a": {"isotropy": 0.5}}}})
    return root


def summary() -> dict[str, Any]:
    return {
        "sources": [{"path": "articles/", "format": "texts"}],
        "counts": {"documents": 12, "passages": 340},
        "lengths": {"passages": {"total": 90_000, "median": 260.0, "longest": 900}},
        "warnings": [{"sentence": "2 passages without any text"}],
    }


def make_stage(
    out: Path,
    kind: str,
    files: dict[str, Any],
    *,
    log: bool = False,
    plot: bool = False,
    values: np.ndarray | None = None,
    system: str = "",
    seed: int | None = None,
    **task: Any,
) -> None:
    stores = [{"path": "runs/store", "weight": None}, {"path": "b", "weight": 0.5}]
    nested = {"on": True, "none": None}
    recipe = {"name": "it's", "number": "12", "sizes": [1, 2], "stores": stores, "nested": nested}
    with stage(out, kind=kind, recipe=recipe, inputs={}, seed=seed) as folder:
        for name, tree in files.items():
            folder.write_json(name, tree)
        if log:
            _write_log(folder.path)
        if plot:
            svg = lines("attention", [Series("a", [1, 2], [0.5, 0.7])], Axes("layer", "entropy"))
            write_svg(folder.path / "attention.svg", svg)
        if values is not None:
            _write_results(folder.path, values, system, **task)


def _write_log(folder: Path) -> None:
    rows = [{"step": s, "loss": 9 / s, "losses": {"head": 5 / s, "late": 4 / s}} for s in range(1, 1001)]
    rows += [
        {"step": 500, "evaluation": {"RR@10": 0.2}, "best": True},
        {"step": 1000, "evaluation": {"RR@10": 0.3}, "best": True},
        {"step": 1000, "event": "stopped early"},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 10')
    timing = [{"step": s, "tokens_per_second": 1e6, "waiting": 0.02, "peak_gib": s} for s in (1, 2)]
    (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timing))


def _write_results(
    folder: Path, values: np.ndarray, system: str, measure: str = "nDCG@10", **task: Any
) -> None:
    per_query = PerQuery(tuple(f"q{i}" for i in range(len(values))), (measure,), values[:, None])
    (folder / "queries").mkdir()
    (folder / "queries" / "x.jsonl").write_text("\n".join(query_lines(per_query, {})) + "\n")
    result = TaskResult(
        task="cities",
        split="test",
        kind="judgements",
        queries=len(values),
        measures={measure: bootstrap(values, samples=200)},
        remarks="40 queries, 0 missing",
        notes=["a note"],
        values="queries/x.jsonl",
        recall={"1": 0.2, "10": 0.5, "100": 0.9},
        **task,
    )
    (folder / "results.json").write_text(json.dumps(asdict(Results(system, [result]))))


def make_report(folders: list[Path], out: Path, **values: Any) -> Path:
    recipe = load(ReportConfig, values={"folders": folders, "samples": 200, **values})
    with stage(out, kind="report", recipe=recipe.model_dump(mode="json"), inputs=inputs(recipe)) as folder:
        run(recipe, folder)
    return out
