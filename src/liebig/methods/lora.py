"""LoRA by peft: small trained matrices beside the frozen ones of a large encoder, merged into them at the end.

An adapter begins as nothing (its second matrix is zero), so training starts from the very model. The saved model is
merged: every other command loads it as any other. The adapter itself can be kept beside it, in the form that peft
loads onto the starting model. Cost: gradients and moments of the adapter only; the forward pass does a little more,
and the lean layers of CUDA, which read weights directly, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from liebig.base.config import Config
from liebig.base.errors import MissingDependency, RecipeError
from liebig.base.rng import key
from liebig.model.backbone import Backbone

PREFIX = "base_model.model."


class LoraConfig(Config):
    """Small trained matrices beside the frozen ones of a large encoder; needs the extra `lora`."""

    rank: int = Field(default=16, ge=1, description="Rank of the low-rank matrices")
    alpha: float = Field(default=32.0, gt=0, description="The adapter is scaled by alpha / rank")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout before the adapter")
    targets: tuple[str, ...] = Field(
        default=(),
        description=(
            "Names of the linear modules to adapt, such as query or value [default: all of a layer]"
        ),
    )
    adapter: bool = Field(
        default=False,
        description="Also write the adapter in peft's format to adapter/; model/ always has merged weights",
    )


def adapt(backbone: Backbone, config: LoraConfig, seed: int) -> None:
    """Freeze the backbone and put adapters onto its layers' linear parts; a function of the seed."""
    peft = _peft()
    names = target_names(backbone, config.targets)
    chosen = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=names
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(seed, 2) >> 1))
        peft.inject_adapter_in_model(chosen, backbone.model)
    backbone.model.peft_config = {"default": chosen}


def target_names(backbone: Backbone, targets: Sequence[str]) -> list[str]:
    """Whole names of the linear parts inside the layers; with targets, of those that end in one of them."""
    inside = {id(part) for layer in _layers(backbone) for part in layer.modules()}
    linear = [
        name
        for name, part in backbone.model.named_modules()
        if isinstance(part, nn.Linear) and id(part) in inside
    ]
    kept = [name for name in linear if not targets or name.rsplit(".", 1)[-1] in targets]
    if not kept:
        there = sorted({name.rsplit(".", 1)[-1] for name in linear})
        raise RecipeError(
            f"lora.targets names no linear module of a {backbone.family} layer", fix=f"use some of {there}"
        )
    return kept


def _layers(backbone: Backbone) -> list[nn.Module]:
    """The layers, where the family lists them; else the whole encoder."""
    list_layers = getattr(backbone.kind, "layers", None)
    return list(list_layers(backbone.body)) if list_layers is not None else [backbone.body]


def save_adapter(backbone: Backbone, folder: Path, base: str) -> None:
    """`adapter_config.json` and `adapter_model.safetensors`, for peft to load onto the starting model."""
    from safetensors.torch import save_file

    peft = _peft()
    config = backbone.model.peft_config["default"]
    state = peft.get_peft_model_state_dict(backbone.model)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {_named(name): value.detach().cpu().contiguous() for name, value in state.items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config.base_model_name_or_path, config.inference_mode = base, True
    config.save_pretrained(str(folder))


def _named(name: str) -> str:
    return name if name.startswith(PREFIX) else PREFIX + name


def merge(backbone: Backbone) -> None:
    """Add the adapters to the weights they stand beside, and take them away."""
    adapted = [(name, part) for name, part in backbone.model.named_modules() if hasattr(part, "lora_A")]
    for name, part in adapted:
        part.merge(safe_merge=True)
        parent, _, leaf = name.rpartition(".")
        setattr(backbone.model.get_submodule(parent), leaf, part.get_base_layer())
    if hasattr(backbone.model, "peft_config"):
        del backbone.model.peft_config
    backbone.model.requires_grad_(True)


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise MissingDependency("peft", "lora", "lora") from None
    return peft
