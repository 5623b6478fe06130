"""`liebig average`: the mean of several models' weights, such as runs of one recipe with other seeds.

Every safetensors file of the folders is averaged, tensor by tensor, in double precision; everything else is copied
from the first. Runs from one start lie in one valley, so their mean is a model too, with less noise and at no cost in
searching; models of other starts do not average. Cost: reading the weights once, one tensor of each in memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import Field
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from liebig.base.config import Config, ModelPath
from liebig.base.errors import ModelError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder


class AverageConfig(Config):
    """`liebig average`: one model whose weights are the mean of several, trained from one start with other seeds."""

    models: tuple[ModelPath, ...] = Field(
        min_length=2, description="Model folders with the same architecture and tokenizer."
    )


MODEL, WEIGHTS = "model", ".safetensors"
SAME = ("tokenizer.json", "modules.json", "layout.json")
"""Files that must say the same in all folders."""


def run(config: AverageConfig, folder: Folder) -> None:
    """Write the mean of the models to `model/`."""
    average(config.models, folder.path / MODEL)


def average(models: Sequence[Path], out: Path) -> None:
    """The mean of the folders' weights in a folder of the same form."""
    first = models[0]
    names = sorted(
        p.relative_to(first) for p in first.rglob("*") if p.is_file() and p.name != "manifest.json"
    )
    if not any(name.suffix == WEIGHTS for name in names):
        raise ModelError("the folder contains no weights", file=first, fix="give the model/ folder of a run")
    for other in models[1:]:
        _check_same(first, other)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if name.suffix == WEIGHTS:
            save_file(mean([model / name for model in models]), out / name, metadata={"format": "pt"})
        else:
            shutil.copyfile(first / name, out / name)


def _check_same(first: Path, other: Path) -> None:
    for name in SAME:
        one, two = first / name, other / name
        if one.exists() != two.exists() or (one.exists() and one.read_bytes() != two.read_bytes()):
            raise ModelError(
                f"{name} is not that of {first}",
                file=other,
                fix=("average models with the same start and recipe"),
            )


def mean(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each tensor over the files; numbers that are not floating are those of the first."""
    opened = [_open(path) for path in files]
    shapes = [
        {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())} for file in opened
    ]
    wrong = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if wrong is not None:
        raise ModelError(
            f"the weights have other names or sizes than those of {files[0].parent}", file=files[wrong]
        )
    means = {}
    for name in shapes[0]:
        tensors = [file.get_tensor(name) for file in opened]
        means[name] = tensors[0]
        if tensors[0].is_floating_point():
            means[name] = torch.stack([t.double() for t in tensors]).mean(dim=0).to(tensors[0].dtype)
    return means


def _open(path: Path) -> safe_open:
    if not path.is_file():
        raise ModelError("these weights are missing", file=path)
    return safe_open(path, framework="pt")


STAGE = Stage(
    "average",
    AverageConfig,
    run,
    "liebig average runs/seed-1/model runs/seed-2/model --out runs/averaged",
    positional="models",
)
