"""Recorded layers compute what they compute as they are: on a CPU, with a stand-in for CUDA graphs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.model.backbone import Backbone
from liebig.model.kernels import captured, lean, plain
from liebig.model.kernels.captured import CapturedGraph, Captures, make_room as room, padded_size, pays
from liebig.model.kernels.lean import LEAN, LeanLayer, run_lean

WIDTH, LAYERS = 32, 3
Route = dict[str, Any]


def by_mask(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    """Stands in for the CUDA kernels: one mask over the whole row."""
    sequence = torch.bucketize(torch.arange(len(qkv), dtype=offsets.dtype), offsets, right=True)
    mask = sequence[:, None] == sequence[None, :]
    q, k, v = qkv.permute(1, 2, 0, 3)[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)[0].transpose(0, 1)


def again(
    function: Callable[[], tuple[Tensor, ...]], pool: Any
) -> tuple[tuple[Tensor, ...], Callable[[], None]]:
    """Stands in for a CUDA graph: computes anew, into the same tensors."""
    results = function()

    def replay() -> None:
        for place, new in zip(results, function(), strict=True):
            place.copy_(new)

    return results, replay


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "attend_qkv", by_mask)
    monkeypatch.setattr(captured, "record", again)
    monkeypatch.setattr(captured, "new_pool", lambda: None)
    monkeypatch.setattr(captured, "make_room", lambda *_: True)


def layers_of(dropout: float = 0.0) -> list[LeanLayer]:
    backbone = Backbone.create(LAYERS, WIDTH, 2, 60, dropout=dropout, seed=0).double().train()
    return [LEAN["bert"](layer) for layer in backbone.kind.layers(backbone.body)]


def row(lengths: Sequence[int], seed: int = 0) -> tuple[Tensor, Route]:
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    x = torch.randn(
        int(offsets[-1]), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return x.requires_grad_(), {"packed_offsets": offsets, "packed_longest": 64}


def kind(states: Tensor) -> str:
    return type(states.grad_fn).__name__


def gradients(outputs: Sequence[Tensor], x: Tensor, layers: Sequence[LeanLayer]) -> tuple[Tensor | None, ...]:
    inputs = [x, *(weight for layer in layers for weight in layer.weights)]
    factors = [
        torch.randn(one.shape, dtype=one.dtype, generator=torch.Generator().manual_seed(1)) for one in outputs
    ]
    return torch.autograd.grad(list(outputs), inputs, factors, allow_unused=True)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_states_and_gradients_are_those_of_the_layers_as_they_are(dropout: float) -> None:
    layers, captures, kinds = layers_of(dropout), Captures(), []
    noise = plain.draw_noise(LAYERS, torch.device("cpu")) if dropout else None
    for seed, lengths in enumerate([(30, 5, 9), (33, 3, 9), (30, 5, 9), (31, 2, 8), (28, 9, 10), (60, 1, 7)]):
        x, route = row(lengths, seed)
        own, mine = (run(layers, x, route, noise, (1, 2)) for run in (run_lean, captures.run))
        kinds.append(kind(mine[0]))
        for got, expected in zip(mine, own, strict=True):
            assert torch.allclose(got, expected, rtol=0, atol=1e-12)
        for got, expected in zip(gradients(mine, x, layers), gradients(own, x, layers), strict=True):
            assert got is not None
            assert expected is not None
            assert torch.allclose(got, expected, rtol=0, atol=1e-11)
    assert kinds == ["LayersBackward", *["ReplayedBackward"] * 4, "LayersBackward"], (
        "a new size runs as it is"
    )


def test_layers_behind_the_last_state_that_counts_have_no_gradient() -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    captures.run(layers, x, route, None, (1,))
    _, mine = captures.run(layers, x, route, None, (1,))
    assert kind(mine) == "ReplayedBackward"
    _, own = run_lean(layers, x, route, None, (1,))
    for got, expected in zip(gradients([mine], x, layers), gradients([own], x, layers), strict=True):
        assert (got is None) == (expected is None)
        assert got is None or torch.allclose(got, expected, rtol=0, atol=1e-12)  # type: ignore[arg-type]


def test_while_a_pass_waits_for_its_gradient_others_run_as_they_are() -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    other, _ = row((20, 4), 1)
    captures.run(layers, x, route, None, ())
    (first,) = captures.run(layers, x, route, None, ())
    (second,) = captures.run(layers, other, route, None, ())
    assert [kind(first), kind(second)] == ["ReplayedBackward", "LayersBackward"]
    for states, given in ((second, other), (first, x)):
        (own,) = run_lean(layers, given, route, None, ())
        for got, expected in zip(
            gradients([states], given, layers), gradients([own], given, layers), strict=True
        ):
            assert torch.allclose(got, expected, rtol=0, atol=1e-12)  # type: ignore[arg-type]
    assert kind(captures.run(layers, x, route, None, ())[0]) == "ReplayedBackward"


def test_a_pass_whose_gradient_nobody_asked_for_waits_no_longer_than_it_lives() -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    captures.run(layers, x, route, None, ())
    (left,) = captures.run(layers, x, route, None, ())
    assert kind(left) == "ReplayedBackward"
    del left
    assert kind(captures.run(layers, x, route, None, ())[0]) == "ReplayedBackward"


def test_a_second_backward_pass_is_refused() -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    captures.run(layers, x, route, None, ())
    (states,) = captures.run(layers, x, route, None, ())
    states.sum().backward(retain_graph=True)
    with pytest.raises(AssertionError, match="a second time"):
        states.sum().backward()


def test_without_room_layers_run_as_they_are_and_it_is_asked_for_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers, captures, small, asked = layers_of(), Captures(), row((20, 4)), []

    def kinds(count: int) -> list[str]:
        return [kind(captures.run(layers, *small, None, ())[0]) for _ in range(count)]

    monkeypatch.setattr(captured, "PATIENCE", 5)
    monkeypatch.setattr(captured, "make_room", lambda *given: bool(asked.append(given)))
    assert set(kinds(8)) == {"LayersBackward"}
    assert len(asked) == 1
    monkeypatch.setattr(captured, "make_room", lambda *_: True)
    assert kinds(2) == ["ReplayedBackward"] * 2


@pytest.mark.parametrize(
    ("free", "reserved", "allocated", "fits", "emptied"),
    [(400, 0, 0, True, 0), (90, 400, 90, True, 1), (300, 50, 50, False, 0), (0, 500, 90, True, 1)],
)
def test_a_graph_takes_a_quarter_of_what_is_free_at_most(
    monkeypatch: pytest.MonkeyPatch, free: int, reserved: int, allocated: int, fits: bool, emptied: int
) -> None:
    calls: list[int] = []
    for name, given in (
        ("mem_get_info", (free, 1000)),
        ("memory_reserved", reserved),
        ("memory_allocated", allocated),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, given=given: given)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(1))
    assert room(torch.device("cuda"), 100) is fits
    assert len(calls) == emptied


def test_of_many_sizes_those_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, captures, recorded = layers_of(), Captures(), []
    monkeypatch.setattr(captured, "MOST_GRAPHS", 2)
    monkeypatch.setattr(captured, "PATIENCE", 1)
    monkeypatch.setattr(
        captured, "CapturedGraph", lambda *given: recorded.append(given[1].tokens) or CapturedGraph(*given)
    )
    a, b, c = row((20, 4)), row((60, 60)), row((40, 40))
    for one in (
        a,
        a,
        b,
        b,
        a,
        c,
        c,
        a,
        b,
        b,
        b,
    ):  # c takes the place of b; later b, when it came often, that of c
        captures.run(layers, *one, None, ())
    assert recorded == [24, 120, 80, 120]


def test_a_size_that_does_not_fit_is_not_tried_again_and_leaves_no_pool_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers, captures, pools = layers_of(), Captures(), []

    def full(*given: Any) -> CapturedGraph:
        pools.append(given[-1])
        if given[1].tokens > 100:
            raise torch.OutOfMemoryError
        return CapturedGraph(*given)

    monkeypatch.setattr(captured, "new_pool", object)
    monkeypatch.setattr(captured, "CapturedGraph", full)
    large, small = row((60, 60)), row((20, 4))
    kinds = [kind(captures.run(layers, *one, None, ())[0]) for one in (large, large, large, small, small)]
    assert kinds == [*["LayersBackward"] * 4, "ReplayedBackward"]
    assert len(set(map(id, pools))) == len(pools) == 2, "a pool without a graph is gone"


def test_graphs_that_are_forgotten_are_recorded_anew() -> None:
    layers, captures, small = layers_of(), Captures(), row((20, 4))
    for _ in range(2):
        (states,) = captures.run(layers, *small, None, ())
    captured.forget()
    assert not captures._stacks
    (own,) = run_lean(layers, *small, None, ())
    x = small[0]
    for got, expected in zip(gradients([states], x, layers), gradients([own], x, layers), strict=True):
        assert torch.allclose(got, expected, rtol=0, atol=1e-12)  # type: ignore[arg-type]  # one under way goes on
    assert kind(captures.run(layers, *small, None, ())[0]) == "LayersBackward"


class Nothing(torch.autograd.Function):
    """Passes states on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


