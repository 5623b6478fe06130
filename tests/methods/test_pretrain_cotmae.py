"""CoT-MAE: ours equals the plain form, with the MLM decoder and with the causal one."""

import pytest
import torch

from liebig.methods.cotmae import CausalDecoder, CotMAE, CotmaeDecoder
from liebig.train.step import step
from tests.worlds import plain
from tests.worlds.pretraining import (
    FAMILIES,
    assert_same_gradients,
    backbone,
    batch,
    gradients,
    layers_of,
    plain_of,
    side,
    spans,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mlm_decoder_equals_the_plain_form(family):
    model = backbone(family)
    decoder = CotmaeDecoder(model).double().eval()
    reference = plain_of(model)
    plain_decoder = layers_of(decoder.layers, reference)
    encoded, decoded = spans(6, seed=1), spans(6, seed=2)
    expected = plain.cotmae(reference, plain_decoder, encoded, decoded, 0.7)
    expected.backward()
    pairs = batch(3, encoder=side(encoded, 2), decoder=side(decoded, 2))
    found = step(CotMAE(CotMAE.Config(decoder_weight=0.7), model, decoder), pairs, chunk_tokens=40)
    assert found.chunks > 1
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(decoder.layers), gradients(plain_decoder))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_causal_decoder_equals_the_plain_form(family):
    model = backbone(family)
    decoder = CausalDecoder(model, window=3).double().eval()
    reference = plain_of(model)
    encoded = spans(5, seed=1)
    decoded = [plain.next_token_span(span.ids) for span in spans(5, seed=2, masked=False)]
    expected = plain.causal_cotmae(reference, decoder, encoded, decoded, window=3)
    theirs = torch.autograd.grad(
        expected, [*reference.model.parameters(), *decoder.parameters()], allow_unused=True
    )
    found = step(
        CotMAE(CotMAE.Config(decoder="causal"), model, decoder),
        batch(5, encoder=side(encoded), decoder=side(decoded)),
        chunk_tokens=40,
    )
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    for ours, plain_gradient in zip([*model.model.parameters(), *decoder.parameters()], theirs, strict=True):
        if plain_gradient is not None and ours.grad is not None:
            torch.testing.assert_close(ours.grad, plain_gradient, rtol=1e-6, atol=1e-6)
        else:
            assert plain_gradient is None or not plain_gradient.any()
