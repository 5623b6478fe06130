"""Tiny random encoders of every family, packed rows and a tokenizer, made in milliseconds."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from liebig.model.backbone import Backbone, own_attention, padded_inputs
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.text.tokenizer import Tokenizer

PACKED = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "modernbert")
EXACT = tuple(family for family in PACKED if family != "modernbert")  # rotary positions are float32 there
LENGTHS = (9, 1, 17, 9, 4, 30)
VOCAB = 90

TEXTS = [
    "The fox jumps over the lazy dog.",
    "A retriever condenses a corpus.",
    "Barley, limiting nutrients and the law of the minimum; chemistry of agriculture was never the same again.",
    "x",
    "Soil.",
    "",
    "queries are short",
]


def own_states(model: Any, packed: Packed) -> Tensor:
    """Last states of the model's own padded forward, put back on the row, T x D."""
    inputs = padded_inputs(packed, getattr(model.config, "pad_token_id", None) or 0)
    with own_attention(model, "sdpa" if model._supports_sdpa else "eager"):
        states_BLD = model.base_model(**inputs).last_hidden_state
    return states_BLD[inputs["attention_mask"].bool()]


def tiny(family: str, layers: int = 4, dropout: float = 0.0, seed: int = 0, **sizes: int) -> Backbone:
    """A random encoder; ModernBERT with local layers that see two tokens either way."""
    sizes = {
        "layers": layers,
        "width": 32,
        "heads": 4,
        "vocab_size": VOCAB,
        "max_positions": 64,
        "pad": 0,
    } | sizes
    backbone = Backbone.create(family=family, dropout=dropout, initializer_range=0.2, seed=seed, **sizes)
    if family == "modernbert":
        backbone.config.local_attention = 4
        torch.manual_seed(seed)
        backbone = Backbone(type(backbone.model)(backbone.config).eval())
    return backbone


def random_row(lengths: tuple[int, ...] = LENGTHS, seed: int = 1, segments: bool = False) -> Packed:
    random = torch.Generator().manual_seed(seed)
    lists = [torch.randint(5, VOCAB, (n,), generator=random).tolist() for n in lengths]
    return Packed.from_lists(
        lists, [[int(i > n // 2) for i in range(n)] for n in lengths] if segments else None
    )


@lru_cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, vocab_size=VOCAB, max_length=64)


def small_encoder(folder: Path, layers: int = 1) -> Path:
    """A model folder in place of the bundled encoder, where nothing depends on what is found.

    Every word has tokens and every text a vector of its own, so that a wrong vector is seen.
    """
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    texts = [*TEXTS, letters, letters[::-1], " ".join(letters)]
    words = Tokenizer.train(texts * 3, vocab_size=240, max_length=512)
    backbone = Backbone.create(
        layers, 32, 2, words.vocab_size, max_positions=512, dropout=0.0, initializer_range=0.2, seed=3
    )
    Encoder(backbone, words, pooling="mean").save(folder)
    return folder
