"""A generator learns ten pairs by heart, from either start, and goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig.base import config as recipes, pipeline
from liebig.base.errors import DataError, ModelError
from liebig.model.packed import Packed
from liebig.queries.consistency import rouge_l
from liebig.queries.decoding import Decoding, Engine
from liebig.queries.generator import Generator
from liebig.queries.generator_training import padded
from liebig.stages import STAGES
from liebig.stages.queries_train import GeneratorTraining, QueriesTrainConfig
from liebig.train.distributed import ALONE
from tests.worlds.queries import passage, question

STAGE = STAGES["queries train"]


def recipe(collection: Path, model: Path, kind: str = "folder", **loop: object) -> QueriesTrainConfig:
    values = {
        "collections": [str(collection)],
        "model": {"kind": kind, "path": str(model)},
        "passage_length": 48,
        "query_length": 24,
        "loop": {"steps": 100, "batch": 10, **loop},
        "optim": {"lr": 1e-2 if kind == "folder" else 5e-3},
    }
    return recipes.load(QueriesTrainConfig, None, [], values)


def greedy(folder: Path, n: int) -> list[str]:
    generator = Generator.load(folder)
    sources = generator.sources([passage(i) for i in range(n)])
    rows = Engine(generator, torch.device("cpu")).write(sources, np.zeros(n, np.uint64), Decoding(1, top_k=1))
    return generator.texts([row[0] for row in rows])


@pytest.mark.parametrize("kind", ["folder", "encoder"])
def test_ten_pairs_are_learned_by_heart(kind, collection, t5, encoder, tmp_path):
    model = t5 if kind == "folder" else encoder
    pipeline.run_stage(STAGE, recipe(collection, model, kind), tmp_path / "out")
    assert greedy(tmp_path / "out" / "model", 10) == [question(i).lower() for i in range(10)]
    told = json.loads((tmp_path / "out" / "model" / "generator.json").read_text())
    assert told["labels"] == ["c, train: 10 pairs"]


def test_resumed_is_uninterrupted(collection, t5, tmp_path, monkeypatch):
    config = recipe(collection, t5, steps=6, checkpoint_every=3)
    pipeline.run_stage(STAGE, config, tmp_path / "whole")
    from liebig.queries import generator_training as train

    calls = []
    represent = train.GeneratorObjective.represent

    def breaking(self, chunk):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return represent(self, chunk)

    monkeypatch.setattr(train.GeneratorObjective, "represent", breaking)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_stage(STAGE, config, tmp_path / "broken")
    monkeypatch.undo()
    pipeline.run_stage(STAGE, config, tmp_path / "broken")
    one, two = (Generator.load(tmp_path / name / "model").model.state_dict() for name in ("whole", "broken"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_held_out_passages_are_written_for_and_searched(collection, t5, tmp_path):
    bm25 = STAGES["bm25"]
    pipeline.run_stage(
        bm25, recipes.load(bm25.config, None, [], {"collection": str(collection)}), tmp_path / "bm25"
    )
    config = recipe(collection, t5, steps=2).model_copy(
        update={
            "evaluation": QueriesTrainConfig.model_fields["evaluation"].default.model_copy(
                update={"split": "dev", "bm25": (tmp_path / "bm25",), "k": 3, "passages": 4}
            )
        }
    )
    pipeline.run_stage(STAGE, config, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    (measured,) = [line for line in lines if "rouge-l" in json.dumps(line)]
    assert "found@3" in json.dumps(measured)


def test_the_decoder_can_have_fewer_layers(collection, encoder, tmp_path):
    config = recipes.load(
        QueriesTrainConfig,
        None,
        ["model.decoder_layers=1"],
        {"collections": [str(collection)], "model": {"kind": "encoder", "path": str(encoder)}},
    )
    model = GeneratorTraining(config, tmp_path, ALONE).start().model
    assert (model.config.encoder.num_hidden_layers, model.config.decoder.num_hidden_layers) == (2, 1)


def test_a_prefix_keeps_the_blank_at_its_end(collection, t5):
    values = {"collections": [str(collection)], "model": {"kind": "folder", "path": str(t5)}}
    told = recipes.load(QueriesTrainConfig, None, ["prefix = text2query: ", "limit= 7 "], values)
    assert (told.prefix, told.limit) == ("text2query: ", 7)


def test_a_padded_rectangle_holds_the_row():
    tokens, real = padded(Packed.from_lists([[5, 6], [7], [8, 9, 1]]), pad=0)
    assert tokens.tolist() == [[5, 6, 0], [7, 0, 0], [8, 9, 1]]
    assert real.sum(dim=1).tolist() == [2, 1, 3]


def test_rouge_l_is_the_best_reference_by_common_subsequence():
    assert rouge_l("who built the tower", ["Who built the tower?"]) == 1.0
    assert rouge_l("the tower who built", ["who built the tower"]) == 0.5
    assert rouge_l("a b c", ["x y", "a x c"]) == pytest.approx(4 / 6)
    assert rouge_l("", ["a"]) == 0.0


def test_what_cannot_be_learned_from_is_said(collection, encoder, t5, tmp_path):
    with pytest.raises(DataError, match="no split 'nowhere'"):
        pipeline.run_stage(
            STAGE, recipe(collection, t5).model_copy(update={"split": "nowhere"}), tmp_path / "a"
        )
    with pytest.raises(ModelError, match="has no decoder"):
        pipeline.run_stage(STAGE, recipe(collection, encoder), tmp_path / "b")
