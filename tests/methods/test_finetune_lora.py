"""LoRA: a fresh adapter is the base, a merged one is the adapter, and peft reads what is saved."""

import json

import numpy as np
import pytest
import torch

from liebig.base import workspace
from liebig.base.config import parse
from liebig.base.errors import RecipeError
from liebig.methods import lora
from liebig.methods.finetuning import FinetuneConfig
from liebig.model.encoder import Encoder
from liebig.stages.finetune import run, starting_encoder
from liebig.train.distributed import trainable
from tests.worlds.finetuning import WORDS

TEXTS = [" ".join(WORDS[i : i + 5]) for i in range(8)]


def config_of(model, collection, **fields):
    tree = {
        "model": {"kind": "folder", "path": str(model)},
        "collection": str(collection),
        "negatives": 2,
        "query_length": 16,
        "passage_length": 24,
        "lora": {"rank": 4, "adapter": True},
        "optim": {"lr": 1e-2},
        "loop": {"epochs": 1, "batch": 6, "log_every": 1, "workers": 0, "chunk_tokens": "whole"},
    }
    return parse(FinetuneConfig, tree | fields)


def shaken(backbone):
    """The adapters filled with numbers, so that they do something."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in backbone.named_parameters():
            if "lora_" in name:
                value.copy_(torch.randn(value.shape, generator=generator) * 0.3)


def test_a_fresh_adapter_is_the_base_exactly_and_only_it_is_trained(model, collection):
    base, encoder = Encoder.load(model), starting_encoder(config_of(model, collection))
    base.max_length = encoder.max_length
    np.testing.assert_array_equal(encoder.encode_texts(TEXTS), base.encode_texts(TEXTS))
    names = {id(p): n for n, p in encoder.named_parameters()}
    assert all("lora_" in names[id(p)] for p in trainable(encoder))
    assert len(trainable(encoder)) == 2 * 6


def test_a_merged_adapter_is_the_adapter(model, collection):
    encoder = starting_encoder(config_of(model, collection))
    backbone = encoder.backbone.double()
    shaken(backbone)
    before = encoder.encode_texts(TEXTS)
    lora.merge(backbone)
    assert not any(hasattr(part, "lora_A") for part in backbone.modules())
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), before, rtol=0, atol=1e-6)
    assert not np.allclose(before, Encoder.load(model).encode_texts(TEXTS), atol=1e-2)


@pytest.mark.parametrize("untied", [False, True])
def test_the_saved_model_is_merged_and_peft_loads_the_adapter_onto_the_base(
    model, collection, tmp_path, untied
):
    from peft import PeftModel
    from transformers import AutoModelForMaskedLM

    config = config_of(model, collection, untied=untied)
    with workspace.stage(tmp_path / "out", kind="finetune", recipe={}, inputs={}) as folder:
        run(config, folder)
    for name in ("model", "query") if untied else ("model",):
        encoder = Encoder.load(tmp_path / "out" / name)
        theirs = PeftModel.from_pretrained(
            AutoModelForMaskedLM.from_pretrained(model), tmp_path / "out" / "adapter" / name
        ).eval()
        ids = torch.tensor([encoder.tokenize(TEXTS[:1])[0]])
        with torch.no_grad():
            states = theirs.base_model.model.base_model(input_ids=ids).last_hidden_state[0, 0]
        np.testing.assert_allclose(encoder.encode_texts(TEXTS[:1])[0], states.numpy(), atol=1e-5)
        told = json.loads((tmp_path / "out" / "adapter" / name / "adapter_config.json").read_text())
        assert (told["r"], told["base_model_name_or_path"]) == (4, str(model))
    assert not np.allclose(encoder.encode_texts(TEXTS), Encoder.load(model).encode_texts(TEXTS), atol=1e-4)


def test_targets_are_names_of_linear_parts(model, collection):
    encoder = starting_encoder(config_of(model, collection, lora={"targets": ["query", "value"]}))
    assert len(trainable(encoder)) == 2 * 2
    with pytest.raises(RecipeError, match="names no linear module") as caught:
        starting_encoder(config_of(model, collection, lora={"targets": ["nothing"]}))
    assert "query" in str(caught.value.fix)
