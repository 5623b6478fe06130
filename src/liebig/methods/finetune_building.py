"""The towers and the objective a recipe asks for, and how texts become their sequences."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch

from liebig.base.errors import RecipeError
from liebig.base.rng import key
from liebig.methods import lora, similarity_tasks as similarity
from liebig.methods.contrastive import InfoNCE, Loss, Retriever
from liebig.methods.distill import MarginMSE, SoftLabels
from liebig.methods.finetuning import (
    ContrastiveConfig,
    CosineConfig,
    DistillConfig,
    FinetuneConfig,
    TripletConfig,
)
from liebig.methods.ltr import Ltr
from liebig.model.backbone import make_backbone
from liebig.model.encoder import Encoder, Similarity
from liebig.model.loading import FolderBackbone, HubBackbone
from liebig.text.layout import Layout, RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.objective import Objective


@dataclass(frozen=True)
class Start:
    """The encoder of queries (or of all texts), that of passages, and the objective on them."""

    encoder: Encoder
    passage: Encoder
    objective: Objective


def start(config: FinetuneConfig) -> Start:
    """The starting model as the recipe wants it; what is fresh is a function of the seed."""
    encoder = _encoder(config)
    passage = deepcopy(encoder) if config.untied else encoder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(config.seed, 1) >> 1))
        made = _objective(config, encoder, passage if config.untied else None)
    return Start(encoder, passage, made)


def _encoder(config: FinetuneConfig) -> Encoder:
    if isinstance(config.model, FolderBackbone):
        encoder = Encoder.load(config.model.path, pooling=config.pooling)
    elif isinstance(config.model, HubBackbone):
        encoder = Encoder.load(config.model.name, pooling=config.pooling)
    else:
        assert config.tokenizer is not None, "a new model has a tokenizer"
        tokenizer = Tokenizer.from_folder(config.tokenizer)
        backbone = make_backbone(config.model, tokenizer, config.seed)
        encoder = Encoder(backbone, tokenizer, pooling=config.pooling or "cls")
    longest = max(config.query_length, config.passage_length)
    if longest > encoder.backbone.max_positions:
        raise RecipeError(
            f"texts of {longest} tokens are longer than the model's {encoder.backbone.max_positions} positions",
            fix=f"set lengths of at most {encoder.backbone.max_positions}",
        )
    if config.dropout is not None:
        encoder.backbone.set_dropout(config.dropout)
    if config.lora is not None:
        some = config.lora
        lora.adapt(
            encoder.backbone,
            rank=some.rank,
            alpha=some.alpha,
            dropout=some.dropout,
            targets=some.targets,
            seed=config.seed,
        )
    encoder.max_length = longest
    encoder.layout = Layout(
        config.title or encoder.layout.title,
        config.query_length,
        config.passage_length,
        encoder.layout.trained_length,
    )
    encoder.similarity = similarity_of(config)
    given = {"query": config.query_prompt, "passage": config.passage_prompt}
    if any(given.values()):
        encoder.prompts = {kind: text or encoder.prompt_text(kind) for kind, text in given.items()}
        # Scored pairs and triplets are texts without a role, which are read with the default prompt.
        texts = isinstance(config.objective, CosineConfig | TripletConfig) and config.passage_prompt
        encoder.default_prompt = "passage" if texts else None
    encoder.pool_prompt = True  # training pools every token, so the model it makes has to
    return encoder


def similarity_of(config: FinetuneConfig) -> Similarity:
    """What the vectors are trained to be compared by."""
    choice = config.objective
    if isinstance(choice, ContrastiveConfig | DistillConfig):
        return choice.similarity
    if isinstance(choice, CosineConfig):
        return "cosine"
    return "cosine" if isinstance(choice, TripletConfig) and choice.distance == "cosine" else "dot"


def _objective(config: FinetuneConfig, encoder: Encoder, passage: Encoder | None) -> Objective:
    choice = config.objective
    if isinstance(choice, CosineConfig):
        return similarity.cosine_regression(encoder)
    if isinstance(choice, TripletConfig):
        return similarity.triplets(encoder, choice.margin, choice.distance)
    if isinstance(choice, ContrastiveConfig | DistillConfig):
        _check_widths(choice.widths, encoder)
        return Retriever(encoder, passage, loss=_losses(choice), widths=choice.widths)
    return Ltr(encoder, passage)


def _losses(choice: ContrastiveConfig | DistillConfig) -> list[tuple[float, Loss]]:
    hard = InfoNCE(choice.temperature, choice.similarity)
    if isinstance(choice, ContrastiveConfig):
        return [(1.0, hard)]
    soft: Loss = MarginMSE(choice.similarity)
    if choice.loss == "kl":
        soft = SoftLabels(choice.over, choice.temperature, choice.teacher_temperature, choice.similarity)
    return [(1.0, soft)] + ([(choice.hard, hard)] if choice.hard else [])


def _check_widths(widths: tuple[int, ...], encoder: Encoder) -> None:
    wrong = [width for width in widths if not 0 < width <= encoder.width]
    if wrong:
        raise RecipeError(
            f"objective.widths has {wrong[0]}, and vectors have {encoder.width} numbers",
            fix=f"use widths from 1 to {encoder.width}",
        )


def layouts_of(encoder: Encoder) -> tuple[RoleLayout, RoleLayout]:
    """How queries and passages become sequences: as the model will be used."""
    return encoder.layout_for("query"), encoder.layout_for("passage")
