"""What a recipe says reaches the objective, the masks and the source: every option, none at its default."""

from __future__ import annotations

import numpy as np
import pytest

from liebig.base.config import parse
from liebig.base.errors import RecipeError
from liebig.collection import Collection
from liebig.methods import methods, pretraining as presets
from liebig.methods.base import MethodStart
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.sources import mixture as sources
from liebig.methods.sources.base import Noisy
from liebig.methods.sources.blocks import BlockSource, ClozeSource
from liebig.methods.sources.crops import CropSource
from liebig.methods.sources.spans import SpanSource
from liebig.stages.pretrain import read, start
from liebig.train.distributed import ALONE
from tests.worlds.pretraining import backbone

HEAD = {"skip_from": 1, "late_mlm": False, "mlm_reduction": "sum"}
CONTRAST = {"temperature": 0.7, "similarity": "cosine"}
VIEWS = {
    "crops": {"window": 40, "shortest": 0.2, "longest": 0.4},
    "cloze": {"keep": 0.3, "shortest": 0.2, "longest": 0.4},
}


def recipe(smoke, objective, source, **rest):
    """A resolved recipe on the store of the smoke recipes."""
    tables = {
        "model": {"kind": "new", "layers": 4, "width": 16, "heads": 2},
        "stores": [{"path": smoke / "store"}],
        "loop": {"batch": 8, "steps": 1},
        "max_length": 48,
    }
    return presets.resolve(parse(PretrainConfig, tables | {"objective": objective, "source": source} | rest))


def build(config, store, heads=None):
    """The method of a resolved recipe on a tiny backbone."""
    start = MethodStart(store.tokenizer, heads=heads or {})
    return methods()[config.objective.kind].build(config, backbone(), start)


@pytest.fixture
def built(smoke, store):
    """Build a method from its table."""
    return lambda objective, source="spans": build(recipe(smoke, objective, {"kind": source}), store)


def test_a_condenser_is_the_one_asked_for(built):
    made = built({"kind": "condenser", "n_head_layers": 3, **HEAD}, "blocks")
    assert (made.skip_from, made.config.late_mlm, made.reduction, len(made.head.layers)) == (
        1,
        False,
        "sum",
        3,
    )
    assert made.weights["head"] == 1.0
    assert "late" not in made.weights


def test_a_cocondenser_is_the_one_asked_for(built):
    asked = {"kind": "cocondenser", "n_head_layers": 1, "mlm_weight": 3.0, **HEAD, **CONTRAST}
    made = built(asked)
    assert (made.skip_from, made.config.late_mlm, made.reduction, len(made.head.layers)) == (
        1,
        False,
        "sum",
        1,
    )
    assert (made.config.temperature, made.config.similarity, made.weights["head"]) == (0.7, "cosine", 3.0)
    assert made.config.mlm
    assert not made.config.distinct_documents
    other = built({"kind": "cocondenser", "mlm": False, "distinct_documents": True})
    assert not other.config.mlm
    assert other.config.distinct_documents


def test_a_decoder_of_cotmae_is_the_one_asked_for(built):
    made = built({"kind": "cotmae", "n_decoder_layers": 3, "decoder_weight": 0.5, "mlm_reduction": "sum"})
    assert (len(made.decoder.layers), made.weights["decoder"], made.reduction) == (3, 0.5, "sum")
    causal = built({"kind": "cotmae", "decoder": "causal", "window": 5, "n_decoder_layers": 2})
    assert causal.decoder.describe() == {"kind": "causal", "layers": 2, "window": 5}


@pytest.mark.parametrize(
    "asked, other",
    [({"n_decoder_layers": 2}, {"n_decoder_layers": 3}), ({"decoder": "causal"}, {"window": 5})],
)
def test_a_decoder_of_the_start_that_is_not_the_one_asked_for_is_refused(smoke, store, asked, other):
    config = recipe(smoke, {"kind": "cotmae", **asked}, {"kind": "spans"})
    heads = build(config, store).saved().heads
    assert build(config, store, heads).saved().heads == heads
    changed = recipe(smoke, {"kind": "cotmae", **asked, **other}, {"kind": "spans"})
    with pytest.raises(RecipeError, match=next(iter(other))):
        build(changed, store, heads)


def test_a_fresh_head_that_nothing_trains_is_not_kept(smoke, store):
    alone = recipe(smoke, {"kind": "cocondenser", "mlm": False}, {"kind": "spans"})
    assert not build(alone, store).saved().heads
    trained = build(recipe(smoke, {"kind": "condenser"}, {"kind": "blocks"}), store).saved().heads
    assert build(alone, store, trained).saved().heads == trained


def test_simclr_and_moco_are_the_ones_asked_for(built):
    simclr = built({"kind": "simclr", "pooling": "cls", "distinct_documents": True, **CONTRAST})
    assert (simclr.config.temperature, simclr.config.similarity, simclr.config.pooling) == (
        0.7,
        "cosine",
        "cls",
    )
    assert simclr.config.distinct_documents
    rest = {"momentum": 0.9, "pooling": "cls", "key_dropout": False}
    moco = built({"kind": "moco", "queue": 24, **rest, **CONTRAST})
    assert len(moco.queue) == 24
    assert {name: getattr(moco.config, name) for name in rest | CONTRAST} == rest | CONTRAST


def test_a_queue_that_the_batch_does_not_divide_is_refused_before_anything_is_trained(built):
    with pytest.raises(RecipeError, match="use a queue of 96 or 104"):
        built({"kind": "moco", "queue": 100})


