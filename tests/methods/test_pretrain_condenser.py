"""Condenser and coCondenser: loss against the plain form, and where information can flow."""

import pytest
import torch

from liebig.base.errors import RecipeError
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.condenser import Condenser, CondenserHead
from liebig.train.batch import Batch
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


def both(family, **options):
    """A Condenser of ours, and the same weights in plain form."""
    model = backbone(family)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the weights of the head do not depend on the tests before
        head = CondenserHead(model).double().eval()
    reference = plain_of(model)
    return model, head, reference, layers_of(head.layers, reference)


def assert_equal(model, head, reference, plain_head):
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert_same_gradients(gradients(head.layers), gradients(plain_head))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("late_mlm", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_condenser_equals_the_plain_form(family, late_mlm, reduction):
    model, head, reference, plain_head = both(family)
    rows = spans(6)
    expected = plain.condenser(reference, plain_head, rows, 2, late_mlm, reduction)
    expected.backward()
    objective = Condenser(Condenser.Config(late_mlm=late_mlm, mlm_reduction=reduction), model, head)
    found = step(objective, batch(6, text=side(rows)), chunk_tokens=30)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_equal(model, head, reference, plain_head)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk_tokens", [None, 30])
def test_cocondenser_equals_the_plain_form_whole_and_cached(family, chunk_tokens):
    model, head, reference, plain_head = both(family)
    rows = spans(8)
    expected = plain.cocondenser(reference, plain_head, rows, 2, mlm_weight=2.0, temperature=3.0)
    expected.backward()
    objective = CoCondenser(CoCondenser.Config(mlm_weight=2.0, temperature=3.0), model, head)
    found = step(objective, batch(4, text=side(rows, 2)), chunk_tokens=chunk_tokens)
    assert (found.chunks > 1) == (chunk_tokens is not None)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_equal(model, head, reference, plain_head)


def test_the_contrast_alone_is_equation_6():
    model, head, reference, _ = both("bert")
    rows = spans(8)
    expected = plain.span_contrast(reference.states(rows)[-1][:, 0])
    expected.backward()
    found = step(
        CoCondenser(CoCondenser.Config(mlm=False), model, head), batch(4, text=side(rows, 2)), chunk_tokens=40
    )
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert not gradients(head)


def test_a_span_without_a_partner_has_masked_terms_only():
    model, head, reference, plain_head = both("bert")
    rows = spans(5)
    text = side(rows)
    owner = torch.tensor([0, 0, 1, 2, 2])
    expected = plain.condenser(reference, plain_head, rows, 2)
    paired = [rows[i] for i in (0, 1, 3, 4)]
    expected = expected + plain.span_contrast(reference.states(paired)[-1][:, 0])
    pairs = Batch({"text": type(text)(text.packed, owner, text.targets, text.labels)}, 3)
    found = step(CoCondenser(CoCondenser.Config(), model, head), pairs, chunk_tokens=30)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)


def test_spans_of_one_document_are_no_negatives_on_request():
    model, head, reference, _ = both("bert")
    rows = spans(6)
    pairs = Batch({"text": side(rows, 2)}, 3, {"document": torch.tensor([5, 6, 5])})
    found = step(CoCondenser(CoCondenser.Config(mlm=False, distinct_documents=True), model, head), pairs)
    vectors = reference.states(rows)[-1][:, 0]
    scores = vectors @ vectors.T
    same = torch.tensor([0, 0, 1, 1, 0, 0])
    partner = torch.arange(6) ^ 1
    hidden = (same[:, None] == same[None, :]) & (torch.arange(6)[None, :] != partner[:, None])
    expected = -scores.masked_fill(hidden, -torch.inf).log_softmax(1)[torch.arange(6), partner].mean()
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)


class Tampered(torch.nn.Module):
    """A head whose late input is changed at the first tokens, or everywhere else."""

    def __init__(self, head, at_cls):
        super().__init__()
        self.head, self.at_cls = head, at_cls

    def forward(self, model, late, early, packed):
        first = torch.zeros(len(late), 1, dtype=torch.bool).index_fill(0, packed.firsts, True)
        return self.head(model, torch.where(first == self.at_cls, late.roll(1, 1), late), early, packed)


def test_the_late_layers_reach_the_head_through_cls_alone():
    model, head, _, _ = both("bert")
    texts = batch(6, text=side(spans(6)))
    heads = (head, Tampered(head, at_cls=True), Tampered(head, at_cls=False))
    as_is, cls_changed, tokens_changed = (
        float(step(Condenser(Condenser.Config(late_mlm=False), model, h), texts).losses["head"])
        for h in heads
    )
    assert abs(cls_changed - as_is) > 1e-3
    assert tokens_changed == as_is


def test_a_split_without_late_layers_is_refused():
    model, head, _, _ = both("bert")
    with pytest.raises(RecipeError, match="1 to 3"):
        Condenser(Condenser.Config(skip_from=4), model, head)
