"""Cross-encoders: the loss and its gradients, runs reranked, soft labels written, several models averaged."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig.base import workspace
from liebig.base.config import parse
from liebig.base.errors import DataError, ModelError, RecipeError
from liebig.base.records import Group, Hit, Passage, Query
from liebig.collection import Collection
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.reranker import (
    PointwiseReranker,
    RerankBatches,
    Reranker,
    rerank,
    scorer,
    soft_labels,
)
from liebig.model.cross_encoder import IDENTITY, SIGMOID, CrossEncoder
from liebig.stages.finetune import run as run_finetune
from liebig.stages.mine import MineConfig, run as run_mine
from liebig.stages.rerank_score import RerankScoreConfig, run as run_score
from liebig.stages.rerank_train import RerankTraining, run as run_train
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.distributed import ALONE
from liebig.train.step import step
from tests.worlds.processes import together

PAIRS = [([7, 8], [9, 10, 11]), ([7, 8], [12]), ([7, 8], [13, 14]), ([9], [8, 7]), ([9], [10, 10, 10, 10])]
OWNER = [0, 0, 0, 1, 1]


@pytest.fixture(scope="module")
def cross(model):
    return started(model, 1)


def started(model, seed):
    """An encoder with a fresh head."""
    torch.manual_seed(seed)
    return CrossEncoder.start(model, length=24).double()


@pytest.mark.parametrize("chunk_tokens", [None, 12])
def test_loss_and_gradients_equal_the_plain_softmax_of_each_group(cross, chunk_tokens):
    scores = torch.cat([cross(cross.pack([pair])) for pair in PAIRS])
    expected = -(scores[:3].log_softmax(0)[0] + scores[3:].log_softmax(0)[0]) / 2
    cross.zero_grad()
    expected.backward()
    theirs = {name: p.grad.clone() for name, p in cross.named_parameters() if p.grad is not None}
    batch = Batch({"pair": Side(cross.pack(PAIRS), torch.tensor(OWNER))}, 2)
    found = step(Reranker(cross), batch, chunk_tokens=chunk_tokens)
    torch.testing.assert_close(found.losses["rerank"], expected.detach(), rtol=0, atol=1e-9)
    for name, gradient in theirs.items():
        ours = dict(cross.named_parameters())[name].grad
        torch.testing.assert_close(ours, gradient, rtol=1e-7, atol=1e-9)


def test_the_pointwise_loss_judges_every_pair_by_itself(cross):
    scores = torch.cat([cross(cross.pack([pair])) for pair in PAIRS])
    labels = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels).detach()
    batch = Batch({"pair": Side(cross.pack(PAIRS), torch.tensor(OWNER))}, 2)
    for chunk_tokens in (None, 12):
        found = step(PointwiseReranker(cross), batch, chunk_tokens=chunk_tokens)
        torch.testing.assert_close(found.losses["rerank"], expected, rtol=0, atol=1e-9)


def test_a_pair_is_cut_to_the_length_and_has_two_segments(cross):
    packed = cross.pack([([7] * 9, [8] * 90)])
    assert packed.total == 24
    assert (packed.tokens == 7).sum() == 9
    assert set(packed.segments.tolist()) == {0, 1}


def by_length(asked):
    return [np.array([len(p.text) for p in passages], np.float32) for _, passages in asked]


def lookup(kind):
    return lambda name: kind(name, "x" * int(name[1:]))


def test_a_run_is_reranked_to_the_depth_and_the_rest_follows():
    hits = [Hit("q1", f"p{n}", 9.0 - n, rank) for rank, n in enumerate((1, 2, 3, 9, 8), 1)]
    found = list(rerank(hits, 3, by_length, lookup(Query), lookup(Passage)))
    assert [hit.passage for hit in found] == ["p3", "p2", "p1", "p9", "p8"]
    assert [hit.score for hit in found] == [3.0, 2.0, 1.0, 0.0, -1.0]
    assert [hit.rank for hit in found] == [1, 2, 3, 4, 5]


def test_several_models_score_by_their_mean(model, cross):
    other = started(model, 2)
    asked = [(Query("q", "stone river"), [Passage("a", "bread"), Passage("b", "stone")])]
    one, two, both = (scorer(models, "no")(asked)[0] for models in ([cross], [other], [cross, other]))
    assert abs(one - two).max() > 1e-4
    np.testing.assert_allclose(both, (one + two) / 2, rtol=1e-5)


def test_soft_labels_are_the_scores_of_every_passage():
    (found,) = soft_labels([Group("q1", ("p5",), ("p2", "p3"))], by_length, lookup(Query), lookup(Passage))
    assert (found.positive_scores, found.negative_scores) == ((5.0,), (2.0, 3.0))


def stage(out, kind, config, function):
    with workspace.stage(out, kind=kind, recipe=config.model_dump(mode="json"), inputs={}) as folder:
        function(config, folder)
    return out


def train_config(model, collection, **fields):
    tree = {
        "model": {"kind": "folder", "path": str(model)},
        "collection": str(collection),
        "negatives": 2,
        "length": 40,
        "dev": "dev",
        "optim": {"lr": 1e-3},
        "loop": {"epochs": 1, "batch": 8, "log_every": 1, "workers": 0},
    }
    return parse(RerankTraining.Config, tree | fields)


def test_train_score_and_export_end_to_end(model, collection, tmp_path):
    trained = stage(tmp_path / "a", "rerank train", train_config(model, collection), run_train) / "model"
    run = tmp_path / "first.trec"
    run.write_text("".join(f"q{i} Q0 p{i + j} {j + 1} {9 - j} t\n" for i in range(3) for j in range(4)))
    tree = {"collection": str(collection), "models": [str(trained), str(trained)], "device": "cpu"}
    one = parse(RerankScoreConfig, tree | {"models": [str(trained)], "run": str(run), "depth": 3})
    two = parse(RerankScoreConfig, tree | {"run": str(run), "depth": 3})
    texts = [
        (stage(tmp_path / n, "rerank score", c, run_score) / "run.trec").read_text()
        for n, c in (("1", one), ("2", two))
    ]
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == 12
    config = parse(RerankScoreConfig, tree | {"groups": str(collection), "split": "train"})
    rows = (stage(tmp_path / "g", "rerank score", config, run_score) / "groups" / "train.jsonl").read_text()
    first = json.loads(rows.splitlines()[0])
    assert (len(first["positive_scores"]), len(first["negative_scores"])) == (1, 4)
    loaded = CrossEncoder.load(trained, device="cpu")
    assert (loaded.length, loaded.activation) == (40, IDENTITY)


@pytest.mark.parametrize(("loss", "activation"), [("group", IDENTITY), ("pointwise", SIGMOID)])
def test_what_is_trained_gives_sentence_transformers_the_same_numbers(
    loss, activation, model, collection, tmp_path
):
    from sentence_transformers import CrossEncoder as Theirs

    config = train_config(model, collection, dev=None, loss=loss)
    trained = stage(tmp_path / "a", "rerank train", config, run_train) / "model"
    ours, theirs = CrossEncoder.load(trained, device="cpu"), Theirs(str(trained), device="cpu")
    assert ours.activation == activation
    assert ours.backbone.config.reranker_loss == loss, "the folder says what scores mean"
    pairs = [("stone river", "bread"), ("stone", "river stone bread " * 30), ("salt " * 60, "salt " * 50)]
    np.testing.assert_allclose(ours.predict(pairs), theirs.predict(pairs), rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def foreign(model, tmp_path_factory):
    """A model of transformers with two labels."""
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path_factory.mktemp("foreign")
    torch.manual_seed(0)
    made = AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    torch.nn.init.normal_(made.classifier.weight)
    made.save_pretrained(folder)
    Tokenizer.from_folder(model).save(folder)
    return folder


def test_a_model_of_others_teaches_by_raw_scores(foreign, model, collection, tmp_path):
    cross, texts = CrossEncoder.load(foreign, device="cpu"), Collection(collection)
    run = tmp_path / "first.trec"
    run.write_text("".join(f"q{i} Q0 p{i + j} {j + 1} {9 - j} t\n" for i in range(3) for j in range(4)))
    tree = {"collection": str(collection), "models": [str(foreign)], "device": "cpu"}
    config = parse(RerankScoreConfig, tree | {"run": str(run)})
    scored = stage(tmp_path / "run", "rerank score", config, run_score) / "run.trec"
    raw = {tuple(line.split()[:3:2]): float(line.split()[4]) for line in scored.read_text().splitlines()}
    pairs = [(texts.query(query), texts.passage(passage)) for query, passage in raw]
    np.testing.assert_allclose(list(raw.values()), cross.score(pairs), rtol=0, atol=1e-4)
    source = {"run": str(run), "sample": "top"}
    fields = {"collection": str(collection), "sources": [source], "duplicates": "none"}
    mined = stage(tmp_path / "mined", "mine", parse(MineConfig, fields), run_mine)
    config = parse(RerankScoreConfig, tree | {"groups": str(mined)})
    taught = stage(tmp_path / "scored", "rerank score", config, run_score)
    start = {"kind": "folder", "path": str(model)}
    loop = {"steps": 1, "batch": 2, "workers": 0, "log_every": 1}
    fields = {"model": start, "collection": str(collection), "groups": [str(taught)], "loop": loop}
    fields |= {"negatives": 1, "query_length": 16, "passage_length": 32, "objective": {"kind": "distill"}}
    config = parse(FinetuneConfig, fields)
    assert (stage(tmp_path / "student", "finetune", config, run_finetune) / "model").is_dir()


def test_training_goes_on_from_a_cross_encoder_with_its_head(model, collection, tmp_path):
    made = CrossEncoder.start(model, length=24)
    made.save(tmp_path / "first")
    loop = {"steps": 1, "batch": 2, "log_every": 1, "workers": 0}
    config = train_config(tmp_path / "first", collection, dev=None, optim={"lr": 1e-12}, loop=loop)
    trained = stage(tmp_path / "a", "rerank train", config, run_train) / "model"
    pairs = [("stone river", "bread"), ("stone", "river stone bread")]
    again = CrossEncoder.load(trained, device="cpu", length=24).score(pairs)
    np.testing.assert_allclose(again, made.score(pairs), rtol=0, atol=1e-5)


def test_patience_needs_a_dev_split(model, collection):
    with pytest.raises(RecipeError, match="needs an evaluation"):
        train_config(model, collection, dev=None, loop={"epochs": 1, "patience": 2})


def test_groups_that_are_not_there_are_not_scored(model, collection, tmp_path):
    CrossEncoder.start(model, length=24).save(tmp_path / "m")
    tree = {"models": [str(tmp_path / "m")], "collection": str(collection), "groups": str(tmp_path)}
    with pytest.raises(DataError, match="no groups of the split 'train'"):
        stage(tmp_path / "out", "rerank score", parse(RerankScoreConfig, tree), run_score)


def test_a_device_that_is_not_there_is_one_sentence(model, collection, tmp_path):
    tree = {"collection": str(collection), "models": [str(model)], "run": "first.trec", "device": "abacus"}
    with pytest.raises(RecipeError, match="no such device"):
        stage(tmp_path / "a", "rerank score", parse(RerankScoreConfig, tree), run_score)


def test_a_reranker_needs_negatives_and_a_head(model, collection, tmp_path):
    bare = tmp_path / "c"
    (bare / "groups").mkdir(parents=True)
    for name in ("passages.jsonl", "queries.jsonl"):
        (bare / name).write_text((collection / name).read_text())
    (bare / "groups" / "train.jsonl").write_text('{"query": "q0", "positives": ["p0"], "negatives": []}\n')
    with pytest.raises(DataError, match="no query has a negative"):
        stage(tmp_path / "out", "rerank train", train_config(model, bare, dev=None), run_train)
    with pytest.raises(ModelError, match="not a reranker"):
        CrossEncoder.load(model)
    with pytest.raises(RecipeError, match="give a run to rerank, or groups"):
        parse(RerankScoreConfig, {"collection": str(collection), "models": [str(model)]})


class Broken(Exception):
    """Stands for a crash."""


def head_and_body(folder):
    return {
        f"{file.name}/{name}": value
        for file in sorted((folder / "model").glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


def test_a_reranker_that_broke_off_ends_like_one_that_did_not(model, collection, tmp_path, monkeypatch):
    loop = {"epochs": 2, "batch": 8, "log_every": 1, "workers": 1, "checkpoint_every": 2}
    config = train_config(model, collection, dev=None, dropout=0.1, loop=loop)
    RerankTraining(config, tmp_path / "whole", ALONE).run()
    make = RerankBatches.__call__
    with monkeypatch.context() as patched:
        patched.setattr(
            RerankBatches, "__call__", lambda self, step: make(self, step) if step != 5 else broken()
        )
        with pytest.raises(Broken):
            RerankTraining(config, tmp_path / "broken", ALONE).run()
    RerankTraining(config, tmp_path / "broken", ALONE).run()
    one, two = head_and_body(tmp_path / "whole"), head_and_body(tmp_path / "broken")
    assert all(torch.equal(one[name], two[name]) for name in one)


def broken():
    raise Broken


def on_processes(world, config, folder):
    RerankTraining(config, folder, world).run()
    return {}


def test_a_reranker_trained_by_two_processes_is_that_of_one(model, collection, tmp_path):
    """Without dropout, which differs by process; a large epsilon, or Adam makes much of a gradient's last digits."""
    config = train_config(model, collection, dev=None, dropout=0.0, optim={"lr": 1e-3, "eps": 0.1})
    RerankTraining(config, tmp_path / "one", ALONE).run()
    together(on_processes, 2, tmp_path / "processes", config, tmp_path / "two")
    one, two = head_and_body(tmp_path / "one"), head_and_body(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=2e-6)
