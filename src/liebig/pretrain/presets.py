"""What a recipe leaves open, filled in: from the paper, or four values of it from its released code.

`resolve` returns the recipe with every open value set; `said` tells, in a line each, what the preset decided.
"""

from __future__ import annotations

from typing import Any

from liebig.pretrain.config import PretrainConfig
from liebig.pretrain.objective_config import (
    CocondenserConfig,
    CotmaeConfig,
    MocoConfig,
    Objective,
    SimclrConfig,
    needs_pairs,
)
from liebig.pretrain.source_config import (
    ClozeConfig,
    CropsConfig,
    MixtureConfig,
    QueriesConfig,
    Single,
    Source,
    Views,
    parts,
)

MOCO: dict[str, dict[str, Any]] = {
    "zero-shot": {"queue": 131_072, "momentum": 0.9995},
    "fine-tuned": {"queue": 65_536, "momentum": 0.999},
}
SHORTEST_CROP = {"zero-shot": 0.05, "fine-tuned": 0.10}
DELETION = {"paper": 0.2, "reference": 0.1}
MLM_WEIGHT = {"paper": 1.0, "reference": 2.0}  # the released cached step counts its MLM terms twice
MIX = {"paper": "batch", "reference": "example"}
DECODER_LAYERS = {"mlm": 2, "causal": 1}


def resolve(config: PretrainConfig) -> PretrainConfig:
    """The recipe without open values."""
    return config.model_copy(
        update={
            "mix": config.mix or (MIX[config.preset] if needs_pairs(config.objective) else "example"),
            "objective": _objective(config),
            "source": _source(config.source, config),
        }
    )


def said(config: PretrainConfig) -> list[str]:
    """What the preset set that the recipe had left open."""
    full = resolve(config)
    found = [f"preset {config.preset!r}"]
    if config.mix is None and (len(config.stores) > 1 or len(parts(config.source)) > 1):
        found.append(f"mix = {full.mix}")
    pairs: list[tuple[str, Any, Any]] = [("objective", config.objective, full.objective)]
    pairs += [("source", a, b) for a, b in zip(parts(config.source), parts(full.source))]
    for name, before, after in pairs:
        for field in type(after).model_fields:
            if getattr(before, field) is None and getattr(after, field) is not None:
                found.append(f"{name}.{field} = {getattr(after, field)}")
    return found


def _objective(config: PretrainConfig) -> Objective:
    objective = config.objective
    if isinstance(objective, MocoConfig):
        return objective.model_copy(update=_open(objective, MOCO[objective.setting]))
    if isinstance(objective, CocondenserConfig) and objective.mlm:
        return objective.model_copy(update=_open(objective, {"mlm_weight": MLM_WEIGHT[config.preset]}))
    if isinstance(objective, CotmaeConfig):
        decoder = objective.decoder or _decoder(config)
        layers = objective.n_decoder_layers or DECODER_LAYERS[decoder]
        return objective.model_copy(update={"decoder": decoder, "n_decoder_layers": layers})
    return objective


def _decoder(config: PretrainConfig) -> str:
    """The released query-as-context code decodes causally; the papers, and CoT-MAE's own code, do not."""
    queries = all(isinstance(source, QueriesConfig) for source in parts(config.source))
    return "causal" if queries and config.preset == "reference" else "mlm"


def _source(source: Source, config: PretrainConfig) -> Source:
    if isinstance(source, MixtureConfig):
        inner = tuple(p.model_copy(update={"source": _single(p.source, config)}) for p in source.parts)
        return source.model_copy(update={"parts": inner})
    return _single(source, config)


def _single(source: Single, config: PretrainConfig) -> Single:
    if isinstance(source, CropsConfig):
        setting = config.objective.setting if isinstance(config.objective, MocoConfig) else "fine-tuned"
        contrast = isinstance(config.objective, MocoConfig | SimclrConfig)
        deletion = DELETION[config.preset] if contrast else 0.0
        return source.model_copy(
            update=_open(source, {"shortest": _shortest(source, setting), "delete": deletion})
        )
    if isinstance(source, ClozeConfig) and source.longest is not None:
        return source.model_copy(
            update=_open(source, {"shortest": _shortest(source, "fine-tuned"), "delete": 0.0})
        )
    if isinstance(source, Views):
        return source.model_copy(update=_open(source, {"delete": 0.0}))
    return source


def _shortest(source: CropsConfig | ClozeConfig, setting: str) -> float:
    """The setting's smallest share, or the largest where the recipe has an even smaller one."""
    return min(SHORTEST_CROP[setting], 1.0 if source.longest is None else source.longest)


def _open(part: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those values whose field is None."""
    return {name: value for name, value in values.items() if getattr(part, name) is None}
