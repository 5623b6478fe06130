"""The forward in numpy gives the vectors of torch, for every family that it knows, and refuses the others."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from liebig import encoders
from liebig.base.errors import MissingDependency, ModelError
from liebig.model.encoder import Encoder
from liebig.model.layer_names import LAYER_NAMES
from liebig.model.numpy_model import ACTIVATIONS, WEIGHTS, NumpyEncoder, NumpyModel
from liebig.model.pooling import POOLINGS, Dense, Normalize
from liebig.ragged import Ragged
from tests.worlds.models import TEXTS, tiny, tokenizer

# Sums in float32 whose order two libraries choose, of numbers about 1.
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def saved(folder, family="bert", **settings):
    encoder = Encoder(tiny(family), tokenizer(), **settings).eval()
    encoder.save(folder)
    return encoder


def vectors(folder, texts, prompt=None, unit=False):
    encoder = NumpyEncoder(folder)
    layout = encoder.layout_for(prompt)
    model = NumpyModel(encoder, unit=unit, skip=encoder.skip(layout))
    rows = layout.ids(texts)
    assert model.width == encoder.width
    return model.start([(rows, np.arange(len(rows)))], len(rows))()


@pytest.mark.parametrize("family", LAYER_NAMES)
def test_vectors_are_those_of_torch(tmp_path, family):
    encoder = saved(tmp_path, family)
    np.testing.assert_allclose(vectors(tmp_path, TEXTS), encoder.encode(TEXTS), **CLOSE)


def test_a_vector_does_not_depend_on_its_neighbours(tmp_path):
    saved(tmp_path)
    encoder = NumpyEncoder(tmp_path)
    rows = encoder.layout_for("passage").ids(TEXTS)
    alone = [encoder.vectors(Ragged.from_lists([row]))[0] for row in rows]
    np.testing.assert_allclose(encoder.vectors(rows), alone, **CLOSE)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("pool_prompt", [True, False])
def test_every_pooling_is_that_of_torch_with_a_prompt_that_is_pooled_or_not(tmp_path, pooling, pool_prompt):
    encoder = saved(tmp_path, pooling=pooling, prompts={"query": "find this: "}, pool_prompt=pool_prompt)
    found = vectors(tmp_path, TEXTS, "query", unit=True)
    np.testing.assert_allclose(found, encoder.encode_query(TEXTS, unit=True), **CLOSE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_what_follows_the_pooling_is_that_of_torch(tmp_path, activation, bias):
    encoder = saved(tmp_path, tail=[Dense(32, 8, bias, activation), Normalize()])
    found = vectors(tmp_path, TEXTS)
    assert found.shape[1] == 8
    np.testing.assert_allclose(found, encoder.encode(TEXTS), **CLOSE)


def test_the_bundled_encoder_is_read(tmp_path):
    found = vectors(encoders.folder(), TEXTS, "passage", unit=True)
    expected = Encoder.load("liebig:" + encoders.DEFAULT).encode_document(TEXTS, unit=True)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_old_names_of_norms_and_a_body_alone_are_read(tmp_path):
    encoder = saved(tmp_path)
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.weight", "Norm.gamma")
        .replace("Norm.bias", "Norm.beta"): value
        for name, value in load_file(tmp_path / WEIGHTS).items()
    }
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
    np.testing.assert_allclose(vectors(tmp_path, TEXTS), encoder.encode(TEXTS), **CLOSE)


def test_other_families_name_what_to_install(tmp_path):
    saved(tmp_path, "modernbert")
    with pytest.raises(
        MissingDependency, match=r"the family 'modernbert' needs the package torch.*--to onnx"
    ):
        NumpyEncoder(tmp_path)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"hidden_act": "relu"}, "another activation than GELU"),
        ({"position_embedding_type": "relative_key"}, "relative positions"),
    ],
)
def test_what_would_give_other_vectors_is_refused(tmp_path, change, said):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(MissingDependency, match=said):
        NumpyEncoder(tmp_path)


def test_damaged_and_missing_weights_are_one_sentence(tmp_path):
    saved(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    name = "bert.encoder.layer.2.output.dense.bias"
    save_file({key: value for key, value in tensors.items() if key != name}, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match=r"encoder\.layer\.2\.output\.dense\.bias' is missing"):
        NumpyEncoder(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"not a file of tensors")
    with pytest.raises(ModelError, match="cannot be read"):
        NumpyEncoder(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(MissingDependency, match=f"a model without {WEIGHTS}"):
        NumpyEncoder(tmp_path)
