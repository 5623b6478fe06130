"""Layers as two CUDA graphs, one for each pass, so that the host launches two things instead of hundreds.

The kernels of a narrow model on few tokens take less time than the host needs to launch them. Here the passes of
`lean.py` are recorded once per size and replayed. Sizes differ from batch to batch, so a row is padded to the next of
few sizes by sequences of zeros; nothing reads them but their own attention, and their gradients are zero, so the
results are those of the row alone. A size is recorded when it comes for the second time.

All graphs of one stack of layers share one pool of memory: what a forward pass keeps lies there until its backward
pass. While one is waiting for it, and where rows are long or large enough to keep the device busy, layers run without
a graph.

T packed tokens, B sequences, D width.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from liebig.model.attention import is_short
from liebig.model.kernels.lean import (
    CHANGED,
    Activations,
    Halves,
    LeanLayer,
    LeanWeights,
    all_weights,
    differentiate,
    forward,
    halves,
    run_lean,
    versions,
)

MOST_WORK = 16_000_000_000
"""Tokens times squared width of a row: with more of it kernels take longer than their launches, on slow hosts too."""
FINE = 16_384
"""Tokens from which on padding would be felt, so that sizes lie closer to each other."""
MOST_GRAPHS = 16
"""Kept of one stack of layers; the least recently used go first."""
PATIENCE = 100
"""How often a size has to come again after there was no room for its graph, or another one took its place."""
MOST_STACKS = 4
"""Sets of layers whose graphs are kept; the oldest go first."""
FREE_SHARE = 0.25
"""Of the device's free memory, what a graph may take."""
KEPT = 34
"""Bytes that a layer keeps per token and unit of width, about."""


class Size(NamedTuple):
    """To what a row is padded."""

    tokens: int
    sequences: int
    longest: int


Key = tuple[Size, torch.dtype, bool, tuple[int, ...], tuple[tuple[float, float], ...]]


