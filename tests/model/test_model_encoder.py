"""Encoders: packing and sorting change nothing, prompts and lengths are honoured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liebig.base.errors import ModelError
from liebig.model.encoder import Encoder
from liebig.model.kernels.lean_forward import LeanForward
from liebig.model.packed import Packed
from liebig.model.pooling import POOLINGS, Dense, Normalize
from tests.worlds.models import TEXTS, tiny, tokenizer

# Beside other texts a row is multiplied in another order: some roundings of float32 states of size 4. A change of
# weights makes a hundred times as much.
ROUNDING = 1e-5


def small(**settings: Any) -> Encoder:
    return Encoder(tiny("bert"), tokenizer(), **settings)


@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_batching_does_not_change_the_vectors(budget: int) -> None:
    encoder = small(pooling="mean")
    alone = np.concatenate([encoder.encode_texts([text]) for text in TEXTS])
    together = encoder.encode_texts(TEXTS, token_budget=budget)
    assert together.shape == (len(TEXTS), 32)
    assert together.dtype == np.float32
    assert np.allclose(together, alone, rtol=0, atol=ROUNDING)


def test_many_texts_go_through_the_lean_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, rows = small(pooling="mean").train(), []
    plain = LeanForward.__call__
    monkeypatch.setattr(LeanForward, "__call__", lambda self, row: rows.append(row) or plain(self, row))
    texts = TEXTS * 20
    lean = encoder.encode_texts(texts, token_budget=64)
    assert len(rows) > 2
    assert encoder.training
    with torch.no_grad():  # weights are read at every call
        next(encoder.backbone.parameters()).mul_(1.5)
    assert not np.allclose(encoder.encode_texts(texts, token_budget=64), lean, rtol=0, atol=1e-3)
    del rows[:]
    alone = encoder.encode_texts(texts[:1])
    assert not rows
    assert np.allclose(encoder.encode_texts(texts, token_budget=64)[0], alone[0], rtol=0, atol=ROUNDING)


def test_encoding_is_the_forward_of_the_packed_row() -> None:
    encoder = small(tail=[Dense(32, 8), Normalize()])
    packed = Packed.from_lists(encoder.tokenize(TEXTS))
    assert np.allclose(encoder.encode_texts(TEXTS), encoder(packed).detach().numpy(), atol=1e-6)
    assert encoder.width == 8


def test_encode_takes_one_text_or_several() -> None:
    encoder = small(prompts={"query": "ask: "})
    vectors = encoder.encode(TEXTS, prompt="query")
    assert np.array_equal(vectors, encoder.encode_texts(TEXTS, prompt="query"))
    assert encoder.encode(TEXTS[0], prompt="query").shape == (32,)


def test_no_texts_give_no_vectors() -> None:
    assert small().encode_texts([]).shape == (0, 32)


def test_texts_are_cut_to_the_maximum_length_special_tokens_included() -> None:
    encoder = small(max_length=5)
    cut = encoder.tokenize(["the fox jumps over the lazy dog the fox"])[0]
    words = tokenizer().encode("the fox jumps over the lazy dog the fox")
    assert cut == [tokenizer().cls, *words[:3], tokenizer().sep]


def test_a_maximum_beyond_the_positions_is_the_number_of_positions() -> None:
    assert small(max_length=1000).max_length == 64


def test_prompts_are_prepended_by_name_and_roles_fall_back_to_the_default() -> None:
    encoder = small(prompts={"query": "fox: ", "document": "dog: ", "any": "soil "}, default_prompt="any")
    assert [encoder.prompt_text(name) for name in ("query", "passage", "any", None, "")] == [
        "fox: ", "dog: ", "soil ", "soil ", "",
    ]  # fmt: skip
    assert encoder.tokenize(["x"], "query") == encoder.tokenize(["fox: x"], "")
    assert small().prompt_text("query") == ""
    with pytest.raises(ModelError, match="no prompt 'clustering'"):
        encoder.prompt_text("clustering")


def test_unit_vectors_have_length_one() -> None:
    vectors = small().encode_texts(TEXTS, unit=True)
    assert np.allclose((vectors**2).sum(1), 1, atol=1e-6)


def test_encoding_leaves_training_mode_and_gradients_alone() -> None:
    encoder = small()
    encoder.train()
    encoder.backbone.set_dropout(0.5)
    assert np.array_equal(encoder.encode_texts(TEXTS), encoder.encode_texts(TEXTS))
    assert encoder.training
    assert all(p.grad is None for p in encoder.parameters())


def test_half_precision_is_close_and_comes_back_as_float32() -> None:
    encoder = small(pooling="mean")
    full, half = encoder.encode_texts(TEXTS), encoder.encode_texts(TEXTS, half=True)
    assert half.dtype == np.float32
    assert not np.array_equal(full, half)
    assert np.abs(full - half).max() < 0.1


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_never_in_half_precision_with_or_without_a_projection(pooling: str) -> None:
    for tail in ([], [Dense(32, 8), Normalize()]):
        encoder = small(pooling=pooling, tail=tail)
        with torch.autocast("cpu", torch.bfloat16):
            assert encoder(Packed.from_lists(encoder.tokenize(TEXTS))).dtype == torch.float32


def test_a_tokenizer_larger_than_the_vocabulary_is_refused() -> None:
    with pytest.raises(ModelError, match="the model only 20"):
        Encoder(tiny("bert", vocab_size=20), tokenizer())


def test_unknown_pooling_and_activation_are_refused() -> None:
    with pytest.raises(ModelError, match="unknown pooling"):
        small(pooling="median")
    with pytest.raises(ModelError, match="unknown activation"):
        Dense(2, 2, activation="os.system")


def test_a_description_says_how_vectors_are_made() -> None:
    said = small(pooling="mean", similarity="cosine").describe()
    assert "mean pooling, 32 numbers per vector, compared by cosine, at most 64 tokens" in said


def test_training_gets_gradients_through_pooling_and_projection() -> None:
    encoder = small(tail=[Dense(32, 8)])
    encoder(Packed.from_lists(encoder.tokenize(TEXTS))).sum().backward()
    gradients = [p.grad for p in encoder.tail.parameters()] + [
        encoder.backbone.body.get_input_embeddings().weight.grad
    ]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)
