"""Bag-of-words prediction: ours equals the plain form, alone and as a term, whole or in chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

from liebig import losses
from liebig.base.config import parse
from liebig.base.errors import RecipeError
from liebig.methods.bow import BagOfWords
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.condenser import Condenser, CondenserHead
from liebig.methods.cotmae import CotMAE, CotmaeDecoder
from liebig.methods.pretraining import PretrainConfig
from liebig.train.step import step
from tests.worlds import plain
from tests.worlds.pretraining import (
    FAMILIES,
    VOCAB,
    assert_same_gradients,
    backbone,
    batch,
    gradients,
    layers_of,
    plain_of,
    side,
    spans,
)

SPECIAL = np.isin(np.arange(VOCAB), [0, 1, 2, 3, 4])


def words(span):
    """The set of words of a span before masking."""
    ids = list(span.ids)
    for target, label in zip(span.targets, span.labels, strict=True):
        ids[target] = label
    return {token for token in ids if not SPECIAL[token]}


def plain_bow(reference, rows):
    """Mean over spans of the mean over their words, one word at a time."""
    logits = reference.vocabulary(reference.states(rows)[-1][:, 0])
    return torch.stack(
        [
            torch.stack([-log_softmax(logits[i], 0)[word] for word in words(span)]).mean()
            for i, span in enumerate(rows)
        ]
    ).mean()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk_tokens", [None, 30])
def test_loss_and_gradients_equal_the_plain_form(family, chunk_tokens):
    model, rows = backbone(family), spans(7, masked=False)
    reference = plain_of(model)
    expected = plain_bow(reference, rows)
    expected.backward()
    objective = BagOfWords(BagOfWords.Config(), model, SPECIAL)
    found = step(objective, batch(7, text=side(rows)), chunk_tokens=chunk_tokens)
    assert (found.chunks > 1) == (chunk_tokens is not None)
    torch.testing.assert_close(found.losses["bow"], expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))


def test_on_condenser_the_words_are_those_before_masking():
    model, rows = backbone(), spans(6)
    head = CondenserHead(model).double().eval()
    reference = plain_of(model)
    expected = plain.condenser(reference, layers_of(head.layers, reference), rows, 2)
    expected = expected + 0.3 * plain_bow(reference, rows)
    expected.backward()
    objective = Condenser(Condenser.Config(bow=0.3), model, head, special=SPECIAL)
    found = step(objective, batch(6, text=side(rows)), chunk_tokens=30)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))


def test_on_cocondenser_it_is_one_more_term():
    model, rows = backbone(), spans(8)
    head = CondenserHead(model).double().eval()
    pairs = batch(4, text=side(rows, 2))
    without = step(CoCondenser(CoCondenser.Config(), model, head), pairs)
    objective = CoCondenser(CoCondenser.Config(bow=0.3), model, head, special=SPECIAL)
    found = step(objective, pairs, chunk_tokens=30)
    expected = without.loss + 0.3 * plain_bow(plain_of(model), rows).detach()
    torch.testing.assert_close(found.loss, expected, rtol=0, atol=1e-9)


def test_on_cotmae_the_words_are_those_of_the_encoded_side():
    model = backbone()
    decoder = CotmaeDecoder(model).double().eval()
    reference = plain_of(model)
    encoded, decoded = spans(6, seed=1), spans(6, seed=2)
    expected = plain.cotmae(reference, layers_of(decoder.layers, reference), encoded, decoded, 1.0)
    expected = expected + 0.3 * plain_bow(reference, encoded)
    expected.backward()
    objective = CotMAE(CotMAE.Config(bow=0.3), model, decoder, special=SPECIAL)
    pairs = batch(3, encoder=side(encoded, 2), decoder=side(decoded, 2))
    found = step(objective, pairs, chunk_tokens=40)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))


def test_a_word_counts_once_and_a_passage_without_words_adds_nothing():
    logits = torch.randn(3, 10, dtype=torch.float64)
    passages = torch.tensor([0, 0, 0, 1, 2, 2])
    tokens = torch.tensor([7, 5, 7, 0, 5, 6])
    found = losses.bag_of_words(logits, passages, tokens, tokens > 0)
    log_p = logits.log_softmax(1)
    expected = -(log_p[0, [5, 7]].mean() + log_p[2, [5, 6]].mean())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_term_without_masked_terms_is_refused():
    tables = {
        "model": {"kind": "new"},
        "stores": [{"path": "store"}],
        "source": {"kind": "spans"},
        "objective": {"kind": "cocondenser", "mlm": False, "bow": 1.0},
    }
    with pytest.raises(RecipeError, match="bow has no effect"):
        parse(PretrainConfig, tables)
