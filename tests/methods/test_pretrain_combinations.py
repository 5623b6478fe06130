"""Any pair source under any objective, and evaluation as the step itself counts."""

from __future__ import annotations

import json

import pytest
import torch

from liebig.base.config import parse
from liebig.methods import pretraining as presets
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.condenser import CondenserHead
from liebig.methods.held_out import evaluate
from liebig.methods.mlm import MaskedLM
from liebig.methods.pretraining import PretrainConfig
from liebig.stages.pretrain import read, start
from liebig.train.distributed import ALONE
from liebig.train.step import step
from tests.worlds.pretraining import backbone, batch, side, spans

OBJECTIVES = ("mlm", "bow", "condenser", "cocondenser", "cotmae", "simclr", "moco")
SOURCES = ("blocks", "spans", "crops", "cloze", "pairs", "queries")
SINGLE = ("mlm", "bow", "condenser")


def recipe(smoke, objective, source, single="skip", **rest):
    tables = {
        "model": {"kind": "new", "layers": 2, "width": 16, "heads": 2},
        "objective": {"kind": objective} | ({"queue": 16} if objective == "moco" else {}),
        "source": {"kind": source} | {"crops": {"window": 60}, "spans": {"single": single}}.get(source, {}),
        "loop": {"batch": 8, "steps": 1},
        "max_length": 48,
    }
    if source in ("pairs", "queries"):
        tables["source"] |= {"collection": smoke / "collection", "split": "generated"}
        tables["tokenizer"] = smoke / "tokenizer"
    else:
        tables["stores"] = [{"path": smoke / "store"}]
    return presets.resolve(parse(PretrainConfig, tables | rest))


def taken(config, store):
    """One step of a recipe, and its evaluation."""
    found = start(config, store.tokenizer).train()
    data = read(config, [store] if config.stores else [], store.tokenizer, ALONE, lambda _: None)
    result = step(found, data.batches(0), chunk_tokens=200)
    found.after_step()
    return result, data.evaluate(found.eval())


@pytest.mark.parametrize(
    "objective, source", [(o, s) for o in OBJECTIVES for s in SOURCES if o in SINGLE or s != "blocks"]
)
def test_every_objective_takes_every_source_it_can(smoke, store, objective, source):
    result, measured = taken(recipe(smoke, objective, source, evaluation={"share": 0.1}), store)
    assert torch.isfinite(result.loss)
    assert result.counts["examples"] == 8
    assert set(measured) <= set(result.losses) | set(result.metrics)


def test_documents_of_one_span_are_used_once_on_request(smoke, store):
    config = recipe(smoke, "cocondenser", "spans", max_length=100, single="once")
    data = read(config, [store], store.tokenizer, ALONE, lambda _: None)
    owners = data.batches(0).sides["text"].owner
    assert 8 < len(owners) < 16
    result, _ = taken(config, store)
    assert torch.isfinite(result.losses["contrast"])


def test_a_budget_of_tokens_becomes_a_number_of_examples(smoke, store):
    config = recipe(smoke, "mlm", "blocks", batch_tokens=1500, loop={"steps": 1})
    data = read(config, [store], store.tokenizer, ALONE, lambda _: None)
    assert sum(data.batches(i).tokens for i in range(10)) / 10 == pytest.approx(1500, rel=0.1)


def test_several_stores_are_mixed_by_their_weights(smoke, store):
    stores = [{"path": smoke / "store", "weight": 3}, {"path": smoke / "store", "weight": 1}]
    config = recipe(smoke, "mlm", "blocks", stores=stores)
    lines = []
    read(config, [store, store], store.tokenizer, ALONE, lines.append)
    assert [line.split(", ")[1] for line in lines[:2]] == ["75% of the training", "25% of the training"]


@pytest.mark.parametrize("weights, share", [((3, 1), 0.25), ((None, None), 0.5)])
@pytest.mark.parametrize("mix", ["batch", "example"])
def test_a_mixture_draws_a_source_for_each_batch_or_each_example_as_often_as_asked(
    smoke, store, mix, weights, share
):
    """A block is one sequence and a pair of spans two, so the sequences of a batch tell what was drawn."""
    parts = [{"source": {"kind": kind}, "weight": w} for kind, w in zip(("blocks", "spans"), weights)]
    tables = {"source": {"kind": "mixture", "parts": parts}, "mix": mix, "coefficient": 0}
    config = presets.resolve(parse(PretrainConfig, recipe(smoke, "mlm", "blocks").model_dump() | tables))
    data = read(config, [store], store.tokenizer, ALONE, lambda _: None)
    found = [len(data.batches(i).sides["text"].packed) for i in range(300)]
    assert ({8, 16} == set(found)) == (mix == "batch")
    assert sum(found) / (8 * len(found)) - 1 == pytest.approx(share, abs=0.08)


def test_runs_with_other_seeds_are_evaluated_on_the_same_masks_and_pairs(smoke, store):
    found = start(recipe(smoke, "cocondenser", "spans"), store.tokenizer).eval()
    measured = []
    for seed in (1, 2):
        loop = {"batch": 8, "steps": 1, "seed": seed}
        config = recipe(smoke, "cocondenser", "spans", loop=loop, evaluation={"share": 0.1})
        measured.append(read(config, [store], store.tokenizer, ALONE, lambda _: None).evaluate(found))
    assert measured[0] == measured[1]


@pytest.mark.parametrize("chunk_tokens", [30, 10_000])
def test_evaluation_counts_as_the_step_does(chunk_tokens):
    model = backbone()
    pairs = batch(4, text=side(spans(8), 2))
    for objective in (
        MaskedLM(MaskedLM.Config(), model),
        CoCondenser(CoCondenser.Config(), model, CondenserHead(model).double()),
    ):
        objective.eval()
        result = step(objective, pairs)
        measured = evaluate(objective, lambda _: pairs, 2, ALONE, chunk_tokens=chunk_tokens)
        expected = {**result.losses, **result.metrics}
        assert measured == pytest.approx({name: float(expected[name]) for name in measured}, abs=1e-9)
        assert {name for name in result.losses if name != "contrast"} <= set(measured)


def test_the_first_measure_is_the_one_to_choose_a_checkpoint_by():
    model = backbone()
    objective = CoCondenser(CoCondenser.Config(), model, CondenserHead(model).double()).eval()
    measured = evaluate(objective, lambda _: batch(4, text=side(spans(8), 2)), 1, ALONE)
    assert next(iter(measured)) == "partner_accuracy"
    assert json.dumps(measured)
