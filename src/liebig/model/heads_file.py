"""`heads.safetensors`: what pre-training puts on a backbone, apart from it, by name.

Weights are named `head.parameter`; the file's metadata says what each head is, so that it can be built again.
No custom class ever goes into a model folder's own weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from liebig.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.heads import CausalDecoder, CondenserHead, CotmaeDecoder
from liebig.model.loading import readable

HEADS = "heads.safetensors"
KINDS: dict[str, Callable[..., nn.Module]] = {
    "condenser": CondenserHead,
    "cotmae": CotmaeDecoder,
    "causal": CausalDecoder,
}


def save_heads(path: Path, heads: Mapping[str, nn.Module]) -> None:
    """Writes the heads; each can `describe` itself."""
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, head in heads.items()
        for key, value in head.state_dict().items()
    }
    kinds = {name: head.describe() for name, head in heads.items()}  # type: ignore[operator]  # heads have it
    save_file(tensors, path, metadata={"format": "pt", "heads": json.dumps(kinds)})


def read_kinds(folder: Path) -> dict[str, dict[str, Any]]:
    """What heads a folder has: name -> kind and sizes; none without the file."""
    path = folder / HEADS
    if not path.exists():
        return {}
    with readable(path), safe_open(path, framework="pt") as file:
        kinds: dict[str, dict[str, Any]] = json.loads((file.metadata() or {}).get("heads", "{}"))
    return kinds


def load_heads(folder: Path, backbone: Backbone) -> dict[str, nn.Module]:
    """The heads of a folder, built on the backbone."""
    path = folder / HEADS
    heads = {}
    for name, sizes in read_kinds(folder).items():
        kind = sizes.pop("kind", None)
        if kind not in KINDS:
            raise ModelError(f"the head {name!r} is of unknown kind {kind!r}", file=path)
        with readable(path):
            heads[name] = KINDS[kind](backbone, **sizes)
            load_head(path, name, heads[name])
    return heads


def load_head(path: Path, name: str, head: nn.Module) -> None:
    """Fills a head with the weights of that name."""
    with readable(path), safe_open(path, framework="pt") as file:
        keys = [key for key in file.keys() if key.startswith(name + ".")]  # noqa: SIM118, not a mapping
        weights = {key[len(name) + 1 :]: file.get_tensor(key) for key in keys}
        head.load_state_dict(weights)
