"""The model's side: packed rows in, vectors of a window out, without waiting for the device.

Rows are copied to the device while the row before is computed; vectors of a window stay there until the window is
done and come back as one array, while the next window is already under way. Cost: the model's, on real tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from liebig.encode import rows
from liebig.encode.cpu import LeanForward, supports
from liebig.encode.rows import Cut, Frame, Longs, Pieces
from liebig.encode.tokens import Batch
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.text.layout import RoleLayout

Floats = NDArray[np.float32]
Long = Literal["first", "max", "mean"]
TOKENS_CPU, TOKENS_ONNX, TOKENS_CUDA = 1024, 512, 65_536  # of a row


PackedRow = tuple[Longs, Longs, Longs]  # tokens, offsets, and the numbers of the pieces


def nothing(tokens: int) -> None:
    """Tells nobody."""


class Model(Protocol):
    """Whatever makes vectors of packed rows."""

    width: int

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Set going the vectors of `count` pieces, given as rows of tokens, offsets and the pieces' numbers.

        What is returned waits for them; `done` is told the tokens of every row that was computed or set going.
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

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        out_PD = torch.empty(count, self.width, device=self._device)
        if self._threads == 1:
            for tokens, offsets, numbers in packed:
                done(self._row(tokens, offsets, numbers, out_PD))
        else:
            with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                for size in pool.map(lambda row: self._row(row[0], row[1], row[2], out_PD), packed):
                    done(size)
        return self._fetch(out_PD)

    @torch.inference_mode()
    def _row(self, tokens: Longs, offsets: Longs, numbers: Longs, out_PD: Tensor) -> int:
        row = Packed.from_numpy(tokens, offsets)
        row = row.pin().to(self._device, non_blocking=True) if self._cuda else row
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            vectors = self.encoder.vectors(self._states(row), row, self._skip).float()
        vectors = F.normalize(vectors, dim=-1) if self._unit else vectors
        out_PD[torch.from_numpy(numbers).to(self._device, non_blocking=True)] = vectors
        return len(tokens)

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

    def packed(self, batch: Batch, pieces: Pieces) -> Iterator[PackedRow]:
        """The rows of a window, longest pieces first."""
        sizes = rows.lengths(pieces, self.frame)
        for chosen in rows.by_budget(sizes, self.budget):
            yield (*rows.row(batch.window, pieces, self.frame, chosen), chosen)

    def finish(self, batch: Batch, pieces: Pieces, vectors_PD: Floats) -> Encoded:
        """Ids and vectors of a window: of its pieces, or of its texts."""
        cut = rows.cut(batch.window, pieces)
        if self.long == "max":
            return Encoded(rows.numbered(batch.ids, pieces), vectors_PD, cut)
        if self.long == "mean":
            vectors_PD = rows.mean_of_pieces(vectors_PD, pieces, len(batch.ids))
            if self.unit:
                vectors_PD = vectors_PD / np.maximum(np.linalg.norm(vectors_PD, axis=1, keepdims=True), 1e-12)
        return Encoded(batch.ids, vectors_PD, cut)


class Encoded(NamedTuple):
    """Ids and vectors of a window, and what was cut off its texts."""

    ids: list[str]
    vectors: Floats
    cut: Cut


def encode(
    batches: Iterable[Batch], model: Model, plan: Plan, advance: Callable[[float], None] = lambda texts: None
) -> Iterator[Encoded]:
    """Ids and vectors, window by window, in order; one window is computed while the one before is fetched.

    `advance` is told how many texts are done, row by row in proportion to their tokens.
    """
    waiting: tuple[Batch, Pieces, Callable[[], Floats]] | None = None
    for batch in batches:
        pieces = plan.pieces(batch)
        done = _in_texts(advance, len(batch.ids), int(rows.lengths(pieces, plan.frame).sum()))
        started = model.start(plan.packed(batch, pieces), len(pieces.text), done)
        if waiting is not None:
            yield plan.finish(waiting[0], waiting[1], waiting[2]())
        waiting = (batch, pieces, started)
    if waiting is not None:
        yield plan.finish(waiting[0], waiting[1], waiting[2]())


def _in_texts(advance: Callable[[float], None], texts: int, tokens: int) -> Callable[[int], None]:
    """Tokens of a window told as texts."""
    return lambda some: advance(some * texts / tokens)


def frame_of(layout: RoleLayout) -> Frame:
    """The special tokens and the prompt of a layout, for texts that may become several pieces."""
    template = layout.tokenizer.template
    parts = (template.before, template.after, layout.prompt_ids)
    before, after, again = (np.array(ids, np.int32) for ids in parts)
    return Frame(before, after, again, layout.length)
