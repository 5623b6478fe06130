"""Which labels are behind a system, also through a generator of queries: followed from folder to folder.

A stage's manifest names the folders it read. Training on a collection counts as its labels, training on generated
queries as those that their generator has seen (`generation.json`), and on pairs made of the corpus itself as none. What
was only searched or evaluated on does not count, and a run of `liebig retrieve` has the labels of its own system alone:
BM25's has not those of the encoder beside it. A folder that was not made by a stage, or is gone, ends the trail.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from liebig.base.errors import WorkspaceError
from liebig.base.workspace import MANIFEST, read_manifest

TRAINING = ("pretrain", "finetune", "queries train", "rerank train")
COLLECTIONS = ("collection", "collections")
GENERATION = "generation.json"
SYSTEMS = {"bm25.trec": ("bm25",), "dense.trec": ("dense", "model", "vectors")}  # what a run was made with


def labels_note(name: str, system: Path) -> tuple[str, ...]:
    """The sentence that stands beside a system's numbers; none where nothing is known about it."""
    if _home(system) is None:
        return ()
    found = dict.fromkeys(labels_behind(system, set()))
    return (f"Labels behind {name}: {'; '.join(found) or 'none known'}.",)


def labels_behind(path: Path, seen: set[Path]) -> Iterator[str]:
    """The labels of the stage that made a folder or file, and of all that it read."""
    home = _home(path)
    if home is None or home in seen:
        return
    seen.add(home)
    try:
        manifest = read_manifest(home)
    except WorkspaceError:  # no reason to lose an evaluation
        yield f"{home.name}: labels not known"
        return
    only = SYSTEMS.get(path.name) if manifest.kind == "retrieve" else None
    for key in manifest.inputs:
        if only is not None and key not in only:
            continue
        other = _found(_at(manifest.recipe, key), home)
        *above, name = key.rstrip(".0123456789").split(".")
        if other is None or key.startswith("evaluation."):
            continue
        if name not in COLLECTIONS:
            yield from labels_behind(other, seen)
        elif manifest.kind in TRAINING:
            yield from _of_collection(other, _at(manifest.recipe, ".".join([*above, "split"])))


def _of_collection(folder: Path, split: str | None) -> Iterator[str]:
    path = folder / GENERATION
    if not path.is_file():
        yield folder.name + (f", {split}" if split else "")
        return
    about = json.loads(path.read_text(encoding="utf-8"))
    if about.get("of_the_corpus"):
        return
    for label in about.get("labels") or ["labels not known"]:
        yield f"{label} (through generated queries)"


def _home(path: Path) -> Path | None:
    """The folder of the stage that made a folder or file: itself, or the one it lies in."""
    return next((p.resolve() for p in (path, path.parent) if (p / MANIFEST).is_file()), None)


def _at(recipe: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = recipe
    for part in key.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        else:
            value = value[int(part)] if isinstance(value, list) and part.isdigit() else None
    return value


def _found(value: Any, home: Path) -> Path | None:
    """The folder or file that a recipe names, from here or from where the stage may have been run."""
    if not isinstance(value, str):
        return None
    return next((p for p in (Path(value), *(up / value for up in home.parents)) if p.exists()), None)
