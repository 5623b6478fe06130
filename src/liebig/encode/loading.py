"""The model of an encoding run: by torch on a device, or an ONNX export by ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from liebig.encode.config import EncodeConfig
from liebig.encode.engine import Model, TorchModel, frame_of, skip_of
from liebig.encode.rows import Frame
from liebig.machine import cores
from liebig.model.encoder import Encoder

MOST_WORKERS = 12


@dataclass(frozen=True)
class Loaded:
    """An encoder on its device, and what the run needs to know of it."""

    encoder: Encoder
    folder: Path
    unit: bool
    half: bool | None
    workers: int
    onnx: bool

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.encoder.device.type == "cuda"

    @property
    def separator(self) -> str:
        """The separator token as text."""
        return self.encoder.tokenizer.tokens([self.encoder.tokenizer.sep])[0]

    def frame(self, prompt: str) -> Frame:
        """What is put around every text."""
        return frame_of(self.encoder, prompt)

    def model(self, frame: Frame) -> Model:
        """What makes the vectors."""
        if self.onnx:
            from liebig.encode.onnx import OnnxModel

            return OnnxModel(self.folder, self.encoder, unit=self.unit)
        return TorchModel(self.encoder, half=self.half, unit=self.unit, skip=skip_of(self.encoder, frame))


def load(path: Path, device: torch.device | str, config: EncodeConfig) -> Loaded:
    """Load a model's folder."""
    from liebig.encode.onnx import is_export

    onnx = is_export(path)
    encoder = Encoder.load(path)
    encoder.max_length = min(config.max_length or encoder.max_length, encoder.max_length)
    encoder = encoder.to("cpu" if onnx else device)
    cuda = encoder.device.type == "cuda"
    if cuda if config.compile is None else config.compile:
        encoder.backbone.compile()
    workers = (
        config.workers if config.workers is not None else (min(MOST_WORKERS, cores() - 1) if cuda else 0)
    )
    unit = encoder.similarity == "cosine" if config.unit is None else config.unit
    return Loaded(encoder, path, unit, config.half, workers, onnx)
