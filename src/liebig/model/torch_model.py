"""An encoder run by torch on packed rows: what `Encoder.encode` and the engine in `search/embed.py` share.

On a CPU every core has rows of its own, so none waits for another, and a BERT-like model goes through a lean forward
(`cpu_forward.py`). On a GPU rows are copied while the row before is computed, and vectors come back while the next
rows are under way.

P pieces of text, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from liebig.model.cpu_forward import LeanForward, supports
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.model.packed_rows import Floats, Longs, PackedRow, nothing
from liebig.ragged import Ragged


class TorchModel:
    """An encoder run by torch, on its device; on a CPU every core has rows of its own, so none waits for another."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        half: bool | None = None,
        unit: bool = False,
        skip: int = 0,
        lean: bool = True,
    ) -> None:
        """`lean` allows the lean forward, which copies weights first: for a row or two that would cost more."""
        self.encoder, self.width = encoder.eval(), encoder.width
        self._unit, self._skip = unit, skip
        self._device = encoder.device
        self._cuda = self._device.type == "cuda"
        self._half = encoder.in_half(half)
        self._threads = 1 if self._cuda else torch.get_num_threads()
        lean = lean and not self._half and supports(encoder.backbone)
        self._states = LeanForward(encoder.backbone) if lean else lambda row: encoder.backbone(row).last

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        out_PD = torch.empty(count, self.width, device=self._device)
        if self._threads == 1:
            for tokens, numbers in packed:
                done(self._row(tokens, numbers, out_PD))
        else:
            with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                for size in pool.map(lambda row: self._row(row[0], row[1], out_PD), packed):
                    done(size)
        return self._fetch(out_PD)

    @torch.inference_mode()
    def _row(self, tokens: Ragged, numbers: Longs, out_PD: Tensor) -> int:
        row = Packed.from_ragged(tokens)
        row = row.pin().to(self._device, non_blocking=True) if self._cuda else row
        vectors = self.encoder.row_vectors(
            row, self._states, unit=self._unit, half=self._half, skip=self._skip
        )
        out_PD[torch.from_numpy(numbers).to(self._device, non_blocking=True)] = vectors
        return len(tokens.values)

    def _fetch(self, out_PD: Tensor) -> Callable[[], Floats]:
        """Copy back as soon as these vectors are there, not when all that follows is."""
        if not self._cuda:
            return out_PD.numpy
        host = torch.empty(out_PD.shape, pin_memory=True)
        host.copy_(out_PD, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(self._device))

        def wait() -> Floats:
            done.synchronize()
            return np.array(host.numpy())

        return wait
