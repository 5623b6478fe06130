"""Whole runs: golden curves, folders that load elsewhere, heads that go on, interruptions, two processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, BertModel

from liebig.base import pipeline
from liebig.base.errors import LiebigError, RecipeError
from liebig.methods.cocondenser import NO_HEAD
from liebig.methods.pretraining import PretrainConfig
from liebig.stages import STAGES
from liebig.stages.pretrain import Pretraining, find_tokenizer, start
from liebig.text.tokenizer import Tokenizer
from liebig.train import loop as loops
from liebig.train.distributed import ALONE, World
from tests.worlds.processes import together
from tests.worlds.smoke import GOLDEN, NAMES, ROOT, curve, run

# A thousand float32 roundings. Measured on x86-64 over the 30 steps of all recipes, the kernels of ATen, MKL and oneDNN
# for SSE, AVX2 and AVX-512 differ by 7.6e-6 at most, and by 3.1e-6 of a loss: 26 roundings. The bound is absolute too:
# a cosine near 0, or a contrast of larger logits, errs by the rounding of what it is made of.
ROUNDING = 1000 * torch.finfo(torch.float32).eps


def recipe(name: str, out: Path, *overrides: str) -> PretrainConfig:
    """The last stage of a smoke recipe."""
    planned = pipeline.plan(STAGES, ROOT / "recipes" / "smoke" / f"{name}.toml", overrides, out)
    assert isinstance(planned[-1].config, PretrainConfig)
    return planned[-1].config


@pytest.fixture(scope="module")
def condenser(smoke: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run that several tests look at."""
    folder = tmp_path_factory.mktemp("condenser")
    Pretraining(recipe("condenser", smoke, "stages.model.loop.steps=4"), folder, ALONE).run()
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_curve_of_a_smoke_recipe_is_golden(name, smoke):
    found = curve(run(name, smoke))
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for ours, golden in zip(found, expected, strict=True):
        approximate = pytest.approx(golden["losses"], rel=ROUNDING, abs=ROUNDING)
        assert ours["losses"] == approximate, f"step {ours['step']}"


@pytest.mark.parametrize("name", NAMES)
def test_no_golden_loss_is_rounding(name):
    for line in json.loads((GOLDEN / f"{name}.json").read_text()):
        assert min(abs(value) for value in line["losses"].values()) > 100 * ROUNDING, f"step {line['step']}"


def test_without_its_head_a_condenser_is_a_plain_bert(condenser):
    folder = condenser
    trained = load_file(sorted((folder / "checkpoints").glob("step-*"))[-1] / "objective.safetensors")
    loaded = AutoModel.from_pretrained(folder / "model")
    assert type(loaded) is BertModel
    weights = loaded.state_dict()
    for name, value in trained.items():
        if name.startswith("backbone.model.bert."):
            assert torch.equal(weights[name.removeprefix("backbone.model.bert.")], value)
    assert (
        AutoModelForMaskedLM.from_pretrained(folder / "model").config.vocab_size == loaded.config.vocab_size
    )
    assert not [name for name in weights if "head" in name]


