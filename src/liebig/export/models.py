"""Models for other libraries: a sentence-transformers folder with its card, and ONNX graphs checked against torch."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base import workspace
from liebig.base.errors import LiebigError, ModelError, RecipeError
from liebig.base.progress import counted
from liebig.builder.check import sentences
from liebig.collection import Collection
from liebig.export import Target
from liebig.model.encoder import Encoder, usage
from liebig.model.onnx_graph import ABOUT, ADDED, GRAPH
from liebig.search.embed import Embedder
from liebig.search.retriever_folder import WORK, exclusive, read
from liebig.stages.onnx import export

# The model card of an export: what it was made from and how, what it is worth, what it is for, and where it ends.
#
# Everything in it is read from the manifests and checks beside the model; what is not known is said to be unknown.

HEAD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, liebig]
---
"""


def card(target: Target, encoder: Encoder) -> str:
    """The card as Markdown."""
    name = (target.folder if target.description else target.model).resolve().name
    parts = [
        f"{HEAD}\n# {name}\n\nA dense retriever. {encoder.describe()}\n",
        usage(encoder),
        "## Data\n\n" + _data(target),
        "## Recipe\n\n" + _recipe(target),
        "## Results\n\n" + _results(target),
        "## Intended use\n\n" + _use(target),
        "## Limits\n\n" + _limits(target, encoder),
    ]
    return "\n".join(parts)


def _data(target: Target) -> str:
    if target.description is None:
        return "Not recorded: this is a model's folder without the corpus it was trained on.\n"
    collection = Collection(target.folder / target.description.collection)
    documents, passages = collection.count("documents"), collection.count("passages")
    if _asked(target):
        return (
            f"The corpus has {counted(documents, 'documents')} in {counted(passages, 'passages')}. The encoder was "
            "trained on judged questions about it. What the starting encoder had read is said in its own card.\n"
        )
    trained = "was trained on" if _trained(target) else "has not been trained on"
    return (
        f"The corpus has {counted(documents, 'documents')} in {counted(passages, 'passages')}. "
        f"The encoder {trained} it; no questions, clicks or relevance labels were used. "
        "What the starting encoder had read is said in its own card.\n"
    )


def _recipe(target: Target) -> str:
    if _asked(target):
        return (
            "The encoder learned to find the passages that were judged relevant, among all others, by the vectors that "
            "the encoder before training had made of them: embed passages with that one, questions with this one.\n"
        )
    recipe = _trained(target)
    if recipe is None:
        return "The encoder was not trained further: no training on this corpus is recorded.\n"
    return f"`liebig pretrain` with\n\n```json\n{json.dumps(recipe, indent=2, ensure_ascii=False)}\n```\n"


def _asked(target: Target) -> bool:
    """Whether the model in use is the one that a build trained on the user's own questions."""
    name = "model.safetensors"
    try:
        ours = workspace.read_manifest(target.model).outputs.get(name)
        made = workspace.read_manifest(target.folder / WORK / "learnt").outputs.get(f"model/{name}")
    except LiebigError:
        return False
    return ours is not None and ours == made


def _trained(target: Target) -> dict[str, Any] | None:
    """The recipe of the training, where the model in use is the one it made, or its mean with the start."""
    name = "model.safetensors"
    try:
        manifest = workspace.read_manifest(target.folder / WORK / "trained")
        ours = workspace.read_manifest(target.model).outputs.get(name)
        mean = target.folder / WORK / "mean"
        halved = mean.is_dir() and workspace.read_manifest(mean).outputs.get(f"model/{name}") == ours
    except LiebigError:
        return None
    if not halved and manifest.outputs.get(f"model/{name}") != ours:
        return None
    return _settings({**manifest.recipe, **({"weights": "the mean of before and after"} if halved else {})})


