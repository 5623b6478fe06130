"""On CUDA: recorded layers give the states and gradients of the layers as they are, within bf16 error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from liebig.model.backbone import Backbone
from liebig.model.kernels import captured
from liebig.model.packed import Packed

pytestmark = pytest.mark.gpu


def steps(backbone: Backbone, rows: list[Packed]) -> tuple[list[list[Tensor]], list[str]]:
    """States and gradients of each row, a change of the weights after each; and by what they were computed."""
    found, kinds = [], []
    parameters = [p for name, p in backbone.body.named_parameters() if "pooler" not in name]
    for seed, packed in enumerate(rows):
        torch.manual_seed(seed)
        with torch.autocast("cuda", torch.bfloat16):
            hidden = backbone(packed, layers=(2,))
        kinds.append(type(hidden.last.grad_fn).__name__)
        states = [hidden.last.float(), hidden.layers[2].float()]
        torch.manual_seed(seed)
        loss = sum((one * torch.randn_like(one)).sum() for one in states)
        found.append([*states, *torch.autograd.grad(loss, parameters)])
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(1.01)
    return [[one.detach() for one in row] for row in found], kinds


def rows_of(*counts: int) -> list[Packed]:
    """Rows of that many sequences of drawn lengths."""
    generator, rows = torch.Generator().manual_seed(0), []
    for count in counts:
        lengths = torch.randint(3, 100, (count,), generator=generator).tolist()
        lists = [torch.randint(5, 200, (n,), generator=generator).tolist() for n in lengths]
        rows.append(Packed.from_lists(lists).to("cuda"))
    return rows


def assert_same(own: list[list[Tensor]], mine: list[list[Tensor]]) -> None:
    for some, others in zip(own, mine, strict=True):
        for one, two in zip(some, others, strict=True):
            # Both are rounded to bf16 between products of other sizes, and gradients sum thousands of such errors.
            assert float((one - two).norm() / one.norm().clamp(min=1e-6)) < 2e-2


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_recorded_layers_compute_what_they_compute_as_they_are(dropout: float) -> None:
    rows = rows_of(60, 61, 60, 62, 20, 60)
    kinds = []
    found = []
    for recorded in (False, True):
        backbone = Backbone.create(4, 128, 2, 200, dropout=dropout, seed=0).to("cuda").train()
        if recorded:
            backbone.compile(backend="eager")
        values, names = steps(backbone, rows)
        found.append(values)
        kinds.append(names)
    assert set(kinds[0]) == {"LayersBackward"}
    assert "ReplayedBackward" in kinds[1]
    assert_same(*found)


def test_graphs_that_go_leave_those_of_other_layers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two encoders in turn, with room for one graph each, so that every size takes the place of another."""
    monkeypatch.setattr(captured, "MOST_GRAPHS", 1)
    monkeypatch.setattr(captured, "PATIENCE", 0)
    long, short = rows_of(60, 20)
    rows = [long, long, short, short, short] * 3
    plain, recorded = (
        [Backbone.create(4, 128, 2, 200, seed=seed).to("cuda") for seed in (0, 1)] for _ in range(2)
    )
    for backbone in recorded:
        backbone.compile(backend="eager")
    kinds = []
    for packed in rows:
        found = []
        for backbones in (plain, recorded):
            values = [steps(backbone, [packed]) for backbone in backbones]
            found.append([states for [states], _ in values])
            kinds += [name for _, [name] in values]
        torch.cuda.empty_cache()
        assert_same(*found)
    assert kinds.count("ReplayedBackward") > len(rows) // 2
