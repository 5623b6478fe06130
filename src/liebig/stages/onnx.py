"""`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime.

Backbone, pooling and what follows become one graph from token ids to vectors. How a graph is traced, rounded and run
without torch is in `model/onnx_graph.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from liebig.base.config import Config, ModelPath
from liebig.base.errors import ModelError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.model.cross_encoder import CrossEncoder, is_reranker
from liebig.model.encoder import Encoder
from liebig.model.loading import quiet
from liebig.model.onnx_graph import WRITERS, needs, write_graph
from liebig.model.pooling import check_exportable, pool_padded

OPSET = 18


class OnnxConfig(Config):
    """`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime, in fp32 or int8."""

    model: ModelPath = Field(description="An encoder or a cross-encoder, by folder or org/name.")
    int8: bool = Field(True, description="Quantise the weights to int8.")
    opset: int = Field(OPSET, ge=17, description="ONNX operator set version.")


class OnnxModule(nn.Module):
    """Token ids and mask (B x L) to vectors (B x D), with transformers' own padded forward."""

    def __init__(self, body: nn.Module, encoder: Encoder, takes_types: bool) -> None:
        super().__init__()
        self.body = body
        self.tail = encoder.tail
        self.pooling = encoder.pooling
        self.takes_types = takes_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        extra = {"token_type_ids": torch.zeros_like(input_ids)} if self.takes_types else {}
        states_BLD = self.body(input_ids=input_ids, attention_mask=attention_mask, **extra).last_hidden_state
        x_BD = pool_padded(states_BLD, attention_mask, self.pooling)
        for part in self.tail:
            x_BD = part(x_BD)
        return x_BD


def export(encoder: Encoder, folder: Path, *, int8: bool = True, opset: int = OPSET) -> None:
    """Write a model for ONNX Runtime into a folder, with tokenizer and settings."""
    check_exportable(encoder.pooling)
    if not encoder.pool_prompt:
        raise ModelError("a model that leaves its prompt out of pooling cannot be exported")
    needs(*WRITERS)
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


def _graph(encoder: Encoder, folder: Path) -> OnnxModule:
    from transformers import AutoModel

    with quiet():  # heads that are left out, and a pooler that is not used
        body = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    body = body.eval().float()
    takes_types = "token_type_ids" in body.forward.__code__.co_varnames
    return OnnxModule(body, encoder, takes_types).eval()


def run(config: OnnxConfig, folder: Folder) -> None:
    """`liebig onnx`: reads a model, writes its export."""
    how: dict[str, Any] = {"int8": config.int8, "opset": config.opset}
    if is_reranker(config.model):
        CrossEncoder.load(config.model, device="cpu").export(folder.path, **how)
    else:
        export(Encoder.load(config.model), folder.path, **how)


STAGE = Stage("onnx", OnnxConfig, run, "liebig onnx runs/condenser/model --out runs/onnx", positional="model")
