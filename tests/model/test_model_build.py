from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from liebig.base.errors import ModelError
from liebig.model.backbone import make_backbone
from liebig.model.encoder import Encoder
from liebig.model.loading import BackboneConfig
from liebig.text.tokenizer import Tokenizer
from tests.worlds.models import TEXTS, random_row, tiny, tokenizer

SMALL = {"kind": "new", "layers": 2, "width": 32, "heads": 4, "max_positions": 40}


def choice(**values: Any) -> BackboneConfig:
    made: BackboneConfig = TypeAdapter(BackboneConfig).validate_python(values)
    return made


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert"])
def test_a_new_backbone_has_the_sizes_asked_for_and_the_tokenizers_vocabulary(family: str) -> None:
    backbone = make_backbone(choice(**SMALL, family=family), tokenizer(), seed=3)
    assert (backbone.n_layers, backbone.width, backbone.heads, backbone.max_positions) == (2, 32, 4, 40)
    assert backbone.vocab_size == tokenizer().vocab_size
    assert (backbone.family, backbone.fresh_mlm_head) == (family, False)


def test_a_folder_is_loaded(tmp_path: Path) -> None:
    Encoder(tiny("bert"), tokenizer()).save(tmp_path)
    loaded = make_backbone(choice(kind="folder", path=tmp_path), tokenizer(), seed=3)
    assert torch.equal(loaded(random_row()).last, tiny("bert")(random_row()).last)


def test_a_backbone_with_too_small_a_vocabulary_is_refused(tmp_path: Path) -> None:
    few = Tokenizer.train(["soil"], vocab_size=20)
    Encoder(tiny("bert", vocab_size=few.vocab_size), few).save(tmp_path)
    with pytest.raises(ModelError, match="the backbone only"):
        make_backbone(choice(kind="folder", path=tmp_path), Tokenizer.train(TEXTS, vocab_size=90), seed=0)