def test_the_folder_says_how_its_vectors_are_made(condenser):
    pooling = json.loads((condenser / "model" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"]
    assert not pooling["pooling_mode_mean_tokens"]
    settings = json.loads((condenser / "model" / "sentence_bert_config.json").read_text())
    assert settings["max_seq_length"] == 48


def test_cocondenser_goes_on_with_the_head_of_its_condenser(condenser, smoke):
    folder = condenser / "model"
    config = recipe("cocondenser", smoke, f"stages.model.model.path={folder}")
    head = start(config, Tokenizer.from_folder(folder)).saved().heads["condenser"]
    kept = load_file(folder / "heads.safetensors")
    for name, value in head.state_dict().items():
        assert torch.equal(kept[f"condenser.{name}"], value)


def test_a_model_whose_tokenizer_is_a_list_of_words_is_held_against_the_store(
    condenser, smoke, store, tmp_path
):
    old = shutil.copytree(condenser / "model", tmp_path / "old")
    for path in old.glob("*token*.json"):
        path.unlink()
    (old / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    config = recipe("cocondenser", smoke, f"stages.model.model.path={old}")
    with pytest.raises(RecipeError, match="different tokenizers"):
        find_tokenizer(config, [store])
    same = [Tokenizer.from_folder(old)]
    assert find_tokenizer(config, []).digest == same[0].digest


@pytest.mark.parametrize("asked, step", [({"best": "mlm", "best_is": "highest"}, 1), ({}, 3)])
def test_the_best_weights_are_saved_where_the_recipe_asks_for_them_and_else_the_last(
    smoke, tmp_path, asked, step
):
    loop = {"steps": 3, "batch": 16, "eval_every": 1, "keep": 3, **asked}
    config = recipe("mlm", smoke, "stages.model.optim.lr=0.01")
    Pretraining(
        config.model_copy(update={"loop": config.loop.model_copy(update=loop)}), tmp_path, ALONE
    ).run()
    stored = load_file(tmp_path / "checkpoints" / f"step-{step:08d}" / "objective.safetensors")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(saved[name], stored[f"backbone.model.{name}"])


def test_a_run_without_evaluation_says_so(smoke, tmp_path, capsys):
    steps = "stages.model.loop={steps=1, batch=4}"
    Pretraining(
        recipe("mlm", smoke, steps, "stages.model.evaluation.share=0"), tmp_path / "none", ALONE
    ).run()
    assert "no evaluation: evaluation.share = 0" in capsys.readouterr().err
    Pretraining(recipe("mlm", smoke, steps), tmp_path / "some", ALONE).run()
    assert "no evaluation" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("moco", "stages.model.objective.queue=100", "use a queue of 96 or 128"),
        ("simclr", "stages.model.loop.batch=100_000", "a batch of 100,000 examples is larger than the data"),
    ],
)
def test_what_a_run_would_refuse_is_not_timed(smoke, tmp_path, name, change, sentence):
    with pytest.raises(LiebigError, match=sentence):
        Pretraining(recipe(name, smoke, change), tmp_path, ALONE).time_steps()


def test_a_few_steps_are_timed(smoke, tmp_path):
    timed = Pretraining(recipe("moco", smoke), tmp_path, ALONE).time_steps()
    assert timed.seconds > 0
    assert timed.epoch_steps > 1
    assert timed.parameters > 2 * 16, "those of both encoders"


def test_a_missing_head_is_announced_and_the_preset_is_said(smoke, tmp_path, capsys):
    Pretraining(recipe("cloze", smoke, "stages.model.loop.steps=1"), tmp_path, ALONE).run()
    said = capsys.readouterr().err
    assert NO_HEAD in said
    assert "preset 'paper'" in said


def test_documents_that_are_too_short_are_counted(smoke, tmp_path, capsys):
    Pretraining(recipe("cocondenser", smoke, *SHORT), tmp_path, ALONE).run()
    assert "too short and skipped" in capsys.readouterr().err


SHORT = (
    "stages.model.model={kind='new', layers=2, width=16, heads=2}",
    "stages.model.max_length=100",
    "stages.model.loop.steps=1",
    "stages.model.loop.batch=4",
)


class Interrupted(Exception):
    pass


def test_an_interrupted_run_ends_like_an_uninterrupted_one(smoke, tmp_path, monkeypatch):
    """MoCo has the most state: two encoders, a queue, and where it stands."""
    config = recipe("moco", smoke, "stages.model.loop={steps=6, batch=32, checkpoint_every=2, workers=0}")
    Pretraining(config, tmp_path / "whole", ALONE).run()
    real = loops.Feed.get

    def broken(self, step, until):
        if step == 5:
            raise Interrupted
        return real(self, step, until)

    monkeypatch.setattr(loops.Feed, "get", broken)
    with pytest.raises(Interrupted):
        Pretraining(config, tmp_path / "parts", ALONE).run()
    monkeypatch.undo()
    Pretraining(config, tmp_path / "parts", ALONE).run()
    whole, parts = (
        load_file(tmp_path / name / "checkpoints" / "step-00000006" / "objective.safetensors")
        for name in ("whole", "parts")
    )
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    assert (tmp_path / "whole" / "log.jsonl").read_text() == (tmp_path / "parts" / "log.jsonl").read_text()


def short_run(world: World, smoke: Path, folder: Path) -> None:
    Pretraining(recipe("cocondenser", smoke, *FRESH), folder, world).run()


FRESH = (
    "stages.model.model={kind='new', layers=2, width=32, heads=2, dropout=0.0}",
    "stages.model.loop={steps=3, batch=10, log_every=1}",
)


def test_two_processes_leave_the_log_and_the_model_of_one(smoke, tmp_path):
    short_run(ALONE, smoke, tmp_path / "one")
    together(short_run, 2, tmp_path / "processes", smoke, tmp_path / "two")
    logs = [
        [json.loads(x) for x in (tmp_path / n / "log.jsonl").read_text().splitlines()] for n in ("one", "two")
    ]
    for ours, expected in zip(*(curve(tmp_path / n) for n in ("two", "one")), strict=True):
        assert ours["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert [line["tokens"] for line in logs[0] if "tokens" in line] == [
        line["tokens"] for line in logs[1] if "tokens" in line
    ]
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        np.testing.assert_allclose(two[name].numpy(), value.numpy(), rtol=0, atol=1e-4)
