"""Models for other libraries: a sentence-transformers folder, and ONNX graphs checked against torch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from liebig.base.errors import ModelError, RecipeError
from liebig.export import Target
from liebig.model.encoder import Encoder
from liebig.model.onnx_graph import ABOUT, ADDED, GRAPH
from liebig.search.embed import Embedder
from liebig.search.retriever_folder import exclusive, read
from liebig.stages.onnx import export

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
    return encoder.describe()


def to_onnx(target: Target, path: Path, *, int8: bool) -> str:
    """Write a graph for ONNX Runtime, and say how near to torch its vectors are."""
    encoder = Encoder.load(target.model)
    export(encoder, path, int8=int8)
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
