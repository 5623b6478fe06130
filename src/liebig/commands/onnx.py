"""The recipe of encoding, and of exporting to ONNX."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from liebig.base.config import Config, ModelPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.model.encoder import Encoder
from liebig.search.embed_onnx import export


class OnnxConfig(Config):
    """`liebig onnx`: a model for ONNX Runtime, in fp32 or int8."""

    model: ModelPath = Field(description="The model's folder, or org/name of the hub.")
    int8: bool = Field(True, description="Quantise the weights to int8.")
    opset: int = Field(18, ge=17, description="ONNX operator set version.")


def run(config: Any, folder: Folder) -> None:
    """`liebig onnx`: reads a model, writes its export."""
    export(Encoder.load(config.model), folder.path, int8=config.int8, opset=config.opset)


STAGE = Stage("onnx", OnnxConfig, run, "liebig onnx runs/condenser/model --out runs/onnx", positional="model")
