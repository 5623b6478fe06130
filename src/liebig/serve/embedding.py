"""Texts to vectors for a server: what waits becomes packed rows for the lean forward, one thread a core.

Queries and passages have their own prompts; those with the same prompt share rows. The vectors are the model's own;
whether they are scaled to length 1 is asked for at the end. Cost: the model's on real tokens, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from liebig.encode import rows
from liebig.encode.engine import TOKENS_CPU, TOKENS_CUDA, Model, TorchModel, frame_of, skip_of
from liebig.encode.rows import Frame, Window
from liebig.encode.tokens import Preparing
from liebig.model.encoder import Encoder

Kind = Literal["passage", "query"]
Floats = NDArray[np.float32]
CHARACTERS = 4  # of a token, in the estimate that batches are made by


@dataclass(frozen=True)
class Asked:
    """A text, and what it is."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class Embedded:
    """A vector, the tokens it is made of, and whether some were cut off."""

    vector: Floats
    tokens: int
    cut: bool


class Embedder:
    """An encoder as the index used it."""

    def __init__(self, encoder: Encoder, prompts: dict[Kind, str], *, unit: bool) -> None:
        self.encoder, self.unit, self._prompts = encoder, unit, prompts
        self._models: dict[int, Model] = {}
        self._frames: dict[Kind, Frame] = {kind: frame_of(encoder, name) for kind, name in prompts.items()}

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
        """The kind that stands for all with the same prompt."""
        texts = {kind: self.encoder.prompt_text(name) for kind, name in self._prompts.items()}
        return {kind: next(k for k in texts if texts[k] == text) for kind, text in texts.items()}

    def cost(self, text: str) -> int:
        """About how many tokens a text has."""
        return min(len(text) // CHARACTERS + 3, self.encoder.max_length)

    def embed(self, asked: Sequence[Asked]) -> list[Embedded]:
        """The vectors of texts, in order."""
        found: list[Embedded | None] = [None] * len(asked)
        for kind in dict.fromkeys(self._kinds[item.kind] for item in asked):
            places = [i for i, item in enumerate(asked) if self._kinds[item.kind] == kind]
            for place, made in zip(places, self._embed([asked[i].text for i in places], kind)):
                found[place] = made
        return found  # type: ignore[return-value]  # every place was filled

    def _embed(self, texts: Sequence[str], kind: Kind) -> list[Embedded]:
        encoder, frame = self.encoder, self._frames[kind]
        preparing = Preparing(encoder.prompt_text(self._prompts[kind]), encoder.lowercase)
        window = Window(*encoder.tokenizer.encode_packed([preparing.text(text) for text in texts]))
        pieces = rows.first_pieces(window, frame)
        sizes = rows.lengths(pieces, frame)
        groups = rows.by_budget(sizes, self.budget)
        packed = ((*rows.row(window, pieces, frame, chosen), chosen) for chosen in groups)
        vectors = self._model(frame).start(packed, len(texts))()
        cut = np.diff(window.offsets) > frame.room
        return [Embedded(v, n, c) for v, n, c in zip(vectors, sizes.tolist(), cut.tolist())]

    def _model(self, frame: Frame) -> Model:
        """The forward; made in a thread that computes, whose number of threads it keeps."""
        skip = skip_of(self.encoder, frame)
        if skip not in self._models:
            self._models[skip] = TorchModel(self.encoder, skip=skip)
        return self._models[skip]


def unit_length(vectors: Floats) -> Floats:
    """Scaled to length 1."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
