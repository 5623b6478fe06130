"""Losses of retrievers equal plain ones, whole or in chunks, and marks are those worked out by hand."""

import random

import numpy as np
import pytest
import torch

from liebig.methods import text_similarity as tasks
from liebig.methods.contrastive import Contrastive, InfoNCE
from liebig.methods.distill import MarginMSE, SoftLabels
from liebig.methods.ltr import Ltr
from liebig.methods.retrieval import RetrievalBatches, RetrievalObjective, mark_columns
from liebig.methods.samplers import GroupChoice, sequential_batches
from liebig.model.packed import Packed
from liebig.train.distributed import ALONE
from liebig.train.step import step
from tests.worlds.finetuning import double_encoder, examples, random_texts

POSITIVES, NEGATIVES = [[0], [1], [2], [3]], [[4, 5], [6, 7], [8, 9], [10, 11]]
SCORES = [3.0, 1.0, 0.5, 2.0, 0.125, -1.0, 4.0, 0.0, 1.0, 2.5, 2.0, -2.0]
GROUPS = [[0, 4, 5], [1, 6, 7], [2, 8, 9], [3, 10, 11]]
ORDER = [p for group in GROUPS for p in group]


def made(data, encoder, positives=1, negatives=2, mask=True):
    queries, passages = random_texts(len(data), 1), random_texts(len(data.passages), 2)
    sampler = sequential_batches(len(data), len(data))
    maker = RetrievalBatches(
        data, queries, passages, sampler, GroupChoice(negatives, positives, rotate=False), ALONE, mask
    )
    asked = encoder(Packed.from_ragged(queries))
    return maker(0), asked, lambda numbers: encoder(Packed.from_ragged(passages.take(np.array(numbers))))


def contrastive(query, passage=None, **fields):
    return Contrastive.build(Contrastive.Config(**fields), query, passage)


def gradients(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def assert_same(objective, encoder, batch, expected, chunk_tokens):
    encoder.zero_grad()
    expected.backward()
    theirs = gradients(encoder)
    found = step(objective, batch, chunk_tokens=chunk_tokens)
    torch.testing.assert_close(found.loss, expected.detach(), rtol=0, atol=1e-9)
    ours = gradients(encoder)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-7, atol=1e-9)


def scores_of(q, p, similarity, temperature):
    if similarity == "cosine":
        q, p = torch.nn.functional.normalize(q, dim=1), torch.nn.functional.normalize(p, dim=1)
    return q @ p.T / temperature


