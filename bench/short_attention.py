"""Our attention kernels for short sequences against torch's variable-length kernel, on one GPU.

The same queries, keys and values in bf16: sequences of natural lengths (mean 82, at most 128). Forward and backward
are timed apart, the mean of many calls after a few. The last line is the ratio of both passes together.

    python bench/short_attention.py                (12 heads of 64)
    python bench/short_attention.py --width 32     (12 heads of 32)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from liebig.model.attention import attend_varlen
from usual import natural_lengths

CALLS, FIRST = 200, 20
LONGEST = 128


def milliseconds(call: Callable[[], object]) -> float:
    """Time of one call on the device."""
    for _ in range(FIRST):
        call()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(CALLS):
        call()
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) / CALLS


def timed(attend: Callable[[Tensor], Tensor], qkv: Tensor) -> tuple[float, float]:
    """Forward, and backward alone."""
    with torch.no_grad():
        forward = milliseconds(lambda: attend(qkv))
    out = attend(qkv)
    grad = torch.randn_like(out)
    return forward, milliseconds(lambda: torch.autograd.grad(out, qkv, grad, retain_graph=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=799)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, choices=[16, 32, 64])
    options = parser.parse_args()
    from liebig.model.kernels.short_attention import short_attention  # needs triton

    torch.manual_seed(0)
    lengths = natural_lengths(options.sequences, LONGEST, 82)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).int().cuda()
    shape = (int(lengths.sum()), 3, options.heads, options.width)
    qkv = torch.randn(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    scale = options.width**-0.5

    def varlen(x: Tensor) -> Tensor:
        q, k, v = x.unbind(1)
        return attend_varlen(q, k, v, offsets, LONGEST, scale, -1)

    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "torch, varlen": varlen,
        "liebig, short": lambda x: short_attention(x, offsets, LONGEST, scale),
    }
    mean = float(lengths.float().mean())
    print(f"{options.sequences} sequences, mean {mean:.0f}, {options.heads} heads of {options.width}")
    total = {}
    for name, attend in ways.items():
        forward, backward = timed(attend, qkv)
        total[name] = forward + backward
        print(f"{name}: forward {forward:.3f} ms, backward {backward:.3f} ms")
    print(f"ratio: {total['torch, varlen'] / total['liebig, short']:.2f}")


if __name__ == "__main__":
    main()
