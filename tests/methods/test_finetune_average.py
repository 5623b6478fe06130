"""Several seeds as one model: the mean of weights, of folders that fit together."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from liebig.base.errors import ModelError
from liebig.model.encoder import Encoder
from liebig.stages.average import average
from tests.worlds.finetuning import WORDS

TEXTS = [" ".join(WORDS[i : i + 5]) for i in range(6)]


def moved(model, out, seed):
    """A copy of a model with other weights."""
    shutil.copytree(model, out)
    generator = torch.Generator().manual_seed(seed)
    state = load_file(out / "model.safetensors")
    state = {name: x + 0.1 * torch.randn(x.shape, generator=generator) for name, x in state.items()}
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    return out


def test_the_weights_are_the_mean_and_the_folder_is_a_model(model, tmp_path):
    models = [moved(model, tmp_path / str(seed), seed) for seed in range(3)]
    average(models, tmp_path / "out")
    states = [load_file(m / "model.safetensors") for m in models]
    for name, found in load_file(tmp_path / "out" / "model.safetensors").items():
        expected = torch.stack([s[name].double() for s in states]).mean(0)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    assert Encoder.load(tmp_path / "out").encode_texts(TEXTS).shape == (6, 32)


def test_the_mean_of_equal_models_is_that_model(model, tmp_path):
    average([model, model], tmp_path / "out")
    found, given = (Encoder.load(path).encode_texts(TEXTS) for path in (tmp_path / "out", model))
    np.testing.assert_array_equal(found, given)


def test_models_that_do_not_fit_together_are_named(model, tmp_path):
    other = moved(model, tmp_path / "other", 0)
    (other / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not that of") as caught:
        average([model, other], tmp_path / "out")
    assert str(caught.value.file) == str(other)
    smaller = moved(model, tmp_path / "smaller", 0)
    save_file({"a": torch.zeros(2)}, smaller / "model.safetensors")
    with pytest.raises(ModelError, match="other names or sizes"):
        average([model, smaller], tmp_path / "out")
    with pytest.raises(ModelError, match="contains no weights"):
        average([tmp_path / "out" / "nothing", model], tmp_path / "out")