@pytest.mark.parametrize("chunk_tokens", [None, 25])
@pytest.mark.parametrize(("similarity", "temperature"), [("dot", 1.0), ("dot", 0.05), ("cosine", 0.05)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_info_nce_equals_the_plain_form_cached_or_not(chunk_tokens, similarity, temperature, pooling):
    encoder, data = double_encoder(pooling), examples(POSITIVES, NEGATIVES, 12)
    batch, q, encode = made(data, encoder)
    scores = scores_of(q, encode(ORDER), similarity, temperature)
    expected = -scores.log_softmax(1)[torch.arange(4), torch.arange(4) * 3].mean()
    objective = RetrievalObjective(encoder, loss=[(1.0, InfoNCE(temperature, similarity))])
    assert_same(objective, encoder, batch, expected, chunk_tokens)


def test_untied_towers_have_gradients_of_their_own():
    query, passage = double_encoder(seed=0), double_encoder(seed=1)
    data = examples(POSITIVES, NEGATIVES, 12)
    batch, q, _ = made(data, query)
    p = passage(Packed.from_ragged(random_texts(12, 2).take(np.array(ORDER))))
    expected = -(q @ p.T).log_softmax(1)[torch.arange(4), torch.arange(4) * 3].mean()
    assert_same(contrastive(query, passage), query, batch, expected, 25)


@pytest.mark.parametrize("chunk_tokens", [None, 25])
def test_several_positives_each_stand_against_everything_but_the_others(chunk_tokens):
    encoder = double_encoder()
    data = examples([[0, 1], [2]], [[3], [4]], 5)
    batch, q, encode = made(data, encoder, positives=2, negatives=1)
    scores = q @ encode([0, 1, 3, 2, 4]).T
    first = [-scores[0, [i, 2, 3, 4]].log_softmax(0)[0] for i in (0, 1)]
    expected = (sum(first) / 2 - scores[1].log_softmax(0)[3]) / 2
    assert_same(contrastive(encoder), encoder, batch, expected, chunk_tokens)


def test_a_passage_judged_relevant_or_of_the_positives_text_is_no_negative():
    encoder = double_encoder()
    data = examples(
        [[0], [1], [2]], [[3], [4], [5]], 6, relevant=[[0, 4], [1], [2]], content=[9, 8, 7, 6, 5, 8]
    )
    batch, q, encode = made(data, encoder, negatives=1)
    assert batch.extras["exclude"].tolist() == [[3], [5], [-1]]
    scores = (q @ encode([0, 3, 1, 4, 2, 5]).T).clone()
    scores[0, 3] = scores[1, 5] = -torch.inf
    expected = -scores.log_softmax(1)[torch.arange(3), torch.arange(3) * 2].mean()
    assert_same(contrastive(encoder), encoder, batch, expected, None)


@pytest.mark.parametrize("seed", range(20))
def test_marks_are_what_looking_at_every_passage_gives(seed):
    """Any number of positives, negatives, further relevant passages and equal texts, drawn at random."""
    draw = random.Random(seed)
    passages, count = 30, 12
    content = [draw.randrange(20) for _ in range(passages)]
    positives = [draw.sample(range(passages), draw.randint(1, 3)) for _ in range(count)]
    negatives = [
        draw.sample([p for p in range(passages) if p not in own], draw.randint(0, 4)) for own in positives
    ]
    relevant = [sorted({*own, *draw.sample(range(passages), draw.randint(0, 3))}) for own in positives]
    data = examples(positives, negatives, passages, relevant=relevant, content=content)
    chosen = np.array(draw.sample(range(count), count))
    choice = GroupChoice(negatives=2, positives=2, seed=seed)
    groups = [choice.group(data, int(i), 0) for i in chosen]
    marks = mark_columns(
        data, chosen, groups, data.content[np.concatenate([group.passages for group in groups])]
    )
    columns = [(row, int(p)) for row, group in enumerate(groups) for p in group.passages]
    for row, (example, group) in enumerate(zip(chosen.tolist(), groups)):
        own = [column for column, (of, _) in enumerate(columns) if of == row]
        known = {content[p] for p in relevant[example]}
        like = [column for column, (_, p) in enumerate(columns) if content[p] in known]
        targets = own[: group.positives]
        assert kept(marks["targets"][row]) == targets
        assert kept(marks["members"][row]) == own
        assert kept(marks["exclude"][row]) == [column for column in like if column not in targets]


def kept(row):
    return [column for column in row.tolist() if column >= 0]


def test_the_mask_can_be_left_out():
    data = examples([[0], [0]], [[1], [2]], 3)
    masked, _, _ = made(data, double_encoder(), negatives=1)
    plain, _, _ = made(data, double_encoder(), negatives=1, mask=False)
    assert masked.extras["exclude"].tolist() == [[2], [0]]
    assert "exclude" not in plain.extras


@pytest.mark.parametrize("over", ["batch", "group"])
def test_soft_labels_equal_the_plain_divergence(over):
    encoder, data = double_encoder(), examples(POSITIVES, NEGATIVES, 12, scores=SCORES)
    batch, q, encode = made(data, encoder)
    scores = q @ encode(ORDER).T / 0.5
    teacher = (torch.tensor(SCORES, dtype=torch.double).view(4, 3) / 2.0).softmax(1)
    own = torch.stack([scores[i, 3 * i : 3 * i + 3] for i in range(4)])
    student = own.log_softmax(1)
    if over == "batch":
        student = torch.stack([scores[i].log_softmax(0)[3 * i : 3 * i + 3] for i in range(4)])
    expected = (teacher * (teacher.log() - student)).sum(1).mean()
    objective = RetrievalObjective(encoder, loss=[(1.0, SoftLabels(over, 0.5, 2.0))])
    assert_same(objective, encoder, batch, expected, 25)


def test_margin_mse_and_hard_labels_mix_by_weight():
    encoder, data = double_encoder(), examples(POSITIVES, NEGATIVES, 12, scores=SCORES)
    batch, q, encode = made(data, encoder)
    scores = q @ encode(ORDER).T
    own = torch.stack([scores[i, 3 * i : 3 * i + 3] for i in range(4)])
    teacher = torch.tensor(SCORES, dtype=torch.double).view(4, 3)
    margin = ((own[:, :1] - own[:, 1:]) - (teacher[:, :1] - teacher[:, 1:])).square().mean()
    hard = -scores.log_softmax(1)[torch.arange(4), torch.arange(4) * 3].mean()
    objective = RetrievalObjective(encoder, loss=[(1.0, MarginMSE()), (0.2, InfoNCE())])
    assert_same(objective, encoder, batch, margin + 0.2 * hard, 25)


def ranker(encoder, passage=None):
    objective = Ltr(encoder, passage)
    objective.head.double()
    return objective


def every_pair(objective, q, p):
    """σ(W{q, d} + b) of every query with every passage, in the plainest way."""
    pairs = torch.cat((q.repeat_interleave(len(p), 0), p.repeat(len(q), 1)), 1)
    return objective.head(pairs).view(len(q), len(p)).sigmoid()


@pytest.mark.parametrize("chunk_tokens", [None, 25])
@pytest.mark.parametrize("mined", [True, False])
def test_ltr_is_the_softmax_of_sigmoids_over_the_batch(chunk_tokens, mined):
    """Eq. 14 with the other queries' passages as negatives, with and without mined ones; the head learns too."""
    encoder, data = double_encoder(), examples(POSITIVES, NEGATIVES if mined else [[]] * 4, 12)
    batch, q, encode = made(data, encoder)
    objective = ranker(encoder)
    scores = every_pair(objective, q, encode(ORDER if mined else [0, 1, 2, 3]))
    expected = -scores.log_softmax(1)[torch.arange(4), torch.arange(4) * (3 if mined else 1)].mean()
    plain = torch.autograd.grad(expected, list(objective.head.parameters()), retain_graph=True)
    assert_same(objective, encoder, batch, expected, chunk_tokens)
    for ours, theirs in zip(objective.head.parameters(), plain):
        torch.testing.assert_close(ours.grad, theirs, rtol=1e-7, atol=1e-12)


def test_ltr_leaves_out_what_is_known_to_be_relevant_and_counts_a_query_of_several_positives_once():
    encoder, passage = double_encoder(), double_encoder(seed=1)
    data = examples([[0, 1], [2]], [[3], [4]], 5, relevant=[[0, 1, 4], [2]])
    batch, q, _ = made(data, encoder, positives=2, negatives=1)
    objective = ranker(encoder, passage)
    p = passage(Packed.from_ragged(random_texts(5, 2).take(np.array([0, 1, 3, 2, 4]))))
    scores = every_pair(objective, q, p)
    first = [-scores[0, [i, 2, 3]].log_softmax(0)[0] for i in (0, 1)]
    expected = (sum(first) / 2 - scores[1].log_softmax(0)[3]) / 2
    assert_same(objective, encoder, batch, expected, None)


@pytest.mark.parametrize("chunk_tokens", [None, 25])
@pytest.mark.parametrize("kind", ["cosine", "triplet"])
def test_similarity_tasks_equal_their_plain_forms(kind, chunk_tokens):
    encoder, texts = double_encoder(), [random_texts(6, seed) for seed in (1, 2, 3)]
    a, b, c = (encoder(Packed.from_ragged(text)) for text in texts)
    if kind == "cosine":
        gold = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0, 0.5])
        data, objective = (
            tasks.TextTuples(tasks.PAIR, tuple(texts[:2]), gold.numpy()),
            tasks.CosineRegression(encoder, scale=1.0),
        )
        expected = (torch.nn.functional.cosine_similarity(a, b) - gold).square().mean()
    else:
        data, objective = (
            tasks.TextTuples(tasks.TRIPLET, tuple(texts), None),
            tasks.TripletMargin(encoder, 0.1, "euclidean"),
        )
        rises = (a - b).norm(dim=1) - (a - c).norm(dim=1) + 0.1
        assert 0 < int((rises > 0).sum()) < 6
        expected = rises.clamp(min=0).mean()
    batch = tasks.TupleBatches(data, sequential_batches(6, 6), ALONE)(0)
    assert_same(objective, encoder, batch, expected, chunk_tokens)