def padded_size(tokens: int, sequences: int, longest: int) -> Size:
    """Pads tokens by at most an eighth (a 32nd from FINE on), and adds enough sequences to hold the padding."""
    # Fewer sizes mean fewer graphs, and more padding: steps grow with the size. Padding is cut into sequences no longer
    # than the longest real one, so that attention's kernel and its grid stay those of the recorded size.
    step = _step(tokens)
    most = sequences + -(-step // longest)
    return Size(_up(tokens, step), _up(most, _step(most)), longest)


def _step(n: int) -> int:
    return max(8, 1 << max(0, n.bit_length() - (4 if n < FINE else 6)))


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


EVERY: weakref.WeakSet[Captures] = weakref.WeakSet()


def forget() -> None:
    """Give the memory of all graphs of this process back, which nothing else can: after it ran out, for instance."""
    for captures in EVERY:
        captures.clear()


class Captures:
    """The graphs of an encoder's layers, and of other layers that it runs. A copy has none of its own yet."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[int, ...], Stack] = {}
        EVERY.add(self)

    def clear(self) -> None:
        """Give the memory of all graphs back; they are recorded anew where they are needed."""
        self._stacks.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> Captures:
        return Captures()

    def __reduce__(self) -> tuple[type[Captures], tuple[()]]:
        return Captures, ()

    def run(
        self,
        layers: Sequence[LeanLayer],
        x_TD: Tensor,
        route: Mapping[str, Any],
        noise: Tensor | None,
        taps: Sequence[int],
    ) -> tuple[Tensor, ...]:
        """What `run_lean` computes, with gradient."""
        offsets, longest = route["packed_offsets"], route["packed_longest"]
        if not pays(x_TD.shape, layers, longest):
            return run_lean(layers, x_TD, route, noise, taps)
        stack = self._stack(layers)
        size = padded_size(x_TD.shape[0], offsets.shape[0] - 1, longest)
        graph = stack.graph(layers, size, x_TD, noise is not None, tuple(taps))
        if graph is None:
            return run_lean(layers, x_TD, route, noise, taps)
        weights = all_weights(layers)
        outputs: tuple[Tensor, ...] = Replayed.apply(x_TD, graph, stack.wait(), offsets, noise, *weights)
        return outputs

    def _stack(self, layers: Sequence[LeanLayer]) -> Stack:
        """By where the weights lie: graphs read them there."""
        # A weight that was replaced, not changed in place, has another address: its graphs would read the old one.
        places = tuple(weight.data_ptr() for weight in all_weights(layers))
        if places not in self._stacks:
            while len(self._stacks) >= MOST_STACKS:
                del self._stacks[next(iter(self._stacks))]
            self._stacks[places] = Stack()
        return self._stacks[places]


def pays(shape: Sequence[int], layers: Sequence[LeanLayer], longest: int) -> bool:
    """Whether the host is what a row of such a shape would wait for, and graphs can be made of its layers."""
    (tokens, width), first = shape, layers[0]
    one_type = len({weight.dtype for weight in first.weights}) == 1
    return tokens * width**2 <= MOST_WORK and one_type and is_short(longest, width // first.heads)


class Stack:
    """The graphs of some layers, which share memory: one forward pass at a time may wait for its backward pass."""

    def __init__(self) -> None:
        self._graphs: dict[Key, CapturedGraph] = {}  # the one that was used last comes last
        self._times: Counter[Key] = Counter()
        self._too_large: set[Key] = set()
        self._pool: Any = None
        self._flat: Tensor | None = None
        self._waiting: weakref.ref[Waiting] | None = None

    @property
    def busy(self) -> bool:
        return self._waiting is not None and self._waiting() is not None

    def wait(self) -> Waiting:
        """Say that a forward pass was made; until what is returned is gone, its memory is its own."""
        waiting = Waiting()
        self._waiting = weakref.ref(waiting)
        return waiting

    def graph(
        self, layers: Sequence[LeanLayer], size: Size, x: Tensor, drops: bool, taps: tuple[int, ...]
    ) -> CapturedGraph | None:
        """The graph of a size, recorded now if it came before; None where layers have to run as they are."""
        if self.busy:
            return None
        # All that is a constant inside a recorded graph; what changes from run to run is copied into its tensors.
        key = size, x.dtype, drops, taps, tuple(layer.rates for layer in layers)
        self._times[key] += 1
        graph = self._graphs.pop(key, None)
        if graph is None and self._times[key] > 1 and key not in self._too_large:
            graph = self._recorded(key, layers, x)
        if graph is not None:
            self._graphs[key] = graph
        return graph

    def _recorded(self, key: Key, layers: Sequence[LeanLayer], x: Tensor) -> CapturedGraph | None:
        size, _, drops, taps, _ = key
        # What the layers keep for the backward pass, and the weights in half precision with room for their gradients.
        kept = KEPT * size.tokens * x.shape[1] * len(layers)
        weights = sum(weight.nbytes for weight in all_weights(layers))
        if not make_room(x.device, kept + 2 * weights):
            self._times[key] = -PATIENCE
            return None
        while len(self._graphs) >= MOST_GRAPHS:
            oldest = next(iter(self._graphs))
            del self._graphs[oldest]
            self._times[oldest] = -PATIENCE
        if not self._graphs:
            self._pool = new_pool()  # a pool goes with the last of its graphs
        try:
            if self._flat is None:
                self._flat = layers[0].weights.up.new_empty(sum(w.numel() for w in all_weights(layers)))
            with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
                return CapturedGraph(layers, size, x, drops, taps, self._flat, self._pool)
        except torch.OutOfMemoryError:
            self._too_large.add(key)
            return None


class Waiting:
    """Lives as long as a forward pass waits for its backward pass."""


class CapturedGraph:
    """Both passes at one size, with the tensors that they read."""

    def __init__(
        self,
        layers: Sequence[LeanLayer],
        size: Size,
        like: Tensor,
        drops: bool,
        taps: tuple[int, ...],
        flat: Tensor,
        pool: Any,
    ) -> None:
        """`flat` takes the gradients of all parameters; a run copies them, so that graphs may share it."""
        self.layers, self.size, self.taps = layers, size, taps
        self.x = like.new_zeros(size.tokens, like.shape[1])
        self.grads = [torch.zeros_like(self.x) for _ in range(1 + len(taps))]
        # Where sequences of padding would end; `_place_sequences` moves them behind the row.
        self.steps = size.longest * torch.arange(1, size.sequences + 1, dtype=torch.int32, device=like.device)
        self.offsets = torch.zeros(size.sequences + 1, dtype=torch.int32, device=like.device)
        self._place_sequences(self.offsets[:1], 0)
        self.noise = self.offsets.new_zeros(len(layers), 2, 2) if drops else None
        self.flat = flat
        self._saved: list[Activations] = []
        self._halves: list[Halves] = []
        # The backward pass is recorded right behind the forward pass, whose saved tensors it reads in the shared pool.
        self.outputs, self._first = record(self._forward, pool)
        (self.dx,), self._second = record(self._backward, pool)
        self._saved.clear()  # a graph knows the places; until it is replayed others may use them
        self._halves.clear()

    def forward(self, x: Tensor, offsets: Tensor, noise: Tensor | None) -> tuple[Tensor, ...]:
        """States of the row, copied out of the graph's own memory."""
        # A graph reads and writes fixed addresses: inputs are copied in, it is replayed, and outputs are copied out,
        # since the next replay overwrites them.
        total = x.shape[0]
        _fill(self.x, x)
        self._place_sequences(offsets, total)
        if self.noise is not None and noise is not None:
            self.noise.copy_(noise)
        self._first()
        return tuple(states[:total].clone() for states in self.outputs)

    def backward(self, grads: Sequence[Tensor | None]) -> tuple[Tensor | None, list[Tensor | None]]:
        """Gradients of the row and of all parameters; none for layers behind the last state that has one."""
        weights = all_weights(self.layers)
        if all(grad is None for grad in grads):
            return None, [None] * len(weights)
        for place, grad in zip(self.grads, grads, strict=True):
            _fill(place, grad)
        self._second()
        total = next(len(grad) for grad in grads if grad is not None)
        # The recorded pass goes through all layers, with zeros where there is no gradient. Layers behind the last state
        # that has one get None, as autograd would give.
        ends = (len(self.layers), *self.taps)
        reached = max(end for end, grad in zip(ends, grads) if grad is not None)
        gradients = torch._utils._unflatten_dense_tensors(self.flat.clone(), weights)
        count = reached * len(LeanWeights._fields)
        return self.dx[:total].clone(), [*gradients[:count], *[None] * (len(weights) - count)]

    def _place_sequences(self, offsets: Tensor, total: int) -> None:
        """The row's sequences, then those of zeros up to the end, then empty ones."""
        count = offsets.shape[0]
        self.offsets[:count] = offsets
        rest = self.offsets[count:]
        torch.add(self.steps[: len(rest)], total, out=rest)
        rest.clamp_(max=self.size.tokens)

    def _forward(self) -> tuple[Tensor, ...]:
        route = {"packed_offsets": self.offsets, "packed_longest": self.size.longest}
        self._saved.clear()
        self._halves = halves(self.layers, self.x.dtype)
        return forward(self.x, self.layers, self._halves, route, self.noise, self.taps, self._saved)

    def _backward(self) -> tuple[Tensor]:
        saved = list(self._saved)
        dx, gradients = differentiate(self.grads, self.layers, self._halves, saved, self.noise, self.taps)
        assert dx is not None, "there are gradients"
        torch.cat([part.reshape(-1) for part in gradients if part is not None], out=self.flat)
        return (dx,)


def _fill(place: Tensor, rows: Tensor | None) -> None:
    """Rows, and zeros behind them."""
    count = 0 if rows is None else len(rows)
    if rows is not None:
        place[:count] = rows
    place[count:].zero_()


class Replayed(Function):
    """A graph's passes, for autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        graph: CapturedGraph,
        waiting: Waiting,
        offsets: Tensor,
        noise: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.graph, ctx.waiting, ctx.versions = graph, waiting, versions(graph.layers)
        ctx.set_materialize_grads(False)
        return graph.forward(x, offsets, noise)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        assert ctx.waiting is not None, "differentiated a second time"
        assert ctx.versions == versions(ctx.graph.layers), CHANGED
        dx, gradients = ctx.graph.backward(grads)
        ctx.waiting = None
        return dx, None, None, None, None, *gradients


def make_room(device: torch.device, needed: int) -> bool:
    """Whether a graph of about that many bytes leaves enough memory to others; if so, there is room for it then."""
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > FREE_SHARE * (free + unused):
        return False
    if needed > free:
        torch.cuda.empty_cache()  # what lies unused cannot be given back while a graph is recorded
    return True


def new_pool() -> Any:
    """Memory that some graphs share."""
    return torch.cuda.graph_pool_handle()


@cache
def recording_stream(device: int) -> torch.cuda.Stream:
    """The stream on which graphs are recorded; of a priority that no other of ours has, so that none is the same."""
    return torch.cuda.Stream(device, priority=-1)


def record(
    function: Callable[[], tuple[Tensor, ...]], pool: Any
) -> tuple[tuple[Tensor, ...], Callable[[], None]]:
    """A function's results, and what computes them again in their place.

    It runs once before, so that its kernels are compiled. Another thread may use the device meanwhile, to copy batches
    for instance. cuBLAS keeps its scratch memory for a stream: it is cleared before and after, so that it lies in the
    pool of this graph, and no graph reads or frees that of another.
    """
    function()
    graph, stream = torch.cuda.CUDAGraph(), recording_stream(torch.cuda.current_device())
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            results = function()
        except BaseException:
            with suppress(RuntimeError):  # what went wrong matters, not that the graph is not whole
                graph.capture_end()
            raise
        graph.capture_end()
    torch._C._cuda_clearCublasWorkspaces()
    graph.replay()
    return results, graph.replay
