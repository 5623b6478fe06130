"""An encoder packed for the package: half the bytes, the same similarities, and a card made of what was measured."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.base import workspace
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.pooling import Dense, Normalize
from liebig.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = ["a question about fish", "fish live in water, and some in the sea"]


@pytest.fixture(scope="module")
def pack():
    spec = importlib.util.spec_from_file_location("pack", ROOT / "experiments" / "encoders" / "pack.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The folder of a run with two stages, as `liebig run` leaves it."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer = Tokenizer.from_folder(encoders.folder())
    backbone = Backbone.create(1, 16, 2, tokenizer.vocab_size, max_positions=32, initializer_range=0.2)
    encoder = Encoder(
        backbone, tokenizer, pooling="mean", tail=[Dense(16, 24), Normalize()], similarity="cosine"
    )
    for stage, kind in (("start", "mlm"), ("model", "vectors")):
        recipe = {"objective": {"kind": kind}, "optim": {"lr": 1e-3}, "loop": {"seed": 1}}
        log = [{"step": 7, "tokens": 9_000_000}, {"step": 7, "evaluation": {"cosine": 0.8125}}]
        with workspace.stage(folder / stage, kind="pretrain", recipe=recipe, inputs={}) as made:
            encoder.save(made.path / "model")
            (made.path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
            (made.path / "timing.jsonl").write_text('{"step": 7, "tokens_per_second": 3000000.0}\n')
    return folder


def test_the_packed_folder_is_half_as_large_and_relates_texts_alike(pack, run, tmp_path):
    size = pack.pack(run, ["start", "model"], tmp_path / "mini", "liebig-mini", "mini.toml", [])
    whole = run / "model" / "model"
    assert size < 0.75 * pack.size_of(whole)
    ours, theirs = Encoder.load(tmp_path / "mini"), Encoder.load(whole)
    ours, theirs = (encoder.encode_texts(TEXTS) for encoder in (ours, theirs))
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=2e-3)


def test_vectors_are_as_short_as_the_encoder_allows(pack, run, tmp_path):
    pack.pack(run, ["start", "model"], tmp_path / "mini", "liebig-mini", "mini.toml", [])
    assert Encoder.load(run / "model" / "model").width == 24
    assert Encoder.load(tmp_path / "mini").width == 17  # sixteen, and the direction of the constant


def test_sentence_transformers_loads_it(pack, run, tmp_path):
    from sentence_transformers import SentenceTransformer

    pack.pack(run, ["start", "model"], tmp_path / "mini", "liebig-mini", "mini.toml", [])
    found = SentenceTransformer(str(tmp_path / "mini"), device="cpu")
    assert {parameter.dtype for parameter in found.parameters()} == {
        torch.float32
    }  # a CPU is slow in float16
    # Both compute in float32 and differ in the order of sums only.
    np.testing.assert_allclose(
        found.encode(TEXTS), Encoder.load(tmp_path / "mini").encode_texts(TEXTS), atol=1e-5
    )


def test_the_card_says_what_was_measured(pack, run, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.md").write_text("| a table |\n")
    pack.pack(run, ["start", "model"], tmp_path / "mini", "liebig-mini", "mini.toml", [tmp_path / "results"])
    card = (tmp_path / "mini" / "README.md").read_text()
    for words in ("| a table |", "cosine 0.812", "9 M tokens", "liebig:mini", "CC BY-SA", "width 16"):
        assert words in card
