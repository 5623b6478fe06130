"""`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from liebig.base.config import Config, ModelPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.export.models import export
from liebig.model.cross_encoder import CrossEncoder
from liebig.model.encoder import Encoder
from liebig.model.loading import is_classifier


class OnnxConfig(Config):
    """`liebig onnx`: an encoder or a cross-encoder for ONNX Runtime, in fp32 or int8."""

    model: ModelPath = Field(description="An encoder or a cross-encoder, by folder or org/name.")
    int8: bool = Field(True, description="Quantise the weights to int8.")
    opset: int = Field(18, ge=17, description="ONNX operator set version.")


def run(config: OnnxConfig, folder: Folder) -> None:
    """`liebig onnx`: reads a model, writes its export."""
    how: dict[str, Any] = {"int8": config.int8, "opset": config.opset}
    if is_classifier(config.model):
        CrossEncoder.load(config.model, device="cpu").export(folder.path, **how)
    else:
        export(Encoder.load(config.model), folder.path, **how)


STAGE = Stage("onnx", OnnxConfig, run, "liebig onnx runs/condenser/model --out runs/onnx", positional="model")
