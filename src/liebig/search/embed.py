"""The one way from texts to vectors: tokens, packed rows, the model, vectors in the order of the texts.

`Embedder` is an encoder with the layouts of its roles and the forward that suits it: torch on its device
(`model/encoder.py`, with a lean forward on a CPU), numpy where torch is not installed (`model/numpy_model.py`), or
an ONNX export (`model/onnx_graph.py`). `vectors` answers at once; `stream` takes any number of texts, a window at a
time: windows are tokenised ahead of the model (`token_windows.py`), texts longer than the model takes are cut or become
pieces (`pieces.py`), and a window's vectors come back while the next is under way (`window_vectors.py`). Memory: a few
windows. Cost: the model's on real tokens; index arithmetic and copying cost 1 ns per token.

N texts of a window, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib.util import find_spec
from inspect import signature
from itertools import accumulate, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import byte_products, has_numba
from liebig.base.errors import MissingDependency, ModelError
from liebig.base.hashes import stamp_of
from liebig.base.hub import model_folder
from liebig.base.machine import default_precision, free_cores, set_threads
from liebig.base.records import Title
from liebig.model.numpy_model import NumpyEncoder, NumpyModel, in_half
from liebig.model.onnx_graph import OnnxEncoder, OnnxModel, graph_folder, is_export
from liebig.model.settings import (
    LTR_HEAD,
    TOKENS_CPU,
    TOKENS_INT8,
    Floats,
    Longs,
    ModelSettings,
    Precision,
    TextReader,
    nothing,
)
from liebig.search.pieces import frame_of, lengths
from liebig.search.token_windows import TextItem, TokenWindow, Workers
from liebig.search.window_vectors import EncodingPlan, Model, WindowVectors, encode
from liebig.text.layout import Record, Role, RoleLayout

if TYPE_CHECKING:
    import torch

    from liebig.model.encoder import Encoder


P = ParamSpec("P")
T = TypeVar("T")


TOKENS_ONNX, TOKENS_CUDA = 512, 65_536  # of a row: what a cache holds, what fills a GPU
WINDOW = 8192  # texts tokenised and sorted by length together
FIRST_WINDOW = 1024  # on a GPU, which waits for it
MOST_WORKERS = 12  # processes that tokenise; more do not keep a GPU busier
CHARACTERS = 4  # per token, in the estimate that batches of requests are made by


def pools_sentences(model: Path) -> bool:
    """Whether a model's sentences can be pooled from the states of their passages: their mean is its vector."""
    return not is_export(model) and ModelSettings.read(model).pooling == "mean"


