"""Write an encoder for ONNX Runtime: backbone, pooling and what follows as one graph from token ids to vectors.

How a graph is traced and rounded is in `model/onnx_graph.py`, how one is run without torch in `embed_onnx.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from liebig.base.errors import ModelError
from liebig.model.encoder import Encoder
from liebig.model.loading import quiet
from liebig.model.onnx_graph import ABOUT, ADDED, GRAPH, needs, write_graph


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
    write_graph(
        graph,
        folder,
        inputs,
        "vectors",
        int8=int8,
        opset=opset,
        width=encoder.width,
        positions=encoder.max_positions,
    )


def _graph(encoder: Encoder, folder: Path) -> Graph:
    from transformers import AutoModel

    with quiet():  # heads that are left out, and a pooler that is not used
        body = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    body = body.eval().float()
    takes_types = "token_type_ids" in body.forward.__code__.co_varnames
    return Graph(body, encoder, takes_types).eval()


def add_graph(encoder: Encoder, folder: Path, *, int8: bool = False) -> Path:
    """Put a graph into the folder of its model, for installations without torch; gives the graph's folder."""
    with tempfile.TemporaryDirectory(prefix=".onnx-", suffix=".tmp", dir=folder) as scratch:
        export(encoder, made := Path(scratch) / ADDED, int8=int8)
        for path in made.iterdir():  # the model's own folder has the tokenizer, the settings and the weights
            if not path.name.startswith(GRAPH) and path.name != ABOUT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(folder / ADDED, ignore_errors=True)
        return made.rename(folder / ADDED)
