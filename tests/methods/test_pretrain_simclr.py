"""SimCLR: ours equals the plain form, whole or in chunks."""

import pytest
import torch

from liebig.base.errors import RecipeError
from liebig.methods.simclr import SimCLR
from liebig.train.batch import Batch
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


def views(n):
    return spans(n, seed=1, masked=False), spans(n, seed=2, masked=False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk_tokens", [None, 30])
def test_loss_and_gradients_equal_the_plain_form(family, chunk_tokens):
    model, (queries, keys) = backbone(family), views(6)
    reference = plain_of(model)
    expected = plain.simclr(reference, queries, keys, 0.5)
    expected.backward()
    pair = batch(6, query=side(queries), key=side(keys))
    found = step(SimCLR(SimCLR.Config(temperature=0.5), model), pair, chunk_tokens=chunk_tokens)
    torch.testing.assert_close(found.losses["contrast"], expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))


def test_texts_of_one_document_are_no_negatives_on_request():
    model, (queries, keys) = backbone(), views(4)
    documents = torch.tensor([7, 9, 7, 8])
    pair = Batch({"query": side(queries), "key": side(keys)}, 4, {"document": documents})
    found = step(SimCLR(SimCLR.Config(temperature=0.5, distinct_documents=True), model), pair)
    q, k = (plain.mean_vectors(plain_of(model), rows) for rows in (queries, keys))
    scores = q @ k.T / 0.5
    scores[0, 2] = scores[2, 0] = -torch.inf
    expected = -scores.log_softmax(1).diagonal().mean()
    torch.testing.assert_close(found.losses["contrast"], expected.detach(), rtol=0, atol=1e-9)


def test_distinct_documents_need_a_source_that_knows_them():
    model, (queries, keys) = backbone(), views(4)
    with pytest.raises(RecipeError, match="which document"):
        step(
            SimCLR(SimCLR.Config(distinct_documents=True), model),
            batch(4, query=side(queries), key=side(keys)),
        )
