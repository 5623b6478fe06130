"""Interrupted and taken up again, or on two processes: every way of fine-tuning ends with the same weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig.base.config import parse
from liebig.base.errors import DataError
from liebig.methods.abs import sampler as adaptive
from liebig.methods.finetuning import FinetuneConfig
from liebig.stages.finetune import Finetuning
from liebig.train import stage
from liebig.train.distributed import ALONE, World
from tests.worlds.finetuning import write_collection

RUN = {"kind": "adaptive", "run": "RUN"}
WAYS = {
    "contrastive": {},
    "untied": {"untied": True, "objective": {"temperature": 0.05, "similarity": "cosine"}},
    "distill": {"objective": {"kind": "distill", "hard": 0.2}},
    "margin-mse": {"objective": {"kind": "distill", "loss": "margin-mse"}},
    "ltr": {"objective": {"kind": "ltr"}, "batching": {"kind": "adaptive"}, "negatives": 0},
    "cosine": {"objective": {"kind": "cosine"}},
    "triplet": {"objective": {"kind": "triplet"}},
    "asam": {"optim": {"kind": "asam", "lr": 1e-3}},
    "adaptive": {"batching": {"kind": "adaptive"}},
    "run": {"batching": {"kind": "adaptive", "run": "RUN"}},
    "run-always": {"batching": {"kind": "adaptive", "run": "RUN", "run_always": True}},
}


@pytest.fixture(scope="module")
def world_of_data(tmp_path_factory):
    home = tmp_path_factory.mktemp("resume")
    folder = write_collection(home / "c", scores=True)
    for kind, row in (
        ("pairs", '{{"a": "stone river", "b": "bread {0}", "score": {0}}}\n'),
        ("tuples", '{{"anchor": "stone {0}", "positive": "stone river", "negatives": ["bread {0}"]}}\n'),
    ):
        (folder / kind).mkdir()
        (folder / kind / "train.jsonl").write_text("".join(row.format(i % 5) for i in range(24)))
    lines = (f"q{i} Q0 p{j} 1 {20 - abs(i - j)} t\n" for i in range(24) for j in range(24))
    (home / "bm25.trec").write_text("".join(lines))
    return home


def config_of(model, home, way, **loop):
    tree = {
        "model": {"kind": "folder", "path": str(model)},
        "collection": str(home / "c"),
        "negatives": 2,
        "query_length": 16,
        "passage_length": 24,
        "dropout": 0.1,
        "optim": {"lr": 1e-3},
        "loop": {
            "epochs": 3,
            "batch": 6,
            "log_every": 1,
            "workers": 1,
            "checkpoint_every": 3,
            "chunk_tokens": 200,
        }
        | loop,
    }
    fields = dict(WAYS[way])
    if "run" in fields.get("batching", {}):
        fields["batching"] = {**fields["batching"], "run": str(home / "bm25.trec")}
    return parse(FinetuneConfig, tree | fields)


def weights(folder):
    found = {}
    for name in ("model", "query"):
        if (folder / name).is_dir():
            for file in (folder / name).glob("*.safetensors"):
                found |= {f"{name}/{file.name}/{k}": v for k, v in load_file(file).items()}
    return found


class Broken(Exception):
    """Stands for a crash."""


def crash_at(monkeypatch, number):
    whole = stage.train

    def train(objective, batches, *args, **options):
        def breaking(step):
            if step == number:
                raise Broken
            return batches(step)

        return whole(objective, breaking, *args, **options)

    monkeypatch.setattr(stage, "train", train)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_broke_ends_like_one_that_did_not(model, world_of_data, tmp_path, monkeypatch, way):
    scheduled = "batching" in WAYS[way]  # epoch by epoch, which takes three to see
    config = config_of(model, world_of_data, way, epochs=3 if scheduled else 2)
    Finetuning(config, tmp_path / "whole", ALONE).run()
    with monkeypatch.context() as patched:
        crash_at(patched, 7 if scheduled else 5)
        with pytest.raises(Broken):
            Finetuning(config, tmp_path / "broken", ALONE).run()
    Finetuning(config, tmp_path / "broken", ALONE).run()
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    for file in (tmp_path / "whole").glob("schedule/epoch-*.npy"):
        assert np.load(file).tolist() == np.load(tmp_path / "broken" / "schedule" / file.name).tolist()
    assert not list((tmp_path / "broken").glob("schedule/vectors-*"))


@pytest.mark.parametrize(
    ("way", "wanted"), [("run", ["run", "model", "model"]), ("run-always", ["run", "run", "run"])]
)
def test_a_run_is_the_similarity_of_the_first_epoch_or_of_all(
    model, world_of_data, tmp_path, monkeypatch, way, wanted
):
    used = []

    def watched(name):
        real = getattr(adaptive, f"{name}_similarity")

        def similarity(*args):
            used.append(name)
            return real(*args)

        monkeypatch.setattr(adaptive, f"{name}_similarity", similarity)

    watched("run")
    watched("model")
    Finetuning(config_of(model, world_of_data, way), tmp_path / "out", ALONE).run()
    assert used == wanted


def test_a_run_of_other_queries_is_refused(model, world_of_data, tmp_path):
    (tmp_path / "other.trec").write_text("x1 Q0 p1 1 2.0 t\n")
    config = config_of(model, world_of_data, "run")
    batching = config.batching.model_copy(update={"run": tmp_path / "other.trec"})
    with pytest.raises(DataError, match="no positive of another training query"):
        Finetuning(config.model_copy(update={"batching": batching}), tmp_path / "out", ALONE).run()


SHARED = ["contrastive", "distill", "margin-mse", "ltr", "cosine", "triplet", "adaptive"]


def train_all(world: World, configs, home):
    for way, config in configs.items():
        Finetuning(config, home / way, world).run()
        world.barrier()
    return {}


def test_two_processes_end_like_one(model, world_of_data, tmp_path):
    """Without dropout, which differs by process; a large epsilon, or Adam makes much of a gradient's last digits."""
    from tests.worlds.processes import together

    configs = {}
    for way in SHARED:
        config = config_of(model, world_of_data, way, epochs=2, workers=0, chunk_tokens="whole")
        optim = config.optim.model_copy(update={"eps": 0.1})
        configs[way] = config.model_copy(update={"dropout": 0.0, "optim": optim})
    train_all(ALONE, configs, tmp_path / "one")
    together(train_all, 2, tmp_path / "processes", configs, tmp_path / "two")
    for way in SHARED:
        one, two = weights(tmp_path / "one" / way), weights(tmp_path / "two" / way)
        assert one.keys() == two.keys()
        for name in one:
            torch.testing.assert_close(one[name], two[name], rtol=0, atol=2e-6)