def window_sizes(first: int) -> Iterator[int]:
    """Texts of each window, up to WINDOW: half as many again as in the one before, during which they are tokenised."""
    return accumulate(repeat(WINDOW), lambda size, most: min(size * 3 // 2, most), initial=min(first, WINDOW))


def question_precision() -> Precision:
    """What questions are encoded in on a CPU: `auto`, unless the int8 kernels would have to be compiled for them.

    A question alone takes a sixth of the time in int8 (aarch64); compiling takes as long as a thousand in fp32.
    """
    if not has_numba() or (not byte_products() and default_precision() == "auto"):
        return "fp32"
    from liebig.model.kernels import int8

    return "auto" if int8.is_compiled(int8.run_layers) or default_precision() != "auto" else "fp32"


@dataclass(frozen=True)
class TextRequest:
    """A text to embed, and its role."""

    text: Record
    role: Role


@dataclass(frozen=True)
class Embedding:
    """A vector, the number of tokens it is made of, and whether some were cut off."""

    vector: Floats
    tokens: int
    cut: bool


_KEPT: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("kept", default=None)


@contextmanager
def keep_models(models: dict[tuple[Any, ...], Any] | None = None) -> Iterator[None]:
    """Within, a model is loaded once while its files stay the same: stages of a build and changes of a folder share it.

    `models` is where they are kept, for a process that comes here again and again; without it, where they already are.
    """
    kept = _KEPT.get() if models is None else models
    token = _KEPT.set({} if kept is None else kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def _once_where_kept(load: Callable[P, T]) -> Callable[P, T]:
    """A function that loads the model of a folder, its second argument."""

    @wraps(load)
    def known(*args: P.args, **options: P.kwargs) -> T:
        models = _KEPT.get()
        if models is None:
            return load(*args, **options)
        files = sorted(model_folder(cast(Path, args[1])).rglob("*"))
        told = signature(load).bind(*args, **options)
        told.apply_defaults()
        key = *told.arguments.values(), *(stamp_of(file.stat()) for file in files)
        if key not in models:
            models[key] = load(*args, **options)
        return cast(T, models[key])

    return known


class Embedder:
    """An encoder, how its queries and passages are laid out, and the forward that suits its device."""

    def __init__(
        self,
        encoder: Encoder | OnnxEncoder | NumpyEncoder,
        passage: RoleLayout | None = None,
        query: RoleLayout | None = None,
        *,
        unit: bool | None = None,
        half: bool | None = None,
        precision: Precision = "fp32",
        folder: Path | None = None,
    ) -> None:
        """Layouts and scaling to length 1 (`unit`) are the model's own where they are not given.

        `folder` lets processes load the tokenizer, and holds the graph where it is an ONNX export, which computes as
        it was exported whatever `precision` says.
        """
        self._encoder, self.half, self._precision = encoder, half, precision
        self.folder = folder if folder is not None and folder.is_dir() else None
        self.onnx = self.folder is not None and (is_export(self.folder) or isinstance(encoder, OnnxEncoder))
        self.unit = encoder.similarity == "cosine" if unit is None else unit
        self._layouts: dict[Role | None, RoleLayout] = {
            "passage": passage or encoder.layout_for("passage"),
            "query": query or encoder.layout_for("query"),
            None: encoder.layout_for(None),
        }
        self._models: dict[tuple[int, bool, int], Model] = {}

    @classmethod
    @_once_where_kept
    def load(
        cls,
        path: Path,
        device: torch.device | str | None = None,
        *,
        title: Title | None = None,
        max_length: int | None = None,
        query_length: int | None = None,
        unit: bool | None = None,
        half: bool | None = None,
        precision: Precision = "fp32",
        light: bool = False,
    ) -> Embedder:
        """A model's folder on a device; an ONNX export runs on the CPU, and so does every model if torch is missing.

        `light` does without torch too where numpy can compute the model: importing torch takes longer than a question.
        So does int8, whose kernels need nothing of it.
        """
        path = model_folder(path)
        if (path / LTR_HEAD).exists():
            raise ModelError(
                "the model ranks pairs by a head of its own (objective ltr), so its vectors cannot be searched",
                file=path,
                fix="fine-tune with objective.kind=contrastive",
            )
        missing = find_spec("torch") is None
        alone = light or precision == "int8" or (precision == "auto" and in_half(path))
        if missing or (alone and str(device or "cpu") == "cpu"):
            try:
                reader = NumpyEncoder(path) if graph_folder(path) is None else OnnxEncoder(path)
                reader = reader.use(title=title, max_length=max_length, query_length=query_length)
                made = cls(reader, unit=unit, half=half, precision=precision, folder=path)
                if missing or light or made.precision == "int8":
                    return made
            except MissingDependency:  # a model that only torch computes
                if missing:
                    raise
        from liebig.model.encoder import Encoder

        encoder = Encoder.load(path).use(title=title, max_length=max_length, query_length=query_length)
        if device is not None and not is_export(path):
            encoder = encoder.to(device)
        return cls(encoder, unit=unit, half=half, precision=precision, folder=path)

    def reading(self, passage: RoleLayout, query: RoleLayout, *, unit: bool) -> Embedder:
        """The same model, reading texts in another way."""
        other = Embedder(
            self._encoder,
            passage,
            query,
            unit=unit,
            half=self.half,
            precision=self._precision,
            folder=self.folder,
        )
        other._models = self._models
        return other

    @property
    def reader(self) -> TextReader:
        """What its texts are read by: tokenizer, prompts and lengths."""
        return self._encoder

    @property
    def encoder(self) -> Encoder:
        if isinstance(self._encoder, OnnxEncoder | NumpyEncoder):
            if find_spec("torch") is None or self.folder is None:
                raise MissingDependency("torch", "train", "the model itself")
            from liebig.model.encoder import Encoder

            return Encoder.load(self.folder)
        return self._encoder

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return self._encoder.width

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return (
            not isinstance(self._encoder, OnnxEncoder | NumpyEncoder) and self._encoder.device.type == "cuda"
        )

    @cached_property
    def precision(self) -> Literal["bf16", "fp32", "int8", "onnx"]:
        """What the model computes in; an ONNX graph has its own."""
        if self.onnx:
            return "onnx"
        if isinstance(self._encoder, NumpyEncoder):
            if self._precision == "fp32" or not has_numba():
                return "fp32"
            from liebig.model.kernels.int8 import choose

            return choose(self._precision, self._encoder.body)
        if self.encoder.in_half(self.half):
            return "bf16"
        from liebig.model.kernels.int8 import choose
        from liebig.model.kernels.lean_forward import body_of

        return choose(self._precision, body_of(self.encoder.backbone))

    def turns_to_int8(self) -> bool:
        """Whether questions that numpy encodes in float32 would be encoded in int8 if the model was loaded again."""
        if not isinstance(self._encoder, NumpyEncoder) or question_precision() == "fp32":
            return False
        from liebig.model.kernels.int8 import choose

        return self.precision == "fp32" and choose("auto", self._encoder.body) == "int8"

    @property
    def budget(self) -> int:
        if self.cuda:
            return TOKENS_CUDA
        return {"onnx": TOKENS_ONNX, "int8": TOKENS_INT8}.get(self.precision, TOKENS_CPU)

    @property
    def workers(self) -> int:
        """The most processes that tokenise: none beside a CPU, which has no time to spare for them."""
        return min(MOST_WORKERS, free_cores() - 1) if self.cuda else 0

    def layout(self, role: Role | None) -> RoleLayout:
        """How texts in a role become tokens; None is a text that is neither query nor passage."""
        return self._layouts[role]

    def plan(self, layout: RoleLayout) -> EncodingPlan:
        """One piece per text, cut to the layout's length."""
        return EncodingPlan(frame_of(layout), self.budget)

    def model(self, layout: RoleLayout, *, unit: bool) -> Model:
        """The forward, made once for the number of threads of the thread that calls, whichever way texts are read."""
        key = self.reader.skip(layout), unit, set_threads()
        if key not in self._models:
            if isinstance(self._encoder, NumpyEncoder):
                self._models[key] = NumpyModel(
                    self._encoder, unit=unit, skip=key[0], precision=self.precision, threads=key[2]
                )
            elif self.onnx:
                assert self.folder is not None, "an export has a folder"
                graph = graph_folder(self.folder)
                assert graph is not None, "it was there when the model was opened"
                self._models[key] = OnnxModel(graph, self._encoder, unit=unit, threads=key[2])
            else:
                from liebig.model.encoder import TorchModel

                self._models[key] = TorchModel(
                    self.encoder,
                    half=self.half,
                    unit=unit,
                    skip=key[0],
                    precision="int8" if self.precision == "int8" else "fp32",
                )
        return self._models[key]

    def cost(self, text: str) -> int:
        """About how many tokens a text has."""
        return min(len(text) // CHARACTERS + 3, self.reader.max_length)

    def vectors(self, texts: Sequence[Record], role: Role | None) -> Floats:
        """The vectors of texts in one role, scaled as `unit` says, N x D."""
        if len(texts) <= WINDOW:
            return self._start(texts, self._layouts[role], self.unit)[0]()
        items = (TextItem(str(number), text) for number, text in enumerate(texts))
        return np.concatenate([window.vectors for window in self.stream(items, role, count=len(texts))])

    def stream(
        self,
        items: Iterable[TextItem],
        role: Role | None,
        advance: Callable[[float], None] = nothing,
        *,
        count: int | None = None,
    ) -> Iterator[WindowVectors]:
        """Ids and vectors of any number of texts, window by window; `advance` is told how many texts are done.

        `count` is their number, where it is known.
        """
        layout, rest = self._layouts[role], iter(items)
        sizes = window_sizes(FIRST_WINDOW if self.cuda else WINDOW)
        groups = iter(lambda: list(islice(rest, next(sizes))), [])
        with Workers(self.reader.tokenizer, self.folder, most=self.workers, texts=count) as workers:
            batches = workers.windows(groups, layout)
            yield from encode(batches, self.model(layout, unit=self.unit), self.plan(layout), advance)

    def embed(self, requests: Sequence[TextRequest]) -> list[Embedding]:
        """The vectors of texts in any role, in order, as the model makes them (not scaled)."""
        embeddings: list[Embedding | None] = [None] * len(requests)
        for role in dict.fromkeys(self._alike[request.role] for request in requests):
            places = [i for i, request in enumerate(requests) if self._alike[request.role] == role]
            vectors, sizes, cut = self._start([requests[i].text for i in places], self._layouts[role], False)
            for place, *made in zip(places, vectors(), sizes.tolist(), cut.tolist()):
                embeddings[place] = Embedding(*made)
        return embeddings  # type: ignore[return-value]  # every place was filled

    @cached_property
    def _alike(self) -> dict[Role, Role]:
        """The role whose layout serves each, so that texts that are read alike share rows; queries have no titles."""
        roles: tuple[Role, ...] = ("passage", "query")
        manner = {role: (self._layouts[role].prompt, self._layouts[role].length) for role in roles}
        return {role: next(r for r in roles if manner[r] == manner[role]) for role in roles}

    def _start(
        self, texts: Sequence[Record], layout: RoleLayout, unit: bool
    ) -> tuple[Callable[[], Floats], Longs, NDArray[np.bool_]]:
        """Texts of one window, tokenised in this thread: their vectors, numbers of tokens, and which were cut."""
        plan = self.plan(layout)
        window = layout.tokens([layout.text(text) for text in texts])
        batch = TokenWindow([], window)
        pieces = plan.pieces(batch)
        vectors = self.model(layout, unit=unit).start(plan.packed(batch, pieces), len(texts))
        return vectors, lengths(pieces, plan.frame), window.lengths > plan.frame.room
