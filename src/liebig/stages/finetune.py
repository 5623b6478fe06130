"""`liebig finetune`: labelled data and a starting model in, a model folder and a log out.

The recipe is in `methods/finetuning.py`; what is read, learned and evaluated is up to the objective it names, and the
course of a training is in `train/stage.py`. An untied retriever leaves its passage encoder in `model/` and its query
encoder in `query/`.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch

from liebig.base.errors import RecipeError
from liebig.base.pipeline import Stage
from liebig.base.rng import key
from liebig.base.workspace import Folder
from liebig.methods.finetune_base import FinetuneObjective, FinetuneRecipe
from liebig.methods.finetuning import FinetuneConfig, objectives
from liebig.model.backbone import make_backbone
from liebig.model.encoder import Encoder
from liebig.text.layout import Layout
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World
from liebig.train.stage import MODEL, Data, TrainingStage


class Finetuning(TrainingStage[FinetuneRecipe, FinetuneObjective]):
    """An encoder, or two, trained by the objective of the recipe."""

    def __init__(self, config: FinetuneRecipe, folder: Path, world: World) -> None:
        super().__init__(config, folder, world)
        self.label = config.objective.kind

    def start(self) -> FinetuneObjective:
        config = self.config
        encoder = starting_encoder(config)
        passage = deepcopy(encoder) if config.untied else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(key(config.seed, 1) >> 1))  # new heads are a function of the seed
            return objectives()[config.objective.kind].build(config.objective, encoder, passage)

    def data(self, objective: FinetuneObjective) -> Data:
        self.say(objective.encoders[MODEL].describe())
        return objective.data(self)

    def save(self, objective: FinetuneObjective) -> None:
        for name, encoder in objective.encoders.items():
            encoder.save(self.folder / name)
        objective.save_head(self.folder / MODEL)


def starting_encoder(config: FinetuneRecipe) -> Encoder:
    """The encoder before training: lengths, titles, prompts and similarity are already those it will be used with."""
    if config.model.source is not None:
        encoder = Encoder.load(config.model.source, pooling=config.pooling)
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
    encoder.max_length = longest
    encoder.layout = Layout(
        config.title or encoder.layout.title,
        config.query_length,
        config.passage_length,
        encoder.layout.trained_length,
    )
    encoder.similarity = config.objective.compared_by()
    prompts = {"query": config.query_prompt, "passage": config.passage_prompt}
    if any(prompts.values()):
        encoder.prompts = {kind: text or encoder.prompt_text(kind) for kind, text in prompts.items()}
        # Texts without a role are read with the default prompt, so it has to be the one they are trained with.
        without_roles = not config.objective.roles and config.passage_prompt
        encoder.default_prompt = "passage" if without_roles else None
    encoder.pool_prompt = True  # training pools every token, so the trained model has to
    return encoder


def run(config: FinetuneConfig, folder: Folder) -> None:
    Finetuning.launch(config, folder)


STAGE = Stage(
    "finetune", FinetuneConfig, run, "liebig finetune recipe.toml loop.epochs=3 --out runs/retriever"
)
