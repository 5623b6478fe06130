"""Labels behind a system: its own, those of the generator of its queries, and those of what it began from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liebig.base.workspace import stage
from liebig.evaluation.scoring import labels_note


def made(out: Path, kind: str, recipe: dict[str, Any], *keys: str, labels: list[str] | None = None) -> Path:
    """A finished stage that has read what stands in its recipe at the keys."""
    paths = {}
    for key in keys:
        value: Any = recipe
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        paths[key] = out.parent / value
    with stage(out, kind=kind, recipe=recipe, inputs=paths) as folder:
        (folder.path / "model").mkdir()
        folder.write_text("model/some.txt", out.name)
        if labels is not None:
            folder.write_json("generation.json", {"labels": labels})
    return out


def chain(root: Path, labels: list[str]) -> Path:
    """Spans and generated queries, then fine-tuning with negatives of a retriever; paths from `root`."""
    for name in ("squad", "scifact"):
        made(root / name, "init", {})
    made(root / "queries", "queries generate", {"collection": "scifact"}, "collection", labels=labels)
    parts = [{"source": {"kind": "spans"}}, {"source": {"collection": "queries", "split": "generated"}}]
    made(root / "start", "pretrain", {"source": {"parts": parts}}, "source.parts.1.source.collection")
    made(root / "run", "retrieve", {"collection": "scifact", "model": "start/model"}, "collection", "model")
    recipe = {
        "collection": "squad",
        "split": "train",
        "groups": ["run"],
        "evaluation": {"collection": "scifact"},
    }
    return made(root / "tuned", "finetune", recipe, "collection", "groups.0", "evaluation.collection")


def test_a_system_has_its_own_labels_and_those_of_the_generator_of_its_queries(tmp_path):
    tuned = chain(tmp_path, ["medquad, train: 9 pairs"])
    (note,) = labels_note("tuned", tuned / "model")
    assert note == "Labels behind tuned: squad, train; medquad, train: 9 pairs (through generated queries)."
    (note,) = labels_note("start", tmp_path / "start" / "model")
    assert note == "Labels behind start: medquad, train: 9 pairs (through generated queries)."


def test_what_is_not_known_is_not_called_none(tmp_path):
    chain(tmp_path, [])
    (note,) = labels_note("start", tmp_path / "start" / "model")
    assert note == "Labels behind start: labels not known (through generated queries)."
    assert labels_note("squad", tmp_path / "squad") == ("Labels behind squad: none known.",)
    (tmp_path / "other").mkdir()
    assert labels_note("other", tmp_path / "other" / "run.trec") == ()
    (tmp_path / "start" / "manifest.json").write_text("{}")
    (note,) = labels_note("start", tmp_path / "start" / "model")
    assert note == "Labels behind start: start: labels not known."
