"""From a recipe to the objective that runs, with its heads, and to the shape of its batches.

With `sources.py` and `run.py` the only files that see a recipe; everything below them takes values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from torch import nn

from liebig.base.errors import RecipeError
from liebig.losses.contrastive import Similarity
from liebig.methods import objective_configs as recipes
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.condenser import Condenser
from liebig.methods.cotmae import CotMAE
from liebig.methods.mlm import MaskedLM, check_splits
from liebig.methods.moco import MoCo, check_queue
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.shapes import EncoderDecoder, MaskedText, Masker, PlainText, Shape, TwoViews
from liebig.methods.simclr import SimCLR
from liebig.methods.source_configs import SpansConfig, TextsConfig, parts
from liebig.methods.teacher import Taught, TaughtVectors
from liebig.model.backbone import Backbone
from liebig.model.encoder import Dense, Normalize
from liebig.model.folder import read_modules, read_pooling, read_tail
from liebig.model.heads import CausalDecoder, CondenserHead, CotmaeDecoder
from liebig.model.loading import FolderBackbone, HubBackbone, local_folder
from liebig.text.tokenizer import Tokenizer
from liebig.train.objective import Objective


@dataclass(frozen=True)
class Built:
    """An objective, the heads to keep beside the model, and how the model is to be used."""

    objective: Objective
    heads: Mapping[str, nn.Module]
    pooling: str
    similarity: Similarity = "dot"
    tail: Sequence[nn.Module] = ()


def objective(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    """The objective of a resolved recipe; `heads` are those the starting folder has."""
    return OBJECTIVES[config.objective.kind](config, backbone, heads)


def _mlm(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.MlmConfig, config.objective)
    return Built(MaskedLM(backbone, wanted.mlm_reduction), {}, wanted.pooling)


def _condenser(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.CondenserConfig, config.objective)
    head = condenser_head(backbone, heads, wanted.n_head_layers)
    made = Condenser(
        backbone,
        head,
        skip_from=wanted.skip_from,
        late_mlm=wanted.late_mlm,
        reduction=wanted.mlm_reduction,
    )
    return Built(made, {"condenser": head}, "cls")


def _cocondenser(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.CocondenserConfig, config.objective)
    head = condenser_head(backbone, heads, wanted.n_head_layers)
    spans = [s for s in parts(config.source) if isinstance(s, SpansConfig)]
    made = CoCondenser(
        backbone,
        head,
        skip_from=wanted.skip_from,
        late_mlm=wanted.late_mlm,
        reduction=wanted.mlm_reduction,
        mlm=wanted.mlm,
        mlm_weight=1.0 if wanted.mlm_weight is None else wanted.mlm_weight,
        temperature=wanted.temperature,
        similarity=wanted.similarity,
        distinct_documents=wanted.distinct_documents,
        singles=any(s.single == "once" for s in spans),
    )
    # Without masked terms nothing trains the head: a fresh one is not kept, or a later run would take it for one
    # that a Condenser has trained.
    kept = {"condenser": head} if wanted.mlm or "condenser" in heads else {}
    return Built(made, kept, "cls", wanted.similarity)


def condenser_head(backbone: Backbone, heads: Mapping[str, nn.Module], layers: int) -> CondenserHead:
    """The head the start came with, or a fresh one."""
    check_splits(backbone, "the Condenser head")
    found = heads.get("condenser")
    if not isinstance(found, CondenserHead):
        return CondenserHead(backbone, layers)
    if len(found.layers) != layers:
        raise RecipeError(
            f"the starting folder has a Condenser head of {len(found.layers)} layers, the recipe asks for {layers}",
            fix=f"set objective.n_head_layers = {len(found.layers)}",
        )
    return found


def _cotmae(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.CotmaeConfig, config.objective)
    check_splits(backbone, "CoT-MAE's decoder")
    name = f"cotmae_{wanted.decoder}"
    decoder = cotmae_decoder(backbone, heads.get(name), wanted)
    made = CotMAE(backbone, decoder, decoder_weight=wanted.decoder_weight, reduction=wanted.mlm_reduction)
    return Built(made, {name: decoder}, "cls")


def cotmae_decoder(
    backbone: Backbone, found: nn.Module | None, wanted: recipes.CotmaeConfig
) -> CotmaeDecoder | CausalDecoder:
    """The decoder the start came with, or a fresh one."""
    layers = wanted.n_decoder_layers or 2
    if not isinstance(found, CotmaeDecoder | CausalDecoder):
        causal = wanted.decoder == "causal"
        return CausalDecoder(backbone, layers, wanted.window) if causal else CotmaeDecoder(backbone, layers)
    has = {"n_decoder_layers": len(found.layers), "window": getattr(found, "window", wanted.window)}
    asked = {"n_decoder_layers": layers, "window": wanted.window}
    for name, value in has.items():
        if value != asked[name]:
            raise RecipeError(
                f"the starting folder has a decoder with {name} = {value}, the recipe asks for {asked[name]}",
                fix=f"set objective.{name} = {value}",
            )
    return found


def _simclr(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.SimclrConfig, config.objective)
    tail = start_tail(config, wanted.pooling)
    made = SimCLR(
        backbone,
        tail,
        temperature=wanted.temperature,
        similarity=wanted.similarity,
        pooling=wanted.pooling,
        distinct_documents=wanted.distinct_documents,
    )
    return Built(made, {}, wanted.pooling, wanted.similarity, tail)


def _moco(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.MocoConfig, config.objective)
    assert wanted.queue is not None, "the recipe is resolved"
    assert wanted.momentum is not None, "the recipe is resolved"
    check_queue(wanted.queue, config.loop.batch)
    tail = start_tail(config, wanted.pooling)
    made = MoCo(
        backbone,
        tail,
        queue=wanted.queue,
        momentum=wanted.momentum,
        temperature=wanted.temperature,
        similarity=wanted.similarity,
        pooling=wanted.pooling,
        key_dropout=wanted.key_dropout,
        label_smoothing=wanted.label_smoothing,
        seed=config.seed,
    )
    return Built(made, {}, wanted.pooling, wanted.similarity, tail)


def _vectors(config: PretrainConfig, backbone: Backbone, heads: Mapping[str, nn.Module]) -> Built:
    wanted = cast(recipes.VectorsConfig, config.objective)
    width = Taught.open(cast(TextsConfig, config.source).vectors, hashes=False).width
    if wanted.dense is False and backbone.width != width:
        raise RecipeError(
            f"the teacher's vectors have {width} numbers, the student's {backbone.width}",
            fix="set objective.dense = true, which projects them",
        )
    dense = projection(config, backbone, width) if wanted.dense or backbone.width != width else None
    made = TaughtVectors(
        backbone,
        dense,
        pooling=wanted.pooling,
        similarity_weight=wanted.similarity_weight,
        temperature=wanted.temperature,
    )
    tail = [Normalize()] if dense is None else [dense, Normalize()]
    return Built(made, {}, wanted.pooling, "cosine", tail)


def projection(config: PretrainConfig, backbone: Backbone, width: int) -> Dense:
    """The projection that the starting folder has, where it fits; else a fresh one."""
    folder = start_folder(config)
    if folder is not None and (folder / "modules.json").is_file():
        found = [read_tail(*entry) for entry in read_modules(folder)[2:] if entry[0] == "Dense"]
        for dense in found:
            shape = (backbone.width, width)
            if isinstance(dense, Dense) and (dense.linear.in_features, dense.linear.out_features) == shape:
                return dense
    return Dense(backbone.width, width)


def start_tail(config: PretrainConfig, pooling: str) -> list[nn.Module]:
    """What follows the pooling in the starting folder; nothing where the recipe pools in another way."""
    folder = start_folder(config)
    if folder is None or not (folder / "modules.json").is_file():
        return []
    modules = read_modules(folder)
    return [read_tail(*entry) for entry in modules[2:]] if read_pooling(modules[1][1])[0] == pooling else []


def start_folder(config: PretrainConfig) -> Path | None:
    """Where the starting model lies; None for a new one."""
    if isinstance(config.model, FolderBackbone):
        return config.model.path
    return local_folder(config.model.name) if isinstance(config.model, HubBackbone) else None


OBJECTIVES: dict[str, Callable[[PretrainConfig, Backbone, Mapping[str, nn.Module]], Built]] = {
    "mlm": _mlm,
    "condenser": _condenser,
    "cocondenser": _cocondenser,
    "cotmae": _cotmae,
    "simclr": _simclr,
    "moco": _moco,
    "vectors": _vectors,
}


def shape(wanted: recipes.Objective, tokenizer: Tokenizer) -> Shape:
    """What becomes of a drawn row."""
    if isinstance(wanted, recipes.CotmaeConfig):
        decoder_rate = None if wanted.decoder == "causal" else wanted.decoder_rate
        return EncoderDecoder(Masker.of(tokenizer, wanted.whole_words), wanted.encoder_rate, decoder_rate)
    if isinstance(wanted, recipes.Masking):
        return MaskedText(Masker.of(tokenizer, wanted.whole_words), wanted.mask_rate)
    return PlainText() if isinstance(wanted, recipes.VectorsConfig) else TwoViews()
