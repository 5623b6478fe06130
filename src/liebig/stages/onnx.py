"""`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime.

Backbone, pooling and what follows become one graph from token ids to vectors. How a graph is traced, rounded and run
without torch is in `model/onnx_graph.py`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from liebig.base.config import Config, ModelPath
from liebig.base.errors import ModelError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.model.cross_encoder import CrossEncoder, is_reranker
from liebig.model.encoder import Encoder
from liebig.model.loading import quiet
from liebig.model.onnx_graph import WRITERS, needs, write_graph
from liebig.model.pooling import PaddedForward, check_exportable


class OnnxConfig(Config):
    """`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime, in fp32 or int8."""

    model: ModelPath = Field(description="An encoder or a cross-encoder, by folder or org/name.")
    int8: bool = Field(True, description="Quantise the weights to int8.")


def export(encoder: Encoder, folder: Path, *, int8: bool = True) -> None:
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
        width=encoder.width,
        positions=encoder.max_positions,
    )


def _graph(encoder: Encoder, folder: Path) -> PaddedForward:
    from transformers import AutoModel

    with quiet():  # heads that are left out, and a pooler that is not used
        body = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    body = body.eval().float()
    takes_types = "token_type_ids" in body.forward.__code__.co_varnames
    return PaddedForward(body, encoder.pooling, encoder.tail, zero_types=takes_types).eval()


def run(config: OnnxConfig, folder: Folder) -> None:
    """`liebig onnx`: reads a model, writes its export."""
    if is_reranker(config.model):
        CrossEncoder.load(config.model, device="cpu").export(folder.path, int8=config.int8)
    else:
        export(Encoder.load(config.model), folder.path, int8=config.int8)


STAGE = Stage("onnx", OnnxConfig, run, "liebig onnx runs/condenser/model --out runs/onnx", positional="model")
