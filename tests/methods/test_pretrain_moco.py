"""MoCo: loss against the plain form, the queue in order, the momentum encoder by its formula."""

import pytest
import torch

from liebig.base.errors import RecipeError
from liebig.methods.moco import MoCo, check_queue
from liebig.model.pooling import Dense, Normalize
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

QUEUE = 12


def moco(model, tail=(), seed=0, **options):
    config = MoCo.Config(queue=QUEUE, temperature=0.5, **options)
    return MoCo(config, model, tail, seed=seed).double().train()


def pairs(n, seed):
    queries, keys = spans(n, seed=seed, masked=False), spans(n, seed=seed + 100, masked=False)
    return queries, keys, batch(n, query=side(queries), key=side(keys))


def take(objective, pair, rate=0.1):
    """A step, a plain gradient descent, and what follows a step."""
    found = step(objective, pair, chunk_tokens=40)
    with torch.no_grad():
        for parameter in objective.backbone.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
    objective.after_step()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_equal_the_plain_form(family):
    model = backbone(family)
    queries, keys, pair = pairs(4, 0)
    reference = plain_of(model)
    objective = moco(model)
    q = plain.mean_vectors(reference, queries)
    k = plain.mean_vectors(plain_of(model), keys).detach()
    expected = plain.moco(q, k, objective.queue, 0.5)
    expected.backward()
    found = step(objective, pair, chunk_tokens=30)
    torch.testing.assert_close(found.losses["contrast"], expected.detach(), rtol=0, atol=1e-9)
    assert_same_gradients(gradients(model.model), gradients(reference.model))
    assert all(p.grad is None for p in objective.key_encoder.parameters())


def test_the_queue_holds_the_last_keys_in_order_and_the_encoder_follows_its_formula():
    objective = moco(backbone(), momentum=0.9)
    seen = []
    for number in range(5):
        _, keys, pair = pairs(4, number)
        before = {name: p.clone() for name, p in objective.key_encoder.named_parameters()}
        seen.append(plain.mean_vectors(plain_of(objective.key_encoder), keys))
        take(objective, pair)
        for name, parameter in objective.key_encoder.named_parameters():
            follows = 0.9 * before[name] + 0.1 * objective.backbone.get_parameter(name)
            torch.testing.assert_close(parameter, follows, rtol=0, atol=1e-12)
    torch.testing.assert_close(objective.in_order(), torch.cat(seen)[-QUEUE:], rtol=0, atol=1e-9)


def test_keys_go_through_a_momentum_projection_that_follows_too():
    projection = Dense(16, 6).double()
    objective = moco(backbone(), tail=[projection, Normalize()], momentum=0.9)
    objective.key_tail[0].linear.weight.data.mul_(-1)
    _, keys, pair = pairs(4, 0)
    before = [p.clone() for p in objective.key_tail.parameters()]
    pooled = plain.mean_vectors(plain_of(objective.key_encoder), keys)
    expected = torch.nn.functional.normalize(pooled @ before[0].T + before[1], dim=1)
    take(objective, pair)
    torch.testing.assert_close(objective.in_order()[-4:], expected, rtol=0, atol=1e-9)
    for old, key, query in zip(before, objective.key_tail.parameters(), projection.parameters(), strict=True):
        assert query.grad is not None
        torch.testing.assert_close(key, 0.9 * old + 0.1 * query, rtol=0, atol=1e-12)


def test_queue_and_momentum_encoder_are_in_the_state():
    objective = moco(backbone())
    take(objective, pairs(4, 0)[2])
    other = moco(backbone(seed=1), seed=5)
    other.load_state_dict(objective.state_dict())
    torch.testing.assert_close(other.in_order(), objective.in_order(), rtol=0, atol=0)
    assert int(other.oldest) == 4


def test_dropout_of_the_keys_is_as_asked_for():
    model = backbone()
    model.set_dropout(0.5)
    pair = pairs(4, 0)[2]
    still, random = moco(model, key_dropout=False), moco(model, key_dropout=True)
    draws = [[objective.constants(pair) for _ in range(2)] for objective in (still, random)]
    assert torch.equal(*draws[0])
    assert not torch.equal(*draws[1])
    assert not random.eval().key_encoder.training


def test_a_queue_that_is_no_multiple_of_the_batch_is_refused_with_the_sizes_that_are():
    with pytest.raises(RecipeError, match="2,048 or 4,096"):
        check_queue(3000, 2048)
    with pytest.raises(RecipeError, match="2,048"):
        check_queue(100, 2048)
    check_queue(131_072, 2048)
