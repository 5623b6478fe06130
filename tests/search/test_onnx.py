"""The export to ONNX gives the encoder's vectors; int8 nearly. Mean pooling in fp32 is in export/test_export.py."""

import json

import numpy as np
import pytest

from liebig.base import workspace
from liebig.base.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.stages.encode import EncodeConfig, run
from liebig.stages.onnx import OnnxConfig
from liebig.text.tokenizer import Tokenizer
from liebig.vectors import Vectors

TEXTS = [
    "the law of the minimum",
    "barley",
    "soil and chemistry of agriculture " * 3,
    "a fox",
    "dogs, lazy dogs",
] * 4


def encoder(pooling="mean"):
    tokenizer = Tokenizer.train(TEXTS, vocab_size=90, max_length=32)
    backbone = Backbone.create(
        layers=1, width=32, heads=4, vocab_size=tokenizer.vocab_size, max_positions=32, initializer_range=0.2
    )
    return Encoder(backbone, tokenizer, pooling=pooling)


def vectors_of(out, model, source):
    with workspace.stage(out, kind="encode", recipe={}, inputs={}, resume=False) as folder:
        run(EncodeConfig(source=source, model=model, device="cpu", type="fp32"), folder)
    return np.concatenate([part for _, part in Vectors.open(out).chunks(100)])


@pytest.mark.parametrize(("pooling", "int8", "error"), [("cls", False, 1e-5), ("mean", True, 0.15)])
def test_exported_vectors_equal_the_encoders_and_nothing_is_said(
    small_model, tmp_path, pooling, int8, error, capfd
):
    from liebig.stages.onnx import run as export

    model = Encoder.load(small_model)
    model.pooling = pooling
    model.save(tmp_path / "model")
    source = tmp_path / "c"
    source.mkdir()
    rows = [{"id": str(i), "text": text} for i, text in enumerate(TEXTS)]
    (source / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted = vectors_of(tmp_path / "torch", tmp_path / "model", source)
    with workspace.stage(tmp_path / "onnx", kind="onnx", recipe={}, inputs={}) as folder:
        capfd.readouterr()
        export(OnnxConfig(model=tmp_path / "model", int8=int8), folder)
        assert capfd.readouterr().err == ""
    got = vectors_of(tmp_path / "vectors", tmp_path / "onnx", source)
    cosine = (got * wanted).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(wanted, axis=1)
    assert np.abs(got - wanted).max() < error * np.abs(wanted).max()
    assert cosine.min() > 0.99


def test_other_poolings_are_refused(tmp_path):
    from liebig.stages.onnx import export

    with pytest.raises(ModelError, match="max pooling"):
        export(encoder("max"), tmp_path / "m")
