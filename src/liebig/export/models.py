"""Models for other libraries: a sentence-transformers folder, and an ONNX graph that is held against torch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from liebig.base.errors import ModelError, RecipeError
from liebig.export.card import evaluations_of, write_card
from liebig.export.exported import Target
from liebig.model.encoder import Dense, Encoder, Normalize
from liebig.search.embed import Embedder
from liebig.search.onnx_export import add_graph, export
from liebig.search.retriever_folder import exclusive, read

WITHIN = 1e-4  # what an fp32 graph may differ from torch, relative to the largest number of a vector
PROBES = (
    "What limits the growth of barley?",
    "A single word",
    "nutrient",
    "The soil is exhausted by the harvest. " * 40,
)


def narrowed(encoder: Encoder, width: int | None) -> Encoder:
    """The encoder with the first `width` numbers of its vectors (Matryoshka), of length 1 if they were."""
    if width is None:
        return encoder
    if not 0 < width <= encoder.width:
        raise RecipeError(
            f"vectors of width {encoder.width} cannot be cut to {width}", fix=f"use 1 to {encoder.width}"
        )
    cut = Dense(encoder.width, width, bias=False)
    torch.nn.init.eye_(cut.linear.weight)
    unit = [Normalize()] if any(isinstance(part, Normalize) for part in encoder.tail) else []
    encoder.tail.extend([cut, *unit])
    return encoder


def to_sentence_transformers(
    target: Target, path: Path, width: int | None, evaluations: Sequence[Path] = ()
) -> str:
    """Write a folder that sentence-transformers and transformers load, with the results of evaluations in its card."""
    results = evaluations_of(target, evaluations)
    encoder = narrowed(Encoder.load(target.model), width)
    encoder.save(path)
    write_card(target, encoder, path, results)
    return f"{encoder.describe()}"


def to_onnx(target: Target, path: Path, width: int | None, *, int8: bool) -> str:
    """Write a graph for ONNX Runtime, and say how near to torch its vectors are."""
    encoder = narrowed(Encoder.load(target.model), width)
    export(encoder, path, int8=int8)
    write_card(target, encoder, path)
    off = difference(encoder, path)
    if not int8 and off > WITHIN:
        raise ModelError(f"the vectors of the graph differ from torch's by {off:.1e}", file=path)
    return f"vectors differ from torch's by at most {off:.1e} of their largest number"


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
