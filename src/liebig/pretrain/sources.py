"""From a recipe to what batches are drawn from: every source over every store, with its share.

Several stores and the parts of a mixture end in one flat list of sources; a batch, or each of its examples, comes
from one of them. Without weights they count by size to the power of a coefficient: 1 gives every example the same
chance, 0 every source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from liebig.data.batch_row import Frame
from liebig.data.batches import (
    Batches,
    BlockSource,
    ClozeSource,
    CropSource,
    MixedBatches,
    Source,
    SpanSource,
    Stepped,
)
from liebig.data.collection import Collection
from liebig.data.store import TokenStore
from liebig.errors import RecipeError
from liebig.pretrain import source_config as recipes
from liebig.pretrain.arrange import Arranged, Noisy
from liebig.pretrain.build import start_folder
from liebig.pretrain.config import PretrainConfig
from liebig.pretrain.heldout import hold_out
from liebig.pretrain.objective_config import CotmaeConfig, Objective
from liebig.pretrain.pairs import read_pairs
from liebig.pretrain.texts import Taught, TextSource
from liebig.records import Title
from liebig.text.layout import Layout
from liebig.text.tokenizer import Tokenizer

SAMPLE = 512


@dataclass(frozen=True)
class Weighted:
    """A source and its share of the training."""

    source: Source
    share: float
    name: str
    skipped: int = 0


def build(config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer) -> list[Weighted]:
    """All sources of a resolved recipe; shares add up to 1."""
    made = [_part(part, config, stores, tokenizer) for part in recipes.parts(config.source)]
    given = (
        [p.weight for p in config.source.parts]
        if isinstance(config.source, recipes.MixtureConfig)
        else [None]
    )
    outer = shares(given, [sum(len(w.source) for w in part) for part in made], config.coefficient)
    return [
        Weighted(w.source, w.share * share, w.name, w.skipped)
        for part, share in zip(made, outer)
        for w in part
    ]


def shares(given: Sequence[float | None], sizes: Sequence[int], coefficient: float) -> list[float]:
    """Shares that add up to 1: the weights given, or size^coefficient."""
    known = [weight for weight in given if weight is not None]
    if known and len(known) != len(given):
        raise RecipeError(
            "some have a weight and others none", fix="give a weight to all of them, or to none"
        )
    weights = np.array(known if known else np.array(sizes, np.float64) ** coefficient, np.float64)
    return [float(share) for share in weights / weights.sum()]


def _part(
    part: recipes.Single, config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
) -> list[Weighted]:
    """One source of the recipe over all stores it reads."""
    if isinstance(part, recipes.PairsConfig | recipes.QueriesConfig):
        made: list[tuple[str, Any]] = [(part.collection.name, _collected(part, config, tokenizer))]
        given: list[float | None] = [None]
    else:
        made = [(store.path.name, _stored(part, config, store)) for store in stores]
        given = [store.weight for store in config.stores]
    inner = shares(given, [len(source) for _, source in made], config.coefficient)
    return [
        Weighted(
            _wrapped(source, part, config.objective, tokenizer),
            share,
            f"{part.kind} of {name}",
            getattr(source, "skipped", 0),
        )
        for (name, source), share in zip(made, inner)
    ]


def room(config: PretrainConfig, tokenizer: Tokenizer) -> int:
    """Tokens of a sequence without its special ones."""
    frame = Frame.of(tokenizer)
    return config.max_length - len(frame.before) - len(frame.after)


def _stored(part: recipes.Single, config: PretrainConfig, store: TokenStore) -> Source:
    limit = room(config, store.tokenizer)
    if isinstance(part, recipes.BlocksConfig):
        return BlockSource(store, limit, short=part.short)
    if isinstance(part, recipes.TextsConfig):
        taught = Taught.open(part.vectors)
        taught.check(store)
        return TextSource(store, taught, limit, part.group)
    if isinstance(part, recipes.SpansConfig):
        return SpanSource(store, limit, kind=part.choice, short=part.short, once=part.single == "once")
    if isinstance(part, recipes.CropsConfig):
        return _crops(part, limit, config.max_length, store)
    assert isinstance(part, recipes.ClozeConfig), "every kind has its branch"
    ratio = None if part.longest is None else (part.shortest or 0.0, part.longest)
    return ClozeSource(store, limit, keep=part.keep, ratio=ratio, short=part.short)


def _crops(part: recipes.CropsConfig, limit: int, max_length: int, store: TokenStore) -> CropSource:
    longest = int(part.window * part.longest)
    if longest > limit:
        raise RecipeError(
            f"crops of up to {longest} tokens do not fit into max_length = {max_length}",
            fix=f"set max_length = {max_length + longest - limit}, or a smaller source.window",
        )
    ratio = (0.0 if part.shortest is None else part.shortest, part.longest)
    return CropSource(store, part.window, ratio=ratio, across=part.across)


def _collected(
    part: recipes.PairsConfig | recipes.QueriesConfig, config: PretrainConfig, tokenizer: Tokenizer
) -> Source:
    anchor: Literal["query", "passage"] = "query" if isinstance(part, recipes.PairsConfig) else "passage"
    most = part.per_passage if isinstance(part, recipes.QueriesConfig) else None
    collection = Collection(part.collection)
    limit, title = room(config, tokenizer), title_of(config)
    return read_pairs(collection, part.split, tokenizer, limit, anchor=anchor, most=most, title=title)


def title_of(config: PretrainConfig) -> Title:
    """What stands between title and text: as said, else as the start was trained."""
    folder = start_folder(config)
    return config.title or (Layout() if folder is None else Layout.load(folder)).title


def _wrapped(source: Source, part: recipes.Single, objective: Objective, tokenizer: Tokenizer) -> Source:
    """With its noise, and in the order the objective reads."""
    if isinstance(part, recipes.Views) and (part.delete or part.replace or part.mask):
        source = Noisy(source, tokenizer, part.delete or 0.0, part.replace, part.mask)
    if isinstance(objective, CotmaeConfig):
        source = Arranged(source, symmetric=isinstance(part, recipes.SpansConfig | recipes.CropsConfig))
    return source


def divide(found: Sequence[Weighted], share: float) -> tuple[list[Weighted], list[Weighted]]:
    """What is trained on, and what is held out."""
    kept, held = [], []
    for one in found:
        train, rest = hold_out(one.source, share)
        kept.append(Weighted(train, one.share, one.name, one.skipped))
        if rest is not None:
            held.append(Weighted(rest, one.share, one.name))
    return kept, held


def tokens_per_example(found: Sequence[Weighted]) -> float:
    """Mean tokens of an example, special ones included, measured on a sample from all over each source."""
    total = 0.0
    for one in found:
        sample = np.linspace(0, len(one.source) - 1, min(SAMPLE, len(one.source))).astype(np.int64)
        total += one.share * len(one.source.draw(sample, 0, 0).tokens) / len(sample)
    return total


def batches(
    found: Sequence[Weighted], size: int, seed: int, per: Literal["batch", "example"], together: int = 1
) -> Stepped:
    """Batches of `size` examples from all sources, `together` of them neighbours."""
    if len(found) == 1:
        return Batches(found[0].source, size, seed, together)
    return MixedBatches([w.source for w in found], [w.share for w in found], size, seed, per, together)


def epoch_steps(found: Sequence[Weighted], size: int) -> int:
    """Steps in which as many examples are seen as there are."""
    return max(1, sum(len(w.source) for w in found) // size)
