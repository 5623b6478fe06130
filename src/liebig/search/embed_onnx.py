"""The same vectors without torch: a model exported to ONNX, optionally in int8, run by ONNX Runtime.

The export holds backbone, pooling and what follows as one graph from token ids and mask to vectors, and lies in a model
folder of the usual form, with the tokenizer and the settings that it needs. How it is traced and rounded is in
`model/onnx_graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.base.machine import threads as free_threads
from liebig.model.encoder import Encoder
from liebig.model.loading import quiet
from liebig.model.onnx_graph import needs, padded, session, write_graph

if TYPE_CHECKING:
    from liebig.model.torch_model import PackedRow

Floats = NDArray[np.float32]


class Graph(nn.Module):
    """Token ids and mask (B x L) to vectors (B x D), with transformers' own padded forward."""

    def __init__(self, body: nn.Module, encoder: Encoder, takes_types: bool) -> None:
        super().__init__()
        self.body, self.tail, self.pooling, self.takes_types = (
            body,
            encoder.tail,
            encoder.pooling,
            takes_types,
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        extra = {"token_type_ids": torch.zeros_like(input_ids)} if self.takes_types else {}
        states_BLD = self.body(input_ids=input_ids, attention_mask=attention_mask, **extra).last_hidden_state
        if self.pooling == "cls":
            x_BD = states_BLD[:, 0]
        else:
            mask = attention_mask.to(states_BLD.dtype)[:, :, None]
            x_BD = (states_BLD * mask).sum(1) / mask.sum(1)
        for part in self.tail:
            x_BD = part(x_BD)
        return x_BD


def export(encoder: Encoder, folder: Path, *, int8: bool = True, opset: int = 18) -> None:
    """Write a model for ONNX Runtime into a folder, with tokenizer and settings."""
    if encoder.pooling not in ("cls", "mean"):
        raise ModelError(f"{encoder.pooling} pooling cannot be exported", fix="use cls or mean")
    if not encoder.pool_prompt:
        raise ModelError("a model that leaves its prompt out of pooling cannot be exported")
    needs("onnx", "onnxscript", "onnxruntime")
    encoder.save(folder)
    graph, inputs = _graph(encoder, folder), ("input_ids", "attention_mask")
    write_graph(graph, folder, inputs, "vectors", int8=int8, opset=opset, width=encoder.width)


def _graph(encoder: Encoder, folder: Path) -> Graph:
    from transformers import AutoModel

    with quiet():  # heads that are left out, and a pooler that is not used
        body = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    body = body.eval().float()
    takes_types = "token_type_ids" in body.forward.__code__.co_varnames
    return Graph(body, encoder, takes_types).eval()


class OnnxModel:
    """An export, as the engine wants a model; every core has rows of its own."""

    def __init__(
        self, folder: Path, encoder: Encoder, *, unit: bool = False, threads: int | None = None
    ) -> None:
        self._session = session(folder)
        self._pad, self._unit, self.width = encoder.tokenizer.pad, unit, encoder.width
        self._threads = threads or free_threads()

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = lambda tokens: None
    ) -> Callable[[], Floats]:
        """Vectors of `count` pieces; they are there when this returns."""
        out = np.empty((count, self.width), np.float32)

        def run_row(row: PackedRow) -> int:
            tokens, numbers = row
            vectors = self._session.run(["vectors"], padded(tokens, self._pad))[0]
            out[numbers] = F.normalize(torch.from_numpy(vectors), dim=-1).numpy() if self._unit else vectors
            return len(tokens.values)

        with ThreadPoolExecutor(self._threads) as pool:
            for size in pool.map(run_row, packed):
                done(size)
        return lambda: out
