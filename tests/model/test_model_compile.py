"""Lean and compiled forms compute the same, and compiled ones are made once: on a CPU, without the CUDA kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn import functional as F

from liebig.losses.mlm import MaskedLoss, mlm
from liebig.model import attention
from liebig.model.backbone import Backbone
from liebig.model.kernels import lean, plain
from liebig.model.packed import Packed
from tests.worlds.models import PACKED, own_states, random_row, tiny

ROWS = [(3, 5, 9), (20, 1, 7, 8), (2, 2, 2, 2, 2), (64, 64, 64), (33, 4)]


def by_mask(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, scale: float | None, reach: int
) -> Tensor:
    """Stands in for the CUDA kernel: one mask over the whole row."""
    row = torch.arange(q.shape[0], dtype=offsets.dtype)
    sequence = torch.bucketize(row, offsets, right=True)
    mask = sequence[:, None] == sequence[None, :]
    if reach >= 0:
        mask = mask & ((row[:, None] - row[None, :]).abs() <= reach)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)[0].transpose(0, 1)


def qkv_by_mask(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    return by_mask(qkv[:, 0], qkv[:, 1], qkv[:, 2], offsets, longest, scale, -1)


@pytest.fixture(autouse=True)
def no_cuda_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(attention, "varlen_runs", lambda *_: True)
    monkeypatch.setattr(attention, "attend_varlen", by_mask)
    monkeypatch.setattr(lean, "attend_qkv", qkv_by_mask)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compile_traced(backbone: Backbone) -> None:
    """Traces without generating code; a graph break is an error."""
    backbone.compile(backend="eager", fullgraph=True)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"])
def test_lean_states_and_gradients_are_the_models_own(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liebig.model.backbone.plain_layer", lambda *_: pytest.fail("not the lean form"))
    backbone, packed = tiny(family).double(), random_row()
    assert lean.lean_form(family, backbone.kind.layers(backbone.body)[0]) is not None
    own, ours = own_states(backbone.model, packed), backbone(packed).last
    assert torch.allclose(ours, own, rtol=0, atol=1e-12)
    weight = torch.randn_like(own)
    weights = [p for name, p in backbone.body.named_parameters() if "pooler" not in name]
    expected, got = (torch.autograd.grad((x * weight).sum(), weights) for x in (own, ours))
    assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-10) for a, b in zip(got, expected))


@pytest.mark.parametrize(
    "some", [(1, 2, 3), (1,)]
)  # layers behind the last one that counts have no part in it
def test_states_of_inner_layers_have_gradients_of_their_own(some: tuple[int, ...]) -> None:
    backbone, packed = tiny("bert", layers=3).double(), random_row()
    layers, x = backbone.kind.layers(backbone.body), backbone.embed(packed).detach().requires_grad_()
    one_by_one = {0: x}
    for i, layer in enumerate(layers, 1):
        one_by_one[i] = backbone.run_layers([layer], one_by_one[i - 1], packed)
    last, together = backbone._run(layers, x, packed, frozenset({1, 2, 3}))
    assert torch.equal(last, together[3])
    weights = [x, *(p for layer in layers for p in layer.parameters())]
    factors = [torch.randn_like(x) for _ in some]
    expected, got = (
        torch.autograd.grad([states[i] for i in some], weights, factors, allow_unused=True)
        for states in (one_by_one, together)
    )
    for mine, own in zip(got, expected):
        assert (mine is None) == (own is None)
        assert mine is None or torch.allclose(mine, own, rtol=0, atol=1e-12)


def test_what_layers_kept_is_let_go_by_the_backward_pass() -> None:
    backbone, packed = tiny("bert"), random_row()
    last = backbone(packed).last
    last.sum().backward(retain_graph=True)
    with pytest.raises(AssertionError, match="a second time"):
        last.sum().backward()


def test_a_layer_with_other_products_or_another_activation_is_run_as_it_is() -> None:
    backbone, packed = tiny("bert"), random_row()
    first, second = backbone.kind.layers(backbone.body)[:2]
    first.intermediate.intermediate_act_fn = torch.nn.ReLU()
    second.output.dense = torch.nn.Sequential(second.output.dense)
    assert lean.lean_form("bert", first) is lean.lean_form("bert", second) is None
    with torch.no_grad():
        assert torch.allclose(backbone(packed).last, own_states(backbone.model, packed), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_changing_rows_compile_nothing_again(family: str) -> None:
    backbone = tiny(family, layers=2, dropout=0.1)
    head = list(backbone.new_layers(1))
    compile_traced(backbone)

    def pass_over(packed: Packed) -> None:
        hidden = backbone(packed, layers=(1,))
        late = backbone.run_layers(head, hidden.layers[1], packed)
        some = torch.arange(0, packed.total, 4)
        (backbone.mlm_loss(late[some], packed.tokens[some]).loss + hidden.last.sum()).backward()
        with torch.no_grad():
            backbone(packed)

    backbone.train()
    pass_over(random_row(ROWS[0]))
    pass_over(random_row(ROWS[1]))
    made = counters["stats"]["unique_graphs"]
    for lengths in ROWS[2:]:
        pass_over(random_row(lengths))
    assert counters["stats"]["unique_graphs"] == made


def test_layers_without_a_lean_form_are_traced_whole_and_those_of_one_shape_once() -> None:
    def graphs(layers: int) -> int:
        counters.clear()
        backbone, packed = tiny("modernbert", layers=layers), random_row()  # global and local ones
        compile_traced(backbone)
        with torch.no_grad():
            assert torch.allclose(
                backbone(packed).last, own_states(backbone.model, packed), rtol=0, atol=1e-5
            )
        return int(counters["stats"]["unique_graphs"])

    assert graphs(6) == graphs(9)


def test_the_compiled_loss_is_the_plain_one() -> None:
    backbone = tiny("bert").double()
    states, labels = torch.randn(7, 32, dtype=torch.float64), torch.arange(7)
    plain = backbone.mlm_loss(states, labels)
    compile_traced(backbone)
    compiled = backbone.mlm_loss(states, labels)
    assert torch.allclose(plain.loss, compiled.loss, rtol=0, atol=1e-12)
    assert plain.correct == compiled.correct


def test_the_loss_has_kernels_only_for_a_plain_decoder_in_half_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fused(backbone: Backbone, device: str = "cuda") -> bool:
        return backbone._fuses_loss(torch.device(device))

    monkeypatch.setattr("liebig.model.backbone.triton_is_here", lambda: True)
    whole, hooked, adapted = (tiny("bert").bfloat16() for _ in range(3))
    assert fused(whole)
    assert not fused(whole, "cpu")
    assert not fused(tiny("bert"))
    hooked.kind.decoder(hooked.model).register_forward_hook(lambda *_: None)
    adapted.model.cls.predictions.decoder = torch.nn.Sequential(adapted.kind.decoder(adapted.model))
    assert not any(map(fused, (hooked, adapted)))
    monkeypatch.setattr("liebig.model.backbone.triton_is_here", lambda: False)
    assert not fused(whole)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", PACKED)
def test_the_kernels_of_the_loss_get_the_states_before_the_decoder(
    family: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the kernels, which takes what they take; the rest of the head is Liebig's and is compiled."""

    def apply(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
        assert states.dtype == torch.bfloat16
        return mlm(F.linear(states, weight, bias), labels)

    kernels = SimpleNamespace(LinearCrossEntropy=SimpleNamespace(apply=apply))
    monkeypatch.setitem(sys.modules, "liebig.model.kernels.cross_entropy", kernels)
    backbone, states, labels = tiny(family), torch.randn(7, 32), torch.arange(7)
    if compiled:
        compile_traced(backbone)
    with torch.autocast("cpu", torch.bfloat16):
        plain = backbone.mlm_loss(states, labels)
        monkeypatch.setattr(backbone, "_fuses_loss", lambda _: True)
        fused = backbone.mlm_loss(states, labels)
    assert isinstance(fused, MaskedLoss)
    assert torch.equal(fused.loss, plain.loss)
    assert fused.correct == plain.correct


def test_the_lean_layer_keeps_states_in_half_precision_under_autocast() -> None:
    backbone, packed = tiny("bert"), random_row()
    exact = backbone(packed).last
    with torch.autocast("cpu", torch.bfloat16):
        half = backbone(packed, layers=(2,))
    assert half.layers[2].dtype == torch.bfloat16
    assert (half.last.float() - exact).abs().max() < 0.2


def test_dropout_of_the_lean_layer_is_dropout() -> None:
    torch.manual_seed(0)
    x = torch.ones(400, 300)
    noise = plain.draw_noise(2, x.device).flatten(0, 1)
    kept = [plain.dropped(x, one, 0.1) for one in noise]
    assert torch.equal(kept[0], plain.dropped(x, noise[0], 0.1))
    zeros = torch.stack([(k == 0).double() for k in kept])
    assert (zeros.mean(dim=(1, 2)) - 0.1).abs().max() < 0.003
    assert (kept[0][kept[0] != 0] - 1 / 0.9).abs().max() < 1e-6
    together = torch.corrcoef(zeros.flatten(1)) - torch.eye(4)
    assert together.abs().max() < 0.015
    beside = torch.corrcoef(torch.stack([zeros[0, :, 1:].flatten(), zeros[0, :, :-1].flatten()]))[0, 1]
    assert beside.abs() < 0.015
    assert torch.equal(plain.dropped(x, None, 0.1), x)


def test_what_lies_between_products_has_the_gradients_of_its_own_forward() -> None:
    torch.manual_seed(0)
    new, x, grad = (torch.randn(9, 12, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias, weight, shift = (torch.randn(12, dtype=torch.float64, requires_grad=True) for _ in range(3))
    for noise in (None, plain.draw_noise(1, x.device)[0, 1]):
        out, kept = plain.add_norm(new, bias, x, weight, shift, noise, 0.3, 1e-5, True)
        wanted = torch.autograd.grad(out, [x, new, weight, shift, bias], grad)
        assert kept is not None
        dx, dnew, sums = plain.add_norm_backward(grad, kept, weight, noise, 0.3, 1e-5)
        for mine, own in zip([dx, dnew, *sums], wanted):
            assert torch.allclose(mine, own, rtol=0, atol=1e-12)
    wanted = torch.autograd.grad(plain.bias_gelu(new, bias), [new, bias], grad)
    for mine, own in zip(plain.bias_gelu_backward(grad, new, bias), wanted):
        assert torch.allclose(mine, own, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_every_dropout_of_every_layer_has_noise_of_its_own(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def noted(x: Tensor, noise: Tensor | None, p: float) -> Tensor:
        if noise is not None:
            seen.append(tuple(noise.tolist()))
        return x

    monkeypatch.setattr(plain, "dropped", noted)
    backbone = tiny(family, dropout=0.1).train()
    for _ in range(2):
        backbone(random_row())
    assert len(seen) == len(set(seen)) == 2 * backbone.n_layers * (2 if family == "bert" else 1)


def test_the_same_random_state_drops_the_same_with_and_without_gradient() -> None:
    backbone, packed = tiny("bert"), random_row()
    backbone.set_dropout(0.5)
    backbone.train()
    states = []
    for mode in (torch.enable_grad, torch.no_grad):
        torch.manual_seed(7)
        with mode():
            states.append(backbone(packed).last.detach())
    assert torch.equal(*states)
    assert not torch.equal(states[0], backbone(packed).last)


def test_a_hook_on_a_layer_or_on_one_of_its_products_is_called() -> None:
    backbone, packed = tiny("bert"), random_row()
    called: list[str] = []
    layers = backbone.kind.layers(backbone.body)
    layers[1].register_forward_hook(lambda *_: called.append("layer"))
    layers[2].output.dense.register_forward_pre_hook(lambda *_: called.append("product"))
    ours = backbone(packed).last
    assert called == ["layer", "product"]
    assert torch.allclose(ours, own_states(backbone.model, packed), rtol=0, atol=1e-5)


def test_lean_layers_launch_their_kernels_on_the_device_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the current device, which need not be the one the model lies on (cuda:1)."""
    inside: list[Tensor] = []

    @contextmanager
    def device_of(x: Tensor) -> Iterator[None]:
        inside.append(x)
        yield
        inside.clear()

    def noted(*given: Any) -> Tensor:
        assert inside, "not on the row's device"
        return qkv_by_mask(*given)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(lean, "attend_qkv", noted)
    backbone, packed = tiny("bert"), random_row()
    backbone.run_layers(backbone.kind.layers(backbone.body), torch.randn(packed.total, 32), packed)
    assert not inside


def test_a_layer_in_evaluation_mode_drops_nothing_whatever_the_others_do() -> None:
    backbone, packed = tiny("bert", dropout=0.5), random_row()
    layers = backbone.kind.layers(backbone.body)
    x = torch.randn(packed.total, 32)
    exact = [backbone.run_layers(layers[:n], x, packed) for n in (1, 2)]
    backbone.train()
    layers[0].eval()
    assert torch.equal(backbone.run_layers(layers[:1], x, packed), exact[0])
    assert not torch.equal(backbone.run_layers(layers[:2], x, packed), exact[1])
    layers[0].train()
    layers[1].eval()
    assert torch.equal(backbone.run_layers(layers[1:2], exact[0], packed), exact[1])


def test_what_the_kernels_read_lies_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            assert all(x.is_contiguous() for x in given if isinstance(x, Tensor))
            return function(*given)

        return call

    kernels = ("add_norm", "add_norm_backward", "bias_gelu", "bias_gelu_backward", "column_sums")
    names = {name: checked(getattr(plain, name)) for name in kernels}
    monkeypatch.setattr(lean, "between", lambda _: SimpleNamespace(**names))
    backbone, packed = tiny("bert"), random_row()
    layers = backbone.kind.layers(backbone.body)
    x = torch.randn(32, packed.total).t().requires_grad_()
    backbone.run_layers(layers, x, packed).backward(torch.randn(32, packed.total).t())
    assert x.grad is not None


def test_a_gpu_without_triton_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("liebig.model.backbone.triton_is_here", lambda: False)
    assert "Triton is missing" in tiny("bert").describe()
    assert "Triton is missing" not in tiny("modernbert").describe()
