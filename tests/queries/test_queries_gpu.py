"""The decoding loop on a GPU: in float32 what a CPU writes, in half precision nearly so, trained there too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from liebig.base import config as recipes, pipeline
from liebig.collection.lookup import hash_all
from liebig.queries.decoding import Decoding, Engine, passage_keys
from liebig.queries.generator import Generator, GeneratorSettings, from_encoder
from liebig.stages import STAGES
from liebig.stages.queries_train import QueriesTrainConfig
from tests.worlds.queries import passage, question, tokenizer

pytestmark = pytest.mark.gpu
PASSAGES = [passage(i) for i in range(40)]
KEYS = passage_keys(5, hash_all(p.id for p in PASSAGES))


@pytest.fixture(params=["t5", "bert"])
def generator(request, t5, encoder) -> Generator:
    if request.param == "t5":
        return Generator.load(t5)
    return Generator(
        from_encoder(encoder, tokenizer(), None, 0),
        tokenizer(),
        GeneratorSettings(passage_length=48, query_length=24),
    )


def written(generator: Generator, device: str, precision: str, method: Decoding, budget: int = 400) -> list:
    engine = Engine(generator, torch.device(device), precision, budget)
    return [tuple(row) for rows in engine.write(generator.sources(PASSAGES), KEYS, method) for row in rows]


@pytest.mark.parametrize("method", [Decoding(5), Decoding(1, top_k=1)])
def test_float32_on_a_gpu_writes_what_a_cpu_writes(generator, method):
    here, there = (written(generator, device, "fp32", method) for device in ("cpu", "cuda"))
    assert np.mean([a == b for a, b in zip(here, there)]) > 0.97


def test_half_precision_writes_mostly_the_same_whatever_the_batch(generator):
    small, large = (written(generator, "cuda", "bf16", Decoding(5), budget) for budget in (100, 100_000))
    assert np.mean([a[:4] == b[:4] for a, b in zip(small, large)]) > 0.8


def test_a_generator_learns_by_heart_on_a_gpu(collection, encoder, tmp_path):
    values = {
        "collections": [str(collection)],
        "model": {"kind": "encoder", "path": str(encoder)},
        "passage_length": 48,
        "query_length": 24,
        "loop": {"steps": 120, "batch": 10},
        "optim": {"lr": 5e-3},
        "evaluation": {"split": "train"},
    }
    stage = STAGES["queries train"]
    pipeline.run_stage(stage, recipes.load(QueriesTrainConfig, None, [], values), tmp_path / "out")
    made = Generator.load(tmp_path / "out" / "model")
    rows = Engine(made, torch.device("cuda")).write(
        made.sources(PASSAGES[:10]), KEYS[:10], Decoding(1, top_k=1)
    )
    right = [a == question(i).lower() for i, a in enumerate(made.texts([row[0] for row in rows]))]
    assert np.mean(right) >= 0.9
