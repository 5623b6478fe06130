"""MLM: ours equals the plain form and transformers' own loss."""

import pytest
import torch

from liebig.methods.mlm import MaskedLM
from liebig.train.step import step
from tests.worlds import plain
from tests.worlds.pretraining import (
    FAMILIES,
    assert_same_gradients,
    backbone,
    batch,
    gradients,
    plain_of,
    side,
    spans,
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_and_gradients_equal_the_plain_form(family, reduction):
    model, rows = backbone(family), spans(7)
    reference = plain_of(model)
    expected = plain.mlm(reference, rows, reduction)
    expected.backward()
    found = step(
        MaskedLM(MaskedLM.Config(mlm_reduction=reduction), model), batch(7, text=side(rows)), chunk_tokens=30
    )
    assert found.chunks > 1
    torch.testing.assert_close(found.losses["mlm"], expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))


def test_loss_is_transformers_own():
    model, rows = backbone("bert"), spans(5)
    reference = plain_of(model)
    ids, mask = reference.pad(rows)
    labels = torch.full_like(ids, -100)
    for row, span in enumerate(rows):
        labels[row, span.targets] = torch.tensor(span.labels)
    expected = reference.model(ids, attention_mask=mask, labels=labels).loss
    found = step(MaskedLM(MaskedLM.Config(), model), batch(5, text=side(rows)))
    torch.testing.assert_close(found.losses["mlm"], expected.detach(), rtol=0, atol=1e-9)


def test_accuracy_is_the_share_of_masked_tokens_guessed_and_is_not_trained_on():
    model, rows = backbone("bert"), spans(6)
    reference = plain_of(model)
    logits = reference.vocabulary(reference.states(rows)[-1])
    right = [int(logits[r, t].argmax()) == y for r, s in enumerate(rows) for t, y in zip(s.targets, s.labels)]
    found = step(MaskedLM(MaskedLM.Config(), model), batch(6, text=side(rows)))
    assert float(found.losses["mlm_accuracy"]) == pytest.approx(sum(right) / len(right))
    assert float(found.loss) == float(found.losses["mlm"])
