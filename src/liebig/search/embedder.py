"""Texts to vectors as the index has them: packed rows for the lean forward, as `liebig encode` makes them.

Queries and passages have their own prompts; those with the same prompt share rows. The vectors are the model's own;
whether they are scaled to length 1 is asked for at the end. Cost: the model's on real tokens, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.model.encoder import Encoder
from liebig.search import embed as rows
from liebig.search.embed import TOKENS_CPU, TOKENS_CUDA, Longs, Model, TorchModel, frame_of
from liebig.text.layout import Record, RoleLayout

Kind = Literal["passage", "query"]
Floats = NDArray[np.float32]
CHARACTERS = 4  # of a token, in the estimate that batches are made by


@dataclass(frozen=True)
class Asked:
    """A text, and what it is."""

    text: Record
    kind: Kind


@dataclass(frozen=True)
class Embedded:
    """A vector, the tokens it is made of, and whether some were cut off."""

    vector: Floats
    tokens: int
    cut: bool


class Embedder:
    """An encoder as the index used it."""

    def __init__(self, encoder: Encoder, passage: RoleLayout, query: RoleLayout, *, unit: bool) -> None:
        """With the layouts of both kinds, as the index has them."""
        self.encoder, self.unit = encoder, unit
        self._layouts: dict[Kind, RoleLayout] = {"passage": passage, "query": query}
        self._models: dict[tuple[int, int], Model] = {}

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.encoder.device.type == "cuda"

    @property
    def budget(self) -> int:
        """Tokens of a batch."""
        return TOKENS_CUDA if self.cuda else TOKENS_CPU

    @cached_property
    def _kinds(self) -> dict[Kind, Kind]:
        """The kind that stands for all that are read alike; the title rule says nothing about queries."""
        manner = {kind: (layout.prompt, layout.length) for kind, layout in self._layouts.items()}
        return {kind: next(k for k in manner if manner[k] == how) for kind, how in manner.items()}

    def cost(self, text: str) -> int:
        """About how many tokens a text has."""
        return min(len(text) // CHARACTERS + 3, self.encoder.max_length)

    def vectors(self, texts: Sequence[Record], kind: Kind) -> Floats:
        """The vectors of texts of one kind, scaled as those of the index are, N x D."""
        vectors = self._rows(texts, kind)[0]
        return unit_length(vectors) if self.unit else vectors

    def embed(self, asked: Sequence[Asked]) -> list[Embedded]:
        """The vectors of texts of any kind, in order, as the model makes them."""
        found: list[Embedded | None] = [None] * len(asked)
        for kind in dict.fromkeys(self._kinds[item.kind] for item in asked):
            places = [i for i, item in enumerate(asked) if self._kinds[item.kind] == kind]
            vectors, sizes, cut = self._rows([asked[i].text for i in places], kind)
            for place, *made in zip(places, vectors, sizes.tolist(), cut.tolist()):
                found[place] = Embedded(*made)
        return found  # type: ignore[return-value]  # every place was filled

    def _rows(self, texts: Sequence[Record], kind: Kind) -> tuple[Floats, Longs, NDArray[np.bool_]]:
        """Vectors, their numbers of tokens, and whether some were cut off."""
        layout = self._layouts[kind]
        frame = frame_of(layout)
        window = layout.tokens([layout.text(text) for text in texts])
        pieces = rows.first_pieces(window, frame)
        sizes = rows.lengths(pieces, frame)
        packed = rows.packed_rows(window, pieces, frame, self.budget)
        vectors = self._model(layout).start(packed, len(texts))()
        return vectors, sizes, window.lengths > frame.room

    def _model(self, layout: RoleLayout) -> Model:
        """The forward, which keeps the number of threads of the thread it is made in."""
        kind = self.encoder.skip(layout), torch.get_num_threads()
        if kind not in self._models:
            self._models[kind] = TorchModel(self.encoder, skip=kind[0])
        return self._models[kind]


def unit_length(vectors: Floats) -> Floats:
    """Scaled to length 1."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
