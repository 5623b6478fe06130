"""Heads on packed rows compute what their papers and the released code say, written out naively here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from liebig.base.errors import ModelError
from liebig.methods import head_classes
from liebig.methods.condenser import CondenserHead
from liebig.methods.cotmae import CausalDecoder, CotmaeDecoder, window_rows
from liebig.model.backbone import Backbone
from liebig.model.folder import HEADS, load_heads, read_kinds, save_heads
from liebig.model.packed import Packed
from tests.worlds.models import PACKED, random_row, tiny


def spans(packed: Packed) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(packed.bounds[:-1], packed.bounds[1:])]


@pytest.mark.parametrize("family", PACKED)
def test_the_condenser_head_reads_late_cls_and_early_tokens(family: str) -> None:
    backbone, packed = tiny(family).double(), random_row()
    head = CondenserHead(backbone, 2)
    hidden = backbone(packed, layers=(2,))
    ours = head(backbone, hidden.last, hidden.layers[2], packed)
    for i, (a, b) in enumerate(spans(packed)):
        x = torch.cat([hidden.last[a : a + 1], hidden.layers[2][a + 1 : b]])
        alone = backbone.finish(backbone.run_layers(list(head.layers), x, packed.slice(i, i + 1)))
        assert torch.allclose(ours[a:b], alone, atol=1e-11 if family != "modernbert" else 1e-5)


def test_the_condenser_head_sends_gradient_to_early_layers_and_late_cls_only() -> None:
    backbone, packed = tiny("bert"), random_row()
    hidden = backbone(packed, layers=(2,))
    late, early = (x.detach().requires_grad_() for x in (hidden.last, hidden.layers[2]))
    CondenserHead(backbone)(backbone, late, early, packed).pow(2).sum().backward()
    assert late.grad is not None
    assert early.grad is not None
    is_first = packed.positions == 0
    assert late.grad[is_first].any(1).all()
    assert not late.grad[~is_first].any()
    assert early.grad[~is_first].any(1).all()
    assert not early.grad[is_first].any()


@pytest.mark.parametrize("family", PACKED)
def test_the_cotmae_decoder_reads_embeddings_with_the_others_vector_in_front(family: str) -> None:
    backbone, packed = tiny(family).double(), random_row()
    decoder = CotmaeDecoder(backbone, 2)
    vectors = torch.randn(len(packed), backbone.width, dtype=torch.float64)
    ours = decoder(backbone, vectors, packed)
    for i, (a, b) in enumerate(spans(packed)):
        one = packed.slice(i, i + 1)
        x = torch.cat([vectors[i : i + 1], backbone.embed(one)[1:]])
        alone = backbone.finish(backbone.run_layers(list(decoder.layers), x, one))
        assert torch.allclose(ours[a:b], alone, atol=1e-11 if family != "modernbert" else 1e-5)


def masked_gpt2(decoder: CausalDecoder, x: Tensor) -> Tensor:
    """The causal decoder of one sequence by a full attention mask: row i keeps columns 0 and i-2 … i."""
    n = len(x)
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        mask[i, 0] = True
        mask[i, max(0, i - decoder.window + 1) : i + 1] = True
    for layer in decoder.layers:
        assert isinstance(layer.heads, int)
        q, k, v = layer.qkv(layer.norm_attention(x)).view(n, 3, layer.heads, -1).permute(1, 2, 0, 3)  # type: ignore[operator]
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
        x = x + layer.mix((scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1))  # type: ignore[operator]
        wide = nn.functional.gelu(layer.up(layer.norm_feed(x)), approximate="tanh")  # type: ignore[operator]
        x = x + layer.down(wide)  # type: ignore[operator]
    return decoder.norm(x)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_causal_decoder_sees_position_0_and_a_window_of_three(layers: int) -> None:
    backbone, packed = tiny("bert").double(), random_row((1, 2, 3, 4, 9, 6))
    decoder = CausalDecoder(backbone, layers).double().eval()
    vectors = torch.randn(len(packed), backbone.width, dtype=torch.float64, requires_grad=True)
    ours = decoder(backbone, vectors, packed)
    reference = torch.cat(
        [
            masked_gpt2(decoder, torch.cat([vectors[i : i + 1], backbone.embed(packed.slice(i, i + 1))[1:]]))
            for i in range(len(packed))
        ]
    )
    assert torch.allclose(ours, reference, rtol=0, atol=1e-12)
    weights = [vectors, *decoder.parameters()]
    got, expected = (torch.autograd.grad(x.sin().sum(), weights) for x in (ours, reference))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(got, expected))


def test_a_window_never_holds_a_position_twice_or_another_sequences() -> None:
    packed = random_row((1, 2, 5, 3))
    rows, seen = window_rows(packed, 3)
    for t, (a, b) in ((t, span) for span in spans(packed) for t in range(*span)):
        visible = rows[t][seen[t]].tolist()
        assert sorted(visible) == sorted({a, *range(max(a, t - 2), t + 1)})
        assert all(a <= row < b for row in rows[t].tolist())


def test_the_causal_decoder_begins_as_gpt2_does() -> None:
    decoder = CausalDecoder(tiny("bert", width=64), layers=2)
    for layer in decoder.layers:
        for linear, std in ((layer.qkv, 0.02), (layer.up, 0.02), (layer.mix, 0.01), (layer.down, 0.01)):
            assert isinstance(linear, nn.Linear)
            assert 0.9 * std < linear.weight.std() < 1.1 * std
            assert not linear.bias.any()


def all_heads(backbone: Backbone) -> dict[str, nn.Module]:
    return {
        "condenser": CondenserHead(backbone, 2),
        "decoder": CotmaeDecoder(backbone, 1),
        "causal": CausalDecoder(backbone, 2, window=4),
    }


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_saved_heads_are_the_heads(family: str, tmp_path: Path) -> None:
    backbone = tiny(family)
    heads = all_heads(backbone)
    save_heads(tmp_path / HEADS, heads)
    loaded = load_heads(tmp_path, backbone, head_classes())
    assert {name: type(head) for name, head in loaded.items()} == {
        name: type(head) for name, head in heads.items()
    }
    for name, head in heads.items():
        before, after = head.state_dict(), loaded[name].state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)
    assert read_kinds(tmp_path)["causal"] == {"kind": "causal", "layers": 2, "window": 4}


def test_a_folder_without_heads_has_none(tmp_path: Path) -> None:
    assert load_heads(tmp_path, tiny("bert"), head_classes()) == {}


def test_heads_of_another_size_are_refused(tmp_path: Path) -> None:
    save_heads(tmp_path / HEADS, {"condenser": CondenserHead(tiny("bert"))})
    with pytest.raises(ModelError, match="cannot be read"):
        load_heads(tmp_path, tiny("bert", width=16), head_classes())


def test_the_same_heads_give_the_same_bytes(tmp_path):
    heads = {"condenser": CondenserHead(tiny("bert"))}
    for number in range(8):  # safetensors drew the order of several fields anew for each file
        save_heads(tmp_path / f"{number}", heads)
    assert len({(tmp_path / f"{number}").read_bytes() for number in range(8)}) == 1
