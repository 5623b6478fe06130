"""On CUDA: kernels, compiled and lean forms and pooling agree with float32 to the rounding of bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from liebig.losses.mlm import MaskedLoss, mlm
from liebig.model import attention
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.model.pooling import POOLINGS, pool
from liebig.vectors.topk import topk
from tests.worlds.models import PACKED, TEXTS, VOCAB, own_states, tiny, tokenizer

pytestmark = pytest.mark.gpu
LENGTHS = (40, 1, 128, 17, 300, 64, 5, 90)
SHORT = (40, 1, 128, 17, 64, 5, 90)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def row(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> Packed:
    random = torch.Generator().manual_seed(seed)
    return Packed.from_lists([torch.randint(5, VOCAB, (n,), generator=random).tolist() for n in lengths]).to(
        "cuda"
    )


def on_gpu(family: str, dropout: float = 0.0) -> Backbone:
    backbone = tiny(family, dropout=dropout, width=128, heads=2, max_positions=512)
    return backbone.cuda()


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize("reach", [-1, 3])
def test_the_variable_length_kernel_is_bucketed_sdpa_forward_and_backward(reach: int) -> None:
    packed = row()
    torch.manual_seed(0)
    qkv = [
        torch.randn(packed.total, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    q, k, v = qkv
    fast = attention.attend_varlen(
        q, k, v, packed.offsets, attention.rounded_longest(packed.max_length), None, reach
    )
    wide = [x.detach().double().requires_grad_() for x in qkv]
    q, k, v = wide
    exact = attention.attend_padded(q, k, v, packed.plan, None, reach)
    assert relative(fast, exact) < 1e-2
    weight = torch.randn_like(fast)
    got = torch.autograd.grad((fast * weight).sum(), qkv)
    expected = torch.autograd.grad((exact * weight).sum(), wide)
    assert all(relative(a, b) < 2e-2 for a, b in zip(got, expected))


@pytest.mark.parametrize("lengths", [LENGTHS, SHORT])
@pytest.mark.parametrize(("family", "compiled"), [(f, False) for f in PACKED] + [("bert", True)])
def test_bf16_on_cuda_is_as_near_to_float32_as_transformers_own(
    family: str, compiled: bool, lengths: tuple[int, ...]
) -> None:
    backbone, packed = on_gpu(family), row(lengths)
    weight = torch.randn(packed.total, backbone.width, device="cuda")
    weights = [p for name, p in backbone.body.named_parameters() if "pooler" not in name]

    def states_and_gradients(states: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.autograd.grad((states.float() * weight).sum(), weights)
        return states, torch.cat([g.flatten() for g in found])

    exact = states_and_gradients(backbone(packed).last)
    if compiled:
        backbone.compile()
    with torch.autocast("cuda", torch.bfloat16):
        assert "packed_offsets" in backbone._route(packed)
        ours, own = backbone(packed).last, own_states(backbone.model, packed)
    for mine, theirs, right in zip(states_and_gradients(ours), states_and_gradients(own), exact):
        assert relative(mine, right) < 1.5 * relative(theirs, right) + 1e-3


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_changing_rows_compile_nothing_again_on_cuda(family: str) -> None:
    backbone = on_gpu(family, dropout=0.1)
    head = list(backbone.new_layers(1))
    backbone.compile(fullgraph=True)
    backbone.train()

    def step(packed: Packed) -> None:
        some = torch.arange(0, packed.total, 5, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            hidden = backbone(packed, layers=(2,))
            late = backbone.run_layers(head, hidden.layers[2], packed)
            loss = backbone.mlm_loss(late[some], packed.tokens[some]).loss
        loss.backward()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            backbone(packed)

    for seed, lengths in enumerate(((40, 100, 120), (20, 90, 70, 8), (200, 300), (400, 20, 3))):
        step(row(lengths, seed))
    made = counters["stats"]["unique_graphs"]
    for seed, lengths in enumerate(((50, 110, 128, 9, 9), (33, 128), (511, 3, 300), (70, 66, 71))):
        step(row(lengths, seed))
    assert counters["stats"]["unique_graphs"] == made


@pytest.mark.parametrize("compiled", [False, True])
def test_the_masked_lm_loss_with_padded_vocabulary_is_the_plain_one(compiled: bool) -> None:
    backbone = on_gpu("bert")
    assert backbone.vocab_size % 64
    states = torch.randn(50, backbone.width, device="cuda", requires_grad=True)
    labels = torch.randint(0, VOCAB, (50,), device="cuda")
    plain = mlm(backbone.mlm_logits(states), labels)
    if compiled:
        backbone.compile()
    ours = backbone.mlm_loss(states, labels)
    assert torch.allclose(ours.loss, plain.loss, rtol=1e-5)
    assert ours.correct == plain.correct
    got, expected = (
        torch.autograd.grad(x.loss, [states, *backbone.model.cls.parameters()]) for x in (ours, plain)
    )
    assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(got, expected))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", PACKED)
def test_the_masked_lm_loss_in_bf16_is_as_near_to_float32_as_that_of_its_logits(
    family: str, compiled: bool
) -> None:
    backbone = on_gpu(family)
    states = torch.randn(500, backbone.width, device="cuda", requires_grad=True)
    labels = torch.randint(0, VOCAB, (500,), device="cuda")
    decoder = backbone.kind.decoder(backbone.model)
    leaves = [states, *decoder.parameters()]

    def loss_and_gradients(result: MaskedLoss) -> list[Tensor]:
        return [result.loss, *torch.autograd.grad(result.loss, leaves)]

    exact = loss_and_gradients(mlm(backbone.mlm_logits(states), labels))
    with torch.autocast("cuda", torch.bfloat16):
        own = mlm(backbone.mlm_logits(states), labels)
        if compiled:
            backbone.compile()
        assert backbone._fuses_loss(states.device)
        ours = backbone.mlm_loss(states, labels)
    for mine, theirs, right in zip(*map(loss_and_gradients, (ours, own)), exact):
        assert mine.dtype == torch.float32
        assert relative(mine, right) < 1.5 * relative(theirs, right) + 1e-3


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling_on_cuda_is_pooling_on_the_cpu_and_the_same_every_time(kind: str) -> None:
    packed = row()
    states = torch.randn(packed.total, 24, device="cuda", requires_grad=True)
    here = states.detach().cpu().requires_grad_()
    ours, reference = pool(states, packed, kind), pool(here, packed.to("cpu"), kind)
    assert torch.equal(ours, pool(states, packed, kind))
    assert torch.allclose(ours.cpu(), reference, atol=1e-5)
    weight = torch.randn_like(reference)
    (got,) = torch.autograd.grad((ours * weight.cuda()).sum(), states)
    (expected,) = torch.autograd.grad((reference * weight).sum(), here)
    assert torch.allclose(got.cpu(), expected, atol=1e-5)


def test_encoding_on_cuda_is_encoding_on_the_cpu_to_rounding() -> None:
    encoder = Encoder(tiny("bert", width=64, heads=2), tokenizer(), pooling="mean")
    exact = encoder.encode_texts(TEXTS * 5)
    encoder.cuda()
    assert np.abs(encoder.encode_texts(TEXTS * 5, half=False) - exact).max() < 1e-3
    half = encoder.encode_texts(TEXTS * 5, token_budget=100)
    assert np.linalg.norm(half - exact) / np.linalg.norm(exact) < 2e-2


def test_top_k_on_cuda_breaks_ties_as_on_the_cpu() -> None:
    random = np.random.default_rng(0)
    queries, passages = (random.integers(-2, 3, (n, 4)).astype(np.float32) for n in (30, 2000))
    on_cpu, on_cuda = (
        topk(queries, passages, 50, device=device, tile_passages=300) for device in ("cpu", "cuda")
    )
    assert np.array_equal(on_cpu[1], on_cuda[1])
    assert np.array_equal(on_cpu[0], on_cuda[0])
