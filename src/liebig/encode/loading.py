"""The model of an encoding run: by torch on a device, or an ONNX export by ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from liebig.encode.config import EncodeConfig
from liebig.encode.engine import Model, TorchModel
from liebig.machine import cores
from liebig.model.encoder import Encoder
from liebig.text.layout import Role, RoleLayout

MOST_WORKERS = 12
ROLES: dict[str, Role] = {"passages": "passage", "documents": "passage", "queries": "query"}


@dataclass(frozen=True)
class Loaded:
    """An encoder on its device, and what the run needs to know of it."""

    encoder: Encoder
    role: Role
    prompt: str
    folder: Path
    unit: bool
    half: bool | None
    workers: int
    onnx: bool

    @property
    def layout(self) -> RoleLayout:
        """How texts become token ids."""
        return self.encoder.layout_for(self.role, self.prompt)

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.encoder.device.type == "cuda"

    def model(self, threads: int | None = None) -> Model:
        """What makes the vectors."""
        if self.onnx:
            from liebig.encode.onnx import OnnxModel

            return OnnxModel(self.folder, self.encoder, unit=self.unit, threads=threads)
        skip = self.encoder.skip(self.layout)
        return TorchModel(self.encoder, half=self.half, unit=self.unit, skip=skip)


def load(path: Path, device: torch.device | str, config: EncodeConfig) -> Loaded:
    """Load a model's folder."""
    from liebig.encode.onnx import is_export

    onnx = is_export(path)
    role = ROLES[config.what]
    encoder = Encoder.load(path)
    longest = {"query_length" if role == "query" else "max_length": config.max_length}
    encoder.use(title=config.title, **longest)
    encoder = encoder.to("cpu" if onnx else device)
    cuda = encoder.device.type == "cuda"
    if cuda if config.compile is None else config.compile:
        encoder.backbone.compile()
    workers = (
        config.workers if config.workers is not None else (min(MOST_WORKERS, cores() - 1) if cuda else 0)
    )
    unit = encoder.similarity == "cosine" if config.unit is None else config.unit
    return Loaded(
        encoder,
        role,
        role if config.prompt is None else config.prompt,
        path,
        unit,
        config.half,
        workers,
        onnx,
    )
