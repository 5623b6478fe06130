"""Model folders: written so that transformers and sentence-transformers load them, read from either.

A folder holds the backbone with its masked-LM head (`config.json`, `model.safetensors`), the tokenizer, the old-style
sentence-transformers files that say how vectors are made (every version of that library reads them), a short model
card, and apart from all that `layout.json` (title rule and lengths, `text/layout.py`) and `heads.safetensors`, from
which pre-training continues. Files are written beside and moved into place, `config.json` last, so a folder without it
is not a model. Reading knows five modules by name, imports nothing a folder names, and refuses the rest.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from liebig.base.durable import replace, sync
from liebig.base.errors import ModelError
from liebig.base.json_file import parse_json
from liebig.model.backbone import Backbone
from liebig.model.loading import quiet, readable
from liebig.model.pooling import Dense, Normalize
from liebig.model.settings import (
    read_tail_file,
)

HEADS = "heads.safetensors"


def save_heads(path: Path, heads: Mapping[str, nn.Module]) -> None:
    """Writes the heads; each can `describe` itself."""
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, head in heads.items()
        for key, value in head.state_dict().items()
    }
    kinds = {name: head.describe() for name, head in heads.items()}  # type: ignore[operator]  # heads have it
    # One field only: safetensors writes several in an order that differs from run to run.
    save_file(tensors, path, metadata={"heads": json.dumps(kinds)})


def read_kinds(folder: Path) -> dict[str, dict[str, Any]]:
    """What heads a folder has: name -> kind and sizes; none without the file."""
    path = folder / HEADS
    if not path.exists():
        return {}
    with readable(path), safe_open(path, framework="pt") as file:
        kinds = (file.metadata() or {}).get("heads", "{}")
    return parse_json(kinds.encode(), dict[str, dict[str, Any]], path, error=ModelError, fix="train again")


def load_heads(
    folder: Path, backbone: Backbone, classes: Mapping[str, Callable[..., nn.Module]]
) -> dict[str, nn.Module]:
    """The heads of a folder, built on the backbone; `classes` by kind are those of `methods.head_classes()`."""
    path = folder / HEADS
    heads = {}
    for name, sizes in read_kinds(folder).items():
        kind = sizes.pop("kind", None)
        if kind not in classes:
            raise ModelError(f"the head {name!r} is of unknown kind {kind!r}", file=path)
        with readable(path):
            heads[name] = classes[kind](backbone, **sizes)
            load_head(path, name, heads[name])
    return heads


def load_head(path: Path, name: str, head: nn.Module) -> None:
    """Fills a head with the weights of that name."""
    with readable(path), safe_open(path, framework="pt") as file:
        keys = [key for key in file.keys() if key.startswith(name + ".")]  # noqa: SIM118, not a mapping
        weights = {key[len(name) + 1 :]: file.get_tensor(key) for key in keys}
        head.load_state_dict(weights)


@contextmanager
def written_beside(folder: Path) -> Iterator[Path]:
    """A folder whose files are moved into `folder` when all are written; a stage that resumes removes .*.tmp."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".saving-", suffix=".tmp", dir=folder))
    try:
        yield beside
        move_into(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_backbone(backbone: Backbone, folder: Path) -> None:
    with quiet():
        backbone.model.save_pretrained(str(folder), safe_serialization=True)


def write_tail(part: nn.Module, folder: Path, output: str | None = None) -> None:
    """A module behind the pooling; `output` is what it gives, if not a vector."""
    folder.mkdir()
    settings: dict[str, Any] = {} if output is None else {"module_output_name": output}
    if isinstance(part, Dense):
        linear = part.linear
        settings |= {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": part.activation,
        }
    elif isinstance(part, nn.LayerNorm):
        settings["dimension"] = part.normalized_shape[0]
    write_json(folder / "config.json", settings)
    place = "norm." if isinstance(part, nn.LayerNorm) else ""
    weights = {place + name: value.detach().cpu().contiguous() for name, value in part.state_dict().items()}
    if weights:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def model_card(what: str, task: str, tag: str, about: str, usage: str) -> str:
    """A short README with what a reader must know to use the model rightly; `task` and `tag` are the hub's words."""
    return f"""---
library_name: sentence-transformers
pipeline_tag: {task}
tags: [sentence-transformers, {tag}, liebig]
---

# {what} made with Liebig

{about}

{usage}"""


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def move_into(beside: Path, folder: Path) -> None:
    """Moves every file into place, synced, `config.json` of the folder last."""
    files = sorted(path for path in beside.rglob("*") if path.is_file())
    files.sort(key=lambda path: path == beside / "config.json")
    for path in files:
        target = folder / path.relative_to(beside)
        target.parent.mkdir(parents=True, exist_ok=True)
        sync(path)
        replace(path, target)


def read_tail(name: str, folder: Path, *, last: bool = False) -> nn.Module:
    """A module behind the pooling; the `last` one may give scores."""
    path, config = folder / "config.json", read_tail_file(name, folder, last=last)
    if name == "Normalize":
        return Normalize()
    if name == "LayerNorm":
        if config.dimension is None:
            raise ModelError("dimension is missing", file=path)
        with readable(folder):
            norm = nn.LayerNorm(config.dimension)
            weights = read_weights(folder)
            norm.load_state_dict({key.removeprefix("norm."): value for key, value in weights.items()})
        return norm
    if config.in_features is None or config.out_features is None:
        raise ModelError("in_features or out_features is missing", file=path)
    with readable(folder):
        dense = Dense(config.in_features, config.out_features, config.bias, config.activation_function)
        dense.load_state_dict(read_weights(folder))
    return dense


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Weights of a small module; pickled ones by torch's restricted reader only."""
    if (folder / "model.safetensors").exists():
        return load_file(folder / "model.safetensors")
    return cast(
        dict[str, Tensor], torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    )
