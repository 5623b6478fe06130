"""The model's side: packed rows in, vectors of a window out, without waiting for the device.

Rows are copied to the device while the row before is computed; vectors of a window stay there until the window is
done and come back as one array, while the next window is already under way. Cost: the model's, on real tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from liebig.encode import rows
from liebig.encode.cpu import LeanForward, supports
from liebig.encode.rows import Frame, Longs, Pieces
from liebig.encode.tokens import Batch
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed

Floats = NDArray[np.float32]
Long = Literal["first", "max", "mean"]
TOKENS_CPU, TOKENS_ONNX, TOKENS_CUDA = 1024, 512, 65_536  # of a row


class Model(Protocol):
    """Whatever makes vectors of packed rows."""

    width: int

    def start(self, packed: Iterable[tuple[Longs, Longs, Longs]], count: int) -> Callable[[], Floats]:
        """Set going the vectors of `count` pieces, given as rows of tokens, offsets and the pieces' numbers.

        What is returned waits for them.
        """


class TorchModel:
    """An encoder run by torch, on its device; on a CPU every core has rows of its own, so none waits for another."""

    def __init__(
        self, encoder: Encoder, *, half: bool | None = None, unit: bool = False, skip: int = 0
    ) -> None:
        self.encoder, self.width = encoder.eval(), encoder.width
        self._unit, self._skip = unit, skip
        self._device = encoder.device
        self._cuda = self._device.type == "cuda"
        full = encoder.backbone.dtype == torch.float32
        self._half = full and (self._cuda if half is None else half)
        self._threads = 1 if self._cuda else torch.get_num_threads()
        lean = not self._half and supports(encoder.backbone)
        self._states = LeanForward(encoder.backbone) if lean else lambda row: encoder.backbone(row).last

    def start(self, packed: Iterable[tuple[Longs, Longs, Longs]], count: int) -> Callable[[], Floats]:
        out_PD = torch.empty(count, self.width, device=self._device)
        if self._threads == 1:
            for tokens, offsets, numbers in packed:
                self._row(tokens, offsets, numbers, out_PD)
        else:
            with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(lambda row: self._row(row[0], row[1], row[2], out_PD), packed))
        return self._fetch(out_PD)

    @torch.inference_mode()
    def _row(self, tokens: Longs, offsets: Longs, numbers: Longs, out_PD: Tensor) -> None:
        row = Packed.from_numpy(tokens, offsets)
        row = row.pin().to(self._device, non_blocking=True) if self._cuda else row
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            vectors = self.encoder.vectors(self._states(row), row, self._skip).float()
        vectors = F.normalize(vectors, dim=-1) if self._unit else vectors
        out_PD[torch.from_numpy(numbers).to(self._device, non_blocking=True)] = vectors

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


@dataclass(frozen=True)
class Plan:
    """How windows become rows: the frame of a piece, the budget of a row, and what happens to long texts."""

    frame: Frame
    budget: int
    long: Long = "first"
    overlap: int = 0
    most: int | None = None
    unit: bool = False

    def pieces(self, batch: Batch) -> Pieces:
        """The pieces of a window."""
        if self.long == "first":
            return rows.first_pieces(batch.window, self.frame)
        return rows.all_pieces(batch.window, self.frame, self.overlap, self.most)

    def packed(self, batch: Batch, pieces: Pieces) -> Iterator[tuple[Longs, Longs, Longs]]:
        """The rows of a window, longest pieces first."""
        sizes = rows.lengths(pieces, self.frame)
        for chosen in rows.by_budget(sizes, self.budget):
            yield (*rows.row(batch.window, pieces, self.frame, chosen), chosen)

    def finish(self, batch: Batch, pieces: Pieces, vectors_PD: Floats) -> tuple[list[str], Floats]:
        """Ids and vectors of a window: of its pieces, or of its texts."""
        if self.long == "max":
            return rows.numbered(batch.ids, pieces), vectors_PD
        if self.long == "mean":
            vectors = rows.mean_of_pieces(vectors_PD, pieces, len(batch.ids))
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            return batch.ids, vectors / np.maximum(norms, 1e-12) if self.unit else vectors
        return batch.ids, vectors_PD


def encode(batches: Iterable[Batch], model: Model, plan: Plan) -> Iterator[tuple[list[str], Floats]]:
    """Ids and vectors, window by window, in order; one window is computed while the one before is fetched."""
    waiting: tuple[Batch, Pieces, Callable[[], Floats]] | None = None
    for batch in batches:
        pieces = plan.pieces(batch)
        started = model.start(plan.packed(batch, pieces), len(pieces.text))
        if waiting is not None:
            yield plan.finish(waiting[0], waiting[1], waiting[2]())
        waiting = (batch, pieces, started)
    if waiting is not None:
        yield plan.finish(waiting[0], waiting[1], waiting[2]())


def frame_of(encoder: Encoder, prompt: str | None) -> Frame:
    """The special tokens and the prompt of an encoder."""
    template = encoder.tokenizer.template
    text = encoder.prompt_text(prompt)
    again = encoder.tokenizer.encode(text.lower() if encoder.lowercase else text) if text else []
    before, after, repeated = (np.array(ids, np.int32) for ids in (template.before, template.after, again))
    return Frame(before, after, repeated, encoder.max_length)


def skip_of(encoder: Encoder, frame: Frame) -> int:
    """Tokens that pooling leaves out, where the model leaves out its prompt."""
    return 0 if encoder.pool_prompt or not len(frame.again) else len(frame.before) + len(frame.again)
