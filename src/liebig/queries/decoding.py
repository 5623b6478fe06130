"""From passages to the tokens of their queries: batches by length and budget, each passage encoded once.

Passages are sorted by length and cut into batches of at most `budget` padded tokens; a batch is encoded in pieces, then
all its queries are written together. A batch that does not fit into memory is halved: what is written does not
depend on it. Cost: the encoder once per passage, the decoder once per token of every query.

P passages, C queries of a passage, L passage tokens, T query tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base import rng
from liebig.base.errors import ResourceError
from liebig.queries.generator import Generator
from liebig.queries.sampling import Choose, greedy, sample, sampling

BUDGET_CPU, BUDGET_CUDA = 8192, 1 << 19
ENCODE = 1 << 17  # tokens encoded at once
ROWS = 1 << 16  # queries written at once, at the most: attention's kernels number them by 16 bits
EVERY = 4  # steps between two counts of ended rows, on a GPU
UNIT = 8  # passages are padded to a multiple of it: attention's kernels want it
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Decoding:
    """How queries are chosen: sampled, or greedily where `top_k` is 1."""

    count: int = 5
    top_k: int | None = 25
    top_p: float = 0.95
    temperature: float = 1.0

    @property
    def choose(self) -> Choose:
        return greedy if self.top_k == 1 else sampling(self.top_k, self.top_p, self.temperature)


class Engine:
    """A generator made ready on a device, in a precision."""

    def __init__(
        self, generator: Generator, device: torch.device, precision: str = "fp32", budget: int | None = None
    ) -> None:
        self.generator, self.device = generator, device
        self.budget = budget or (BUDGET_CUDA if device.type == "cuda" else BUDGET_CPU)
        self.model = generator.model.to(device=device, dtype=DTYPES[precision]).eval()
        self.encoder = self.model.get_encoder()
        self.decoder = generator.decoder

    def write(
        self, sources: Sequence[Sequence[int]], keys: NDArray[np.uint64], method: Decoding
    ) -> list[Any]:
        """C lists of tokens for each source, ends left out; `keys` holds the random key of each source."""
        results: list[Any] = [None] * len(sources)
        lengths = np.array([len(source) for source in sources], np.int64)
        with _kernels(self.device), torch.inference_mode():
            for some in by_padded_budget(lengths, self.budget, ROWS // method.count):
                for i, rows in zip(some.tolist(), self._fitting(sources, some, keys, method)):
                    results[i] = rows
        return results

    def _fitting(
        self, sources: Sequence[Sequence[int]], some: NDArray[np.int64], keys: Any, method: Decoding
    ) -> list[Any]:
        """One batch, in halves if memory does not suffice."""
        try:
            return self._batch([sources[i] for i in some], keys[some], method)
        except torch.OutOfMemoryError as error:
            if len(some) == 1:
                raise ResourceError(
                    "one passage does not fit into memory", fix="use a smaller model"
                ) from error
        torch.cuda.empty_cache()
        self.budget = max(1, self.budget // 2)
        half = len(some) // 2
        return [
            row for part in (some[:half], some[half:]) for row in self._fitting(sources, part, keys, method)
        ]

    def _batch(
        self, sources: Sequence[Sequence[int]], keys: NDArray[np.uint64], method: Decoding
    ) -> list[Any]:
        marks = self.generator.marks
        memory = self.decoder.remember(*self._encode(sources))
        every = EVERY if self.device.type == "cuda" else 1
        numbers = uniform(keys, method.count, marks.length).to(self.device)
        out = sample(self.decoder, memory, numbers, method.choose, marks, every)
        return _cut(out.cpu().numpy(), marks.end)

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """States P x L x D and lengths P."""
        lengths = torch.tensor([len(source) for source in sources])
        longest = -(-int(lengths.max()) // UNIT) * UNIT
        real = torch.arange(longest) < lengths[:, None]
        tokens = torch.full(real.shape, self.generator.pad, dtype=torch.long)
        tokens[real] = torch.from_numpy(np.fromiter(chain.from_iterable(sources), np.int64))
        at_once = max(1, ENCODE // longest)
        parts = [
            self.encoder(
                input_ids=tokens[i : i + at_once].to(self.device),
                attention_mask=real[i : i + at_once].long().to(self.device),
            ).last_hidden_state
            for i in range(0, len(sources), at_once)
        ]
        return torch.cat(parts), lengths.to(self.device)


def passage_keys(seed: int, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The random key of each passage, from the hash of its id."""
    return np.atleast_1d(rng.mix(rng.key(seed), hashes))


def uniform(keys: NDArray[np.uint64], count: int, length: int) -> Tensor:
    """The uniform number of every passage, query and position, P x C x T."""
    queries = rng.mix(keys[:, None], np.arange(count)[None])
    return torch.from_numpy(rng.uniform(queries[:, :, None], np.arange(length)[None, None]))


def by_padded_budget(
    lengths: NDArray[np.int64], budget: int, most: int = ROWS
) -> Iterator[NDArray[np.int64]]:
    """Numbers of sequences, longest first, in groups of at most `most` and `budget` tokens when padded."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        room = max(1, min(most, budget // max(1, int(lengths[order[start]]))))
        yield order[start : start + room]
        start += room


def _cut(tokens_PCT: NDArray[np.int64], end: int) -> list[Any]:
    """Lists of tokens up to their ends."""
    stops = np.where((ended := tokens_PCT == end).any(axis=2), ended.argmax(axis=2), tokens_PCT.shape[2])
    return [
        [row[:stop].tolist() for row, stop in zip(rows, ends)]
        for rows, ends in zip(tokens_PCT, stops.tolist())
    ]


def _kernels(device: torch.device) -> AbstractContextManager[Any]:
    """cuDNN's attention plans anew for every shape, and here every step has a shape of its own."""
    if device.type != "cuda":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    context: Callable[..., AbstractContextManager[Any]] = sdpa_kernel
    return context([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
