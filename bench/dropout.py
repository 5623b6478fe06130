"""What dropout by a counter would cost: torch's own, the hash of a place that the lean layers use, and a hash of keys.

A mask that is a function of (noise, key of the token, column) is the same however a batch is cut into chunks and
processes, where today's is a function of (noise, row of the chunk, column). This measures forward and backward of the
dropout alone, `--tokens` x `--width`; compiled on a GPU, as it stands on a CPU. `ratio` is the keyed hash over torch's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.model.kernels import plain

Dropout = Callable[[Tensor], Tensor]


def keyed(x_TD: Tensor, keys_T: Tensor, noise: Tensor, p: float) -> Tensor:
    """`plain.dropped` with a key for each token in the place of its row; the same finaliser."""
    columns = torch.arange(x_TD.shape[1], dtype=torch.int32, device=x_TD.device)
    h = ((keys_T[:, None] ^ noise[0]) + columns) * -1640531535
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF) ^ noise[1]) * -1028477387
    h = (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF
    return torch.where(h >= int(p * 2**31), x_TD / (1 - p), 0.0)


def token_keys(sequences: Tensor, positions: Tensor) -> Tensor:
    """A key for each token from the number of its sequence in the whole batch and its place in it."""
    h = sequences * -1640531535 + positions
    h = (h ^ ((h >> 15) & 0x1FFFF)) * -2048144789
    return h ^ ((h >> 16) & 0xFFFF)


def seconds(run: Dropout, x: Tensor, repeats: int) -> float:
    """The best of several forward and backward passes; on a CPU of processor time, whatever else runs there."""
    best, clock = float("inf"), time.perf_counter if x.is_cuda else time.process_time
    for _ in range(repeats + 2):
        x.grad = None
        if x.is_cuda:
            torch.cuda.synchronize()
        start = clock()
        run(x).sum().backward()
        if x.is_cuda:
            torch.cuda.synchronize()
        best = min(best, clock() - start)
    return best


def main() -> None:
    """Measure, and check that the keyed mask does not depend on how the tokens are cut."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    total, p = options.tokens, options.rate
    x = torch.randn(total, options.width, device=device, requires_grad=True)
    noise = plain.draw_noise(1, device)[0, 0]
    rows = torch.arange(total, dtype=torch.int32, device=device)
    keys = token_keys(rows // 128, rows % 128)
    half = total // 2
    whole = keyed(x.detach(), keys, noise, p)
    parts = torch.cat([keyed(x.detach()[s], keys[s], noise, p) for s in (slice(half), slice(half, None))])
    assert torch.equal(whole, parts), "the mask depends on the cut"
    print(
        f"{device.type}, {total:,} x {options.width}, dropped {(whole == 0).float().mean().item():.4f} of {p}"
    )
    ways: dict[str, Dropout] = {
        "torch": lambda x: F.dropout(x, p),
        "hash of the place": lambda x: plain.dropped(x, noise, p),
        "hash of keys": lambda x: keyed(x, keys, noise, p),
    }
    times = {}
    for name, way in ways.items():
        run = torch.compile(way) if device.type == "cuda" else way
        times[name] = seconds(run, x, options.repeats)
        print(f"{name:<18} {1000 * times[name]:8.2f} ms")
    print(f"ratio: {times['hash of keys'] / times['torch']:.2f}")


if __name__ == "__main__":
    main()