@pytest.mark.parametrize("asked, rate", [({}, 0.1), ({"dropout": 0.3}, 0.3)])
def test_dropout_is_the_models_own_or_the_one_asked_for(smoke, store, asked, rate):
    made = start(recipe(smoke, {"kind": "condenser"}, {"kind": "blocks"}, **asked), store.tokenizer)
    layers = (made.backbone.body.encoder.layer[0], made.head.layers[0])
    assert [layer.output.dropout.p for layer in layers] == [rate, rate]
    assert made.backbone.body.embeddings.dropout.p == rate


@pytest.mark.parametrize("kind", ["mlm", "simclr", "moco"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_model_is_saved_with_the_pooling_asked_for(smoke, store, kind, pooling):
    asked = {"kind": kind, "pooling": pooling} | ({"queue": 16} if kind == "moco" else {})
    config = recipe(smoke, asked, {"kind": "blocks" if kind == "mlm" else "spans"})
    assert build(config, store).saved().pooling == pooling


def test_vectors_are_compared_as_they_were_trained(smoke, store):
    for asked in ({"kind": "cocondenser"}, {"kind": "simclr"}, {"kind": "moco", "queue": 16}):
        for similarity in ("dot", "cosine"):
            config = recipe(smoke, {**asked, "similarity": similarity}, {"kind": "spans"})
            assert build(config, store).saved().similarity == similarity
    cocondenser = build(recipe(smoke, {"kind": "cocondenser"}, {"kind": "spans"}), store)
    assert cocondenser.saved().pooling == "cls"


def test_masks_have_the_rates_asked_for(smoke, store):
    asked = {"kind": "cotmae", "encoder_rate": 0.2, "decoder_rate": 0.6}
    both = recipe(smoke, asked, {"kind": "spans"}).objective.shape(store.tokenizer)
    assert (both.encoder_rate, both.decoder_rate) == (0.2, 0.6)
    asked = {"kind": "mlm", "mask_rate": 0.4, "whole_words": False}
    single = recipe(smoke, asked, {"kind": "blocks"}).objective.shape(store.tokenizer)
    assert single.rate == 0.4
    assert not single.masker.continues.any()


def sources_of(smoke, store, source, monkeypatch, objective="simclr"):
    """The sources that a recipe opens, before anything is held out of them."""
    opened = []
    divide = sources.divide
    monkeypatch.setattr(sources, "divide", lambda found, share: opened.extend(found) or divide(found, share))
    config = recipe(smoke, {"kind": objective}, source)
    read(config, [store], store.tokenizer, ALONE, lambda _: None)
    return [one.source for one in opened]


@pytest.mark.parametrize("choice", ["random", "nearby", "overlap", "window", "mixed"])
def test_spans_lie_where_the_recipe_says(smoke, store, monkeypatch, choice):
    (found,) = sources_of(smoke, store, {"kind": "spans", "choice": choice, "short": 0.3}, monkeypatch)
    assert (found.kind, found.short, found.limit) == (choice, 0.3, 46)


@pytest.mark.parametrize("kind", VIEWS)
def test_views_are_cut_and_spoilt_as_the_recipe_says(smoke, store, monkeypatch, kind):
    noise = {"delete": 0.1, "replace": 0.2, "mask": 0.3}
    (found,) = sources_of(smoke, store, {"kind": kind, **VIEWS[kind], **noise}, monkeypatch)
    assert isinstance(found, Noisy)
    assert {name: getattr(found, name) for name in noise} == noise
    assert found.source.ratio == (0.2, 0.4)
    exact = {name: getattr(found.source, name) for name in VIEWS[kind] if name in ("window", "keep")}
    assert exact.items() <= VIEWS[kind].items()


def test_a_span_may_always_stay_in_its_block(smoke, store, monkeypatch):
    asked = {"kind": "cloze", "keep": 1.0, "shortest": 0.1, "longest": 0.3, "delete": 0.0}
    (found,) = sources_of(smoke, store, asked, monkeypatch)
    row = found.draw(np.arange(20), 0, 0)
    texts = row.tokens.to_lists()
    for query, block in zip(texts[::2], texts[1::2]):
        inside = query[1:-1]  # without its special tokens
        assert any(block[i : i + len(inside)] == inside for i in range(len(block)))


OPENED = [
    ("mlm", {"kind": "blocks", "short": 0.6}, lambda store: BlockSource(store, 46, short=0.6)),
    ("simclr", {"kind": "cloze", "short": 0.6}, lambda store: ClozeSource(store, 46, short=0.6)),
    ("mlm", {"kind": "spans", "single": "once"}, lambda store: SpanSource(store, 46, once=True)),
    (
        "mlm",
        {"kind": "crops", "window": 60, "across": True},
        lambda store: CropSource(store, 60, ratio=(0.1, 0.5), across=True),
    ),
]


@pytest.mark.parametrize("objective, asked, made", OPENED, ids=lambda case: getattr(case, "get", str)("kind"))
def test_a_source_is_the_one_asked_for(smoke, store, monkeypatch, objective, asked, made):
    (found,), expected = sources_of(smoke, store, asked, monkeypatch, objective), made(store)
    assert len(found) == len(expected)
    ours, theirs = (source.draw(np.arange(20), 0, 0) for source in (found, expected))
    assert ours.tokens.to_lists() == theirs.tokens.to_lists()


def test_pairs_are_those_of_the_split_and_as_many_a_passage_as_asked_for(smoke, store):
    asked = {"kind": "queries", "collection": smoke / "collection", "split": "generated"}
    config = {"stores": [], "tokenizer": smoke / "tokenizer"}
    partners = [
        len(
            sources.build(recipe(smoke, {"kind": "simclr"}, asked | most, **config), [], store.tokenizer)[
                0
            ].source.partners.values
        )
        for most in ({}, {"per_passage": 1})
    ]
    passages = len({j.passage for j in Collection(smoke / "collection").judgements("generated")})
    assert partners[0] > partners[1] == passages
