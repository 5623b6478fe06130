"""The same vectors without torch: a model exported to ONNX, optionally in int8, run by ONNX Runtime.

A graph goes from token ids and mask to vectors; it lies in a model folder of the usual form, with the tokenizer and the
settings that it needs, or was added to one. `onnx_export.py` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from liebig.base.errors import MissingDependency, ModelError
from liebig.base.machine import threads as free_threads
from liebig.model.onnx_graph import ABOUT, graph_folder, padded, session
from liebig.model.packed_rows import Floats, PackedRow, nothing
from liebig.model.settings import ModelSettings, TextReader, read_json
from liebig.vectors.quantise import unit_length

if TYPE_CHECKING:
    from liebig.model.encoder import Encoder


class OnnxEncoder(TextReader):
    """A model's folder with a graph, read without torch: tokenizer, prompts and lengths; `OnnxModel` is its forward."""

    def __init__(self, folder: Path) -> None:
        graph = graph_folder(folder)
        if graph is None:
            added = "or add one where torch is: liebig export RETRIEVER --to onnx"
            raise MissingDependency("torch", "train", f"{folder}: a model without an ONNX graph", added)
        about, settings = read_json(graph / ABOUT), ModelSettings.read(folder)
        try:
            self.width, self._positions = int(about["width"]), int(about["positions"])
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                "does not say how long texts may be", file=graph / ABOUT, fix="export again"
            ) from None
        self.tokenizer, self.layout = settings.tokenizer, settings.layout
        self.max_length = min(settings.max_length or self._positions, self._positions)
        self.prompts, self.default_prompt = dict(settings.prompts), settings.default_prompt
        self.similarity, self.lowercase = settings.similarity, settings.lowercase
        self.pool_prompt = settings.pool_prompt

    @property
    def max_positions(self) -> int:
        return self._positions


class OnnxModel:
    """An export, as the engine wants a model; every core has rows of its own."""

    def __init__(
        self, folder: Path, encoder: Encoder | OnnxEncoder, *, unit: bool = False, threads: int | None = None
    ) -> None:
        self._session = session(folder)
        self._pad, self._unit, self.width = encoder.tokenizer.pad, unit, encoder.width
        self._threads = threads or free_threads()

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Vectors of `count` pieces; they are there when this returns."""
        out = np.empty((count, self.width), np.float32)

        def run_row(row: PackedRow) -> int:
            tokens, numbers = row
            vectors = self._session.run(["vectors"], padded(tokens, self._pad))[0]
            out[numbers] = unit_length(vectors) if self._unit else vectors
            return len(tokens.values)

        with ThreadPoolExecutor(self._threads) as pool:
            for size in pool.map(run_row, packed):
                done(size)
        return lambda: out