def _settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader wants to know of a training."""
    return {
        key: recipe[key]
        for key in ("source", "objective", "loop", "optim", "max_length", "weights")
        if key in recipe
    }


def _results(target: Target) -> str:
    description = target.description
    if description is None or description.checks is None:
        return "None are recorded with this model.\n"
    checks = json.loads((target.folder / description.checks / "checks.json").read_text(encoding="utf-8"))
    lines = "\n".join(sentences(checks))
    return (
        f"```text\n{lines}\n```\n\nKnown-item questions are made from the corpus itself: they tell systems apart on "
        "this corpus, and say little about other questions.\n"
    )


def _use(target: Target) -> str:
    where = "this corpus and texts like it" if target.description else "texts like those it was trained on"
    return (
        f"Finding passages for questions in {where}, alone or beside BM25. Not for decisions about people.\n"
    )


def _limits(target: Target, encoder: Encoder) -> str:
    return (
        f"Texts longer than {encoder.max_length} tokens are cut or divided. The languages are those of its data. "
        "Similar vectors are no proof that a passage answers a question or is true; the biases of the corpus and of "
        "the starting encoder are in them.\n"
    )


def write_card(target: Target, encoder: Encoder, path: Path) -> None:
    """Write the card as the folder's README."""
    (path / "README.md").write_text(card(target, encoder), encoding="utf-8")


WITHIN = 1e-4  # what an fp32 graph may differ from torch, relative to the largest number of a vector
PROBES = (
    "What limits the growth of barley?",
    "A single word",
    "nutrient",
    "The soil is exhausted by the harvest. " * 40,
)


def to_sentence_transformers(target: Target, path: Path) -> str:
    """Write a folder that sentence-transformers and transformers load."""
    encoder = Encoder.load(target.model)
    encoder.save(path)
    write_card(target, encoder, path)
    return f"{encoder.describe()}"


def to_onnx(target: Target, path: Path, *, int8: bool) -> str:
    """Write a graph for ONNX Runtime, and say how near to torch its vectors are."""
    encoder = Encoder.load(target.model)
    export(encoder, path, int8=int8)
    write_card(target, encoder, path)
    off = difference(encoder, path)
    if not int8 and off > WITHIN:
        raise ModelError(f"the vectors of the graph differ from torch's by {off:.1e}", file=path)
    return f"vectors differ from torch's by at most {off:.1e} of their largest number"


def add_graph(encoder: Encoder, folder: Path, *, int8: bool = False) -> Path:
    """Put a graph into the folder of its model, for installations without torch; gives the graph's folder."""
    with tempfile.TemporaryDirectory(prefix=".onnx-", suffix=".tmp", dir=folder) as scratch:
        export(encoder, made := Path(scratch) / ADDED, int8=int8)
        for path in made.iterdir():  # the model's own folder has the tokenizer, the settings and the weights
            if not path.name.startswith(GRAPH) and path.name != ABOUT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(folder / ADDED, ignore_errors=True)
        return made.rename(folder / ADDED)


def add_onnx(source: Path, *, int8: bool) -> str:
    """Put a graph of the model of questions into a retriever's own folder, for installations without torch."""
    description = read(source)
    model = description.query or description.model
    if model is None:
        raise RecipeError("the retriever has no model in its folder", file=source, fix="build it again")
    encoder = Encoder.load(source / model)
    with exclusive(source):
        graph = add_graph(encoder, source / model, int8=int8)
    off = difference(encoder, graph)
    if not int8 and off > WITHIN:
        shutil.rmtree(graph)
        raise ModelError(f"the vectors of the graph differ from torch's by {off:.1e}", file=graph)
    return f"{graph}: vectors differ from torch's by at most {off:.1e} of their largest number"


def difference(encoder: Encoder, path: Path) -> float:
    """The largest difference between the graph's vectors and torch's, relative to the largest number."""
    expected = Embedder(encoder, unit=False, half=False).vectors(PROBES, "passage")
    vectors = Embedder(encoder, unit=False, folder=path).vectors(PROBES, "passage")
    return float(np.abs(vectors - expected).max() / np.abs(expected).max())
