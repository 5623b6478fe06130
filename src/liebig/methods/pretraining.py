"""The recipe of `liebig pretrain`: a model, what it reads, where pairs come from, and which method trains it.

Sources and methods are chosen independently; combinations that make no sense are refused with a sentence. Values left
out (`None`) follow the preset: the paper, or four values of its released code. `resolve` returns the recipe with every
open value set, `describe_preset` what the preset decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from liebig.methods import objective_union
from liebig.methods.base import DOCUMENT, Method, Preset, PretrainRecipe
from liebig.methods.mlm import MaskedLM
from liebig.methods.sources.blocks import BlockSource
from liebig.methods.sources.mixture import AnySource
from liebig.model.loading import NewBackbone
from liebig.train.loop import LoopConfig

if TYPE_CHECKING:
    AnyObjective = Method.Config
else:
    AnyObjective = objective_union()

MIX: dict[Preset, str] = {"paper": "batch", "reference": "example"}


class PretrainConfig(PretrainRecipe):
    """Train an encoder on text without labels."""

    source: AnySource = Field(default=BlockSource.Config(), description="Source of sequences and pairs.")
    objective: AnyObjective = Field(default=MaskedLM.Config(), description="Pre-training method.")

    @model_validator(mode="after")
    def _sensible(self) -> PretrainConfig:
        for check in CHECKS:
            check(self)
        for source in self.source.members:
            source.check(self)
        self.objective.check(self)
        return self


def _batch_is_said_once(config: PretrainConfig) -> None:
    kind, alone = config.objective.kind, config.objective.negatives == "none"
    given = config.loop.batch != LoopConfig.model_fields["batch"].default
    if config.batch_tokens is not None and given:
        raise ValueError("give loop.batch (examples) or batch_tokens, not both")
    if config.batch_tokens is not None and not alone:
        raise ValueError(
            f"{kind} contrasts the examples of a batch, so their number must be fixed: set loop.batch, and "
            "loop.chunk_tokens to save memory"
        )
    if config.loop.batch == 1 and not alone:
        raise ValueError(f"{kind} has nothing to contrast in a batch of 1: set loop.batch to at least 2")


def _sources_have_stores(config: PretrainConfig) -> None:
    members = config.source.members
    reading = [source.kind for source in members if source.reads_store]
    if reading and not config.stores:
        raise ValueError(f"{reading[0]} are drawn from token stores: name at least one in stores")
    if not reading and config.stores:
        raise ValueError(
            f"the source {members[0].kind} reads a collection, so stores have no effect: leave them out"
        )


def _documents_are_of_one_source(config: PretrainConfig) -> None:
    several = len(config.source.members) > 1 or len(config.stores) > 1
    if several and DOCUMENT in config.objective.extras:
        raise ValueError(
            "distinct_documents needs a single source over a single store, and there are several: set it to "
            "false, or prepare the texts as one store and use one source"
        )


def _texts_fit_a_new_model(config: PretrainConfig) -> None:
    if isinstance(config.model, NewBackbone) and config.max_length > config.model.max_positions:
        raise ValueError(
            f"max_length = {config.max_length} is more than the new model's {config.model.max_positions} "
            "positions: set model.max_positions to as many"
        )


CHECKS = (_batch_is_said_once, _sources_have_stores, _documents_are_of_one_source, _texts_fit_a_new_model)


def resolve(config: PretrainConfig) -> PretrainConfig:
    """The recipe without open values."""
    return config.model_copy(
        update={
            "mix": config.mix or (MIX[config.preset] if config.objective.pairs else "example"),
            "objective": config.objective.resolve(config),
            "source": config.source.resolve(config),
        }
    )


def describe_preset(config: PretrainConfig) -> list[str]:
    """What the preset set that the recipe had left open."""
    full = resolve(config)
    lines = [f"preset {config.preset!r}"]
    if config.mix is None and (len(config.stores) > 1 or len(config.source.members) > 1):
        lines.append(f"mix = {full.mix}")
    pairs: list[tuple[str, Any, Any]] = [("objective", config.objective, full.objective)]
    pairs += [("source", a, b) for a, b in zip(config.source.members, full.source.members)]
    for name, before, after in pairs:
        for field in type(after).model_fields:
            if getattr(before, field) is None and getattr(after, field) is not None:
                lines.append(f"{name}.{field} = {getattr(after, field)}")
    return lines