@pytest.mark.parametrize("recorded", [False, True])
def test_without_any_gradient_there_is_none(recorded: bool) -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    for _ in range(2):
        (states,) = (
            captures.run(layers, x, route, None, ()) if recorded else run_lean(layers, x, route, None, ())
        )
    Nothing.apply(states).sum().backward()
    assert x.grad is None
    assert kind(states) == ("ReplayedBackward" if recorded else "LayersBackward")


@pytest.mark.parametrize("recorded", [False, True])
def test_weights_that_change_between_the_passes_are_noticed(recorded: bool) -> None:
    layers, captures = layers_of(), Captures()
    x, route = row((20, 4))
    for _ in range(2):
        (states,) = (
            captures.run(layers, x, route, None, ()) if recorded else run_lean(layers, x, route, None, ())
        )
    with torch.no_grad():
        layers[1].weights.close_norm.mul_(3)
    with pytest.raises(AssertionError, match="changed between"):
        states.sum().backward()


def test_weights_that_lie_elsewhere_have_graphs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "MOST_STACKS", 2)
    captures, (x, route) = Captures(), row((20, 4))
    for _ in range(3):
        layers = layers_of()
        for _ in range(2):
            (mine,), (own,) = (run(layers, x, route, None, ()) for run in (captures.run, run_lean))
        assert kind(mine) == "ReplayedBackward"
        assert torch.allclose(mine, own, rtol=0, atol=1e-12)
    assert len(captures._stacks) == 2


@pytest.mark.parametrize("longest", [32, 64, 128])
def test_a_row_is_padded_by_an_eighth_at_the_most_and_sequences_hold_it(longest: int) -> None:
    for tokens in (1, 7, 63, 64, 65, 1000, 4096, 30_001, 84_000):
        for sequences in (1, max(1, tokens // 90), tokens):
            size = padded_size(tokens, sequences, longest)
            assert tokens <= size.tokens <= tokens + max(8, tokens / (8 if tokens < captured.FINE else 32))
            assert (size.sequences - sequences) * longest >= size.tokens - tokens
            assert size.sequences <= 1.2 * (sequences + size.tokens / 8 / longest) + 16


def test_only_small_rows_of_short_sequences_are_recorded() -> None:
    layers = layers_of()
    assert pays((1000, WIDTH), layers, 128)
    assert not pays((1000, WIDTH), layers, 256)
    assert not pays((captured.MOST_WORK // WIDTH**2 + 1, WIDTH), layers, 128)


def test_copies_of_an_encoder_record_anew() -> None:
    layers, captures = layers_of(), Captures()
    captures.run(layers, *row((20, 4)), None, ())
    assert not copy.deepcopy(captures)._stacks
    assert not pickle.loads(pickle.dumps(captures))._stacks
