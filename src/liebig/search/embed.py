"""The one way from texts to vectors: tokens, packed rows, the model, vectors in the order of the texts.

`Embedder` is an encoder with the layouts of its roles and the forward that suits it: torch on its device
(`model/encoder.py`, with a lean forward on a CPU), numpy where torch is not installed (`model/numpy_model.py`), or
an ONNX export (`model/onnx_graph.py`). `vectors` answers at once; `stream` takes any number of texts, a window at a
time: windows are tokenised ahead of the model, in processes where it runs on a GPU and there are very many texts; texts
longer than the model takes are cut or become several pieces that overlap, pieces are sorted by length and packed up to
a budget of tokens, so rows hold no padding. Rows are copied to the device while the row before is computed, and a
window's vectors come back while the next is under way. Memory: a few windows. Cost: the model's on real tokens; index
arithmetic and copying cost 1 ns per token.

N texts of a window, P pieces, T tokens, D width of the vectors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from importlib.util import find_spec
from itertools import accumulate, islice, pairwise, repeat
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import HAS_NUMBA
from liebig.base.errors import MissingDependency, ModelError
from liebig.base.hub import model_folder
from liebig.base.machine import (
    Pace,
    default_precision,
    free_cores,
    helpers,
    set_threads,
    tokenizer_threads,
)
from liebig.base.records import Title
from liebig.base.workspace import stamp_of
from liebig.model.numpy_model import NumpyEncoder, NumpyModel, in_half
from liebig.model.onnx_graph import OnnxEncoder, OnnxModel, graph_folder, is_export
from liebig.model.settings import (
    LTR_HEAD,
    TOKENS_CPU,
    TOKENS_INT8,
    ModelSettings,
    PackedRow,
    Precision,
    TextReader,
    TokenSpans,
    nothing,
)
from liebig.ragged import Ragged, gather, offsets_of, split_by_budget
from liebig.text.layout import Record, Role, RoleLayout, set_up_worker, worker_tokens
from liebig.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from liebig.model.encoder import Encoder

P = ParamSpec("P")
T = TypeVar("T")
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Frame:
    """What is put around the tokens of a piece, and how long it may become with that."""

    before: Ints
    after: Ints
    again: Ints  # the prompt, put before every piece but the first, which has it already
    length: int  # tokens of the longest piece, everything counted

    @property
    def room(self) -> int:
        """Tokens of the first piece of a text."""
        return self.length - len(self.before) - len(self.after)


@dataclass(frozen=True)
class TextPieces:
    """P pieces: the text each belongs to, where it begins in the window, how many tokens, and whether it is a first."""

    text: Longs
    start: Longs
    size: Longs
    first: NDArray[np.bool_]


def first_pieces(window: Ragged, frame: Frame) -> TextPieces:
    numbers = np.arange(len(window), dtype=np.int64)
    size = np.minimum(window.lengths, frame.room)
    return TextPieces(numbers, window.offsets[:-1], size, np.ones(len(window), bool))


def all_pieces(window: Ragged, frame: Frame, overlap: int, most: int | None) -> TextPieces:
    """As many pieces as a text needs, at the most `most`; each shares `overlap` tokens with the one before."""
    later = frame.room - len(frame.again)
    assert 0 <= overlap < later, "pieces must move on"
    lengths = window.lengths
    counts = 1 + np.maximum(0, -(-(lengths - frame.room) // (later - overlap)))
    counts = counts if most is None else np.minimum(counts, most)
    text = np.repeat(np.arange(len(window), dtype=np.int64), counts)
    place = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.where(place == 0, 0, frame.room - overlap + (place - 1) * (later - overlap))
    size = np.minimum(lengths[text] - begin, np.where(place == 0, frame.room, later))
    return TextPieces(text, window.offsets[text] + begin, size, place == 0)


def lengths(pieces: TextPieces, frame: Frame) -> Longs:
    """Tokens of each piece with what is put around it."""
    around = len(frame.before) + len(frame.after)
    return pieces.size + around + np.where(pieces.first, 0, len(frame.again))


def packed_rows(window: Ragged, pieces: TextPieces, frame: Frame, budget: int) -> Iterator[PackedRow]:
    """All pieces, longest first, as rows of at most `budget` tokens (or one piece)."""
    sizes = lengths(pieces, frame)
    spans = np.stack((pieces.start, pieces.start + pieces.size), axis=1)[:, None]
    tokens = window.values
    if not pieces.first.all():  # the prompt is gathered too, from behind the tokens
        end = len(tokens)
        tokens = np.concatenate((tokens, frame.again))
        prompt = np.where(pieces.first[:, None], end, np.array([end, len(tokens)]))
        spans = np.concatenate((prompt[:, None], spans), axis=1)
    for chosen in split_by_budget(sizes, budget):
        yield gather(tokens, spans[chosen], frame.before, frame.after), chosen


@dataclass(frozen=True)
class Cut:
    """How many texts there were, how many lost their end, how many tokens that is, and the most of one text."""

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    most: int = 0

    def __add__(self, other: Cut) -> Cut:
        sums = self.texts + other.texts, self.cut + other.cut, self.tokens + other.tokens
        return Cut(*sums, max(self.most, other.most))


def cut(window: Ragged, pieces: TextPieces) -> Cut:
    reached = np.zeros(len(window), np.int64)
    np.maximum.at(reached, pieces.text, pieces.start + pieces.size)
    lost = np.maximum(window.offsets[1:] - np.maximum(reached, window.offsets[:-1]), 0)
    return Cut(len(window), int((lost > 0).sum()), int(lost.sum()), int(lost.max(initial=0)))


def numbered(ids: list[str], owners: Longs) -> list[str]:
    """Ids of pieces or sentences, by the texts they belong to: id#0, id#1, …"""
    place = np.arange(len(owners)) - np.searchsorted(owners, owners)
    return [f"{ids[text]}#{number}" for text, number in zip(owners.tolist(), place.tolist())]


@dataclass(frozen=True, slots=True)
class TextItem:
    """An id with its record or text."""

    id: str
    record: Record


AHEAD = 2  # windows under way besides one for each worker
MANY_CORES = (
    7  # of which the library's threads make more than the table of words makes of one, if nothing is compiled
)


@dataclass(frozen=True)
class TokenWindow:
    """A window of items, tokenised; where they are asked for, how many tokens each sentence of a text has."""

    ids: list[str]
    window: Ragged
    sentences: Ragged | None = None

    def spans(self, pieces: TextPieces, frame: Frame) -> TokenSpans | None:
        """The sentences as spans of pieces; one that crosses an end is in the piece that has its own end, if one has.

        The text is what a sequence ends with, behind prompt and title, so its sentences are counted from there.
        """
        if self.sentences is None:
            return None
        sizes, texts = self.sentences.values, np.repeat(np.arange(len(self.ids)), self.sentences.lengths)
        behind = np.cumsum(sizes)  # tokens up to the end of each sentence, over all texts
        totals = np.append(0, behind)[self.sentences.offsets[1:]]
        end = self.window.offsets[1:][texts] - (totals[texts] - behind)
        begin = np.maximum(end - sizes, self.window.offsets[:-1][texts])
        first, last = (np.searchsorted(pieces.text, texts, side) for side in ("left", "right"))
        piece = np.clip(np.searchsorted(pieces.start + pieces.size, end), first, last - 1)
        start, size = pieces.start[piece], pieces.size[piece]
        begin, end = np.clip(begin - start, 0, size), np.clip(end - start, 0, size)
        nothing_left = end <= begin
        begin, end = np.where(nothing_left, 0, begin), np.where(nothing_left, size, end)
        shift = len(frame.before) + np.where(pieces.first[piece], 0, len(frame.again))
        # A text without any token has its special ones.
        return TokenSpans(piece, np.where(size > 0, begin + shift, 0), np.maximum(end + shift, 1))


def sentence_parts(text: str) -> list[str]:
    """The sentences of a text, each with the white space before it, which makes its tokens those of the text."""
    from liebig.text.sentences import spans  # whose expressions take a twentieth of a second to compile

    ends = [end for _, end in spans(text)] or [len(text)]
    return [text[begin:end] for begin, end in pairwise([0, *ends])]


class Workers:
    """What tokenises ahead of the model: threads, and where they pay processes with the tokenizer of a folder.

    A tokenizer that is compiled lets several threads run, where the model leaves cores free: one for each window that
    is under way. Another one looks words up in a table, on one core, or uses the library's threads where many are free,
    as many as `most`. A process sends back one array of tokens. May serve several runs, of `texts` texts in all where
    that is known.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        folder: Path | None,
        told: int | None = None,
        *,
        most: int = 0,
        texts: int | None = None,
    ) -> None:
        """`told` processes are started with the second window; without a number at most `most`, once they pay."""
        self._tokenizer = tokenizer.threaded if most >= MANY_CORES and tokenizer_threads() else tokenizer
        self._threads = AHEAD + 1 if most > AHEAD and tokenizer.compiles else 1
        self._folder = folder
        self._told, self._most = (told, most) if folder is not None else (0, 0)
        self._pace = Pace(texts, self._threads)
        self._open = ExitStack()
        self._processes: Executor | None = None
        self._count = 0  # processes that were started

    def __enter__(self) -> Workers:
        self._thread_pool = ThreadPoolExecutor(self._threads)
        self._open.callback(self._thread_pool.shutdown, cancel_futures=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def windows(
        self, groups: Iterable[list[TextItem]], layout: RoleLayout, *, sentences: bool = False
    ) -> Iterator[TokenWindow]:
        """Each group of items as a window, in order; only a few are ever under way, so memory does not grow."""
        pending: deque[Pending] = deque()
        for number, group in enumerate(groups):
            ids = [item.id for item in group]
            pool, tokenize = self._pool(several=number > 0)
            tokens = pool.submit(tokenize, [layout.text(item.record) for item in group], layout.title)
            inner: tuple[Longs, Future[Ragged]] | None = None
            if sentences:
                plain = replace(layout, prompt="")  # no prompt and no title
                parts = [sentence_parts(_text_of(item.record)) for item in group]
                texts = [plain.text(part) for of_text in parts for part in of_text]
                inner = offsets_of(list(map(len, parts))), pool.submit(tokenize, texts, layout.title)
            pending.append((ids, tokens, inner))
            if len(pending) > self._count + AHEAD or (self._count == 0 and _is_ready(pending)):
                yield _finished(*pending.popleft())
        while pending:
            yield _finished(*pending.popleft())

    def _pool(self, several: bool) -> tuple[Executor, Callable[[Sequence[str], Title], Ragged]]:
        if self._processes is None:
            told = self._told if several else 0
            self._count = self._pace.helpers(self._most) if told is None else told
            if self._count == 0:
                return self._thread_pool, self._here
            self._processes = self._open.enter_context(helpers(self._count, set_up_worker, str(self._folder)))
        return self._processes, worker_tokens

    def _here(self, texts: Sequence[str], title: Title) -> Ragged:
        return self._pace.run(len(texts), RoleLayout(self._tokenizer, 0, title=title).tokens, texts)


Pending = tuple[list[str], Future[Ragged], tuple[Longs, Future[Ragged]] | None]


def _is_ready(pending: Sequence[Pending]) -> bool:
    """Whether the model can have the first window, while another one is being tokenised."""
    return len(pending) > 1 and pending[0][1].done()


def _finished(
    ids: list[str], window: Future[Ragged], inner: tuple[Longs, Future[Ragged]] | None
) -> TokenWindow:
    return TokenWindow(ids, window.result(), inner and Ragged(inner[1].result().lengths, inner[0]))


def _text_of(record: Record) -> str:
    return record if isinstance(record, str) else record.text


Floats = NDArray[np.float32]
Long = Literal["first", "max"]
TOKENS_ONNX, TOKENS_CUDA = 512, 65_536  # of a row: what a cache holds, what fills a GPU
WINDOW = 8192  # texts tokenised and sorted by length together
FIRST_WINDOW = 1024  # on a GPU, which waits for it
MOST_WORKERS = 12  # processes that tokenise; more do not keep a GPU busier
CHARACTERS = 4  # per token, in the estimate that batches of requests are made by


class Model(Protocol):
    """Whatever makes vectors of packed rows."""

    width: int

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Set going the vectors of `count` pieces, given as packed rows.

        What is returned waits for them; `done` is told the tokens of every row that was computed or set going.
        """


@runtime_checkable
class PoolsSpans(Protocol):
    """A model that also makes vectors of spans of tokens, from the states of the pieces they are in."""

    pools_spans: bool

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """As `Model.start`; the vectors of the spans stand behind those of the pieces."""


def pools_sentences(model: Path) -> bool:
    """Whether a model's sentences can be pooled from the states of their passages: their mean is its vector."""
    return not is_export(model) and ModelSettings.read(model).pooling == "mean"


class KnownVectors:
    """A model that computes only the pieces whose vectors are not known yet; pieces are told apart by their tokens.

    What is known of a piece are rows: its own vector, and those of its sentences where these are known too.
    """

    pools_spans = True

    def __init__(self, model: Model, known: Mapping[bytes, Floats]) -> None:
        self._model, self._known, self.width = model, known, model.width

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """As every model; what is known is put in the place of what was not computed."""
        taken: dict[int, Floats] = {}
        bounds = None if spans is None else np.searchsorted(spans.piece, np.arange(count + 1))

        def rows_of(piece: Ints, number: int) -> Floats | None:
            rows = self._known.get(piece.tobytes())
            if rows is None or bounds is None:
                return rows
            return rows if len(rows) == 1 + bounds[number + 1] - bounds[number] else None

        def unknown() -> Iterator[PackedRow]:
            for tokens, numbers in packed:
                known = [rows_of(piece, number) for piece, number in zip(tokens, numbers.tolist())]
                new = np.array([i for i, rows in enumerate(known) if rows is None], np.int64)
                taken.update((n, rows) for n, rows in zip(numbers.tolist(), known) if rows is not None)
                rest = tokens.take(new)
                done(len(tokens.values) - len(rest.values))
                if len(new):
                    yield rest, numbers[new]

        if spans is None:
            computed = self._model.start(unknown(), count, done)
        else:
            assert isinstance(self._model, PoolsSpans), "`pools_sentences` says which models do"
            computed = self._model.start(unknown(), count, done, spans)

        def wait() -> Floats:
            vectors_PD = computed()
            for number, rows in taken.items():
                vectors_PD[number] = rows[0]
                if bounds is not None:
                    vectors_PD[count + bounds[number] : count + bounds[number + 1]] = rows[1:]
            return vectors_PD

        return wait


@dataclass(frozen=True)
class EncodingPlan:
    """How windows become rows: the frame of a piece, the budget of a row, and what happens to long texts."""

    frame: Frame
    budget: int
    long: Long = "first"
    overlap: int = 0
    most: int | None = None

    def pieces(self, batch: TokenWindow) -> TextPieces:
        """The pieces of a window; where sentences are asked for, a text that is cut has the others for them."""
        if self.long == "first" and batch.sentences is None:
            return first_pieces(batch.window, self.frame)
        if self.long == "first":
            room = self.frame.room - len(self.frame.again)
            return all_pieces(batch.window, self.frame, min(self.overlap, room // 2), None)
        return all_pieces(batch.window, self.frame, self.overlap, self.most)

    def packed(self, batch: TokenWindow, pieces: TextPieces) -> Iterator[PackedRow]:
        return packed_rows(batch.window, pieces, self.frame, self.budget)

    def finish(self, batch: TokenWindow, pieces: TextPieces, vectors_PD: Floats) -> WindowVectors:
        """Ids and vectors of a window: of its pieces, or of its texts; and of their sentences, if asked for."""
        if batch.sentences is not None:
            count, whole = len(pieces.text), replace(batch, sentences=None)
            used = pieces if self.long != "first" else self.pieces(whole)
            rows = vectors_PD[:count] if self.long != "first" else vectors_PD[:count][pieces.first]
            owners = np.repeat(np.arange(len(batch.ids)), batch.sentences.lengths)
            ids = numbered(batch.ids, owners)
            inner = WindowVectors(ids, vectors_PD[count:], Cut(len(ids)))
            return self.finish(whole, used, rows)._replace(sentences=inner)
        cuts = cut(batch.window, pieces)
        if self.long == "max":
            return WindowVectors(numbered(batch.ids, pieces.text), vectors_PD, cuts)
        return WindowVectors(batch.ids, vectors_PD, cuts)


class WindowVectors(NamedTuple):
    """Ids and vectors of a window, and what was cut off its texts."""

    ids: list[str]
    vectors: Floats
    cut: Cut
    sentences: WindowVectors | None = None


def encode(
    batches: Iterable[TokenWindow],
    model: Model,
    plan: EncodingPlan,
    advance: Callable[[float], None] = nothing,
) -> Iterator[WindowVectors]:
    """Ids and vectors, window by window, in order; one window is computed while the one before is fetched.

    `advance` is told how many texts are done, row by row in proportion to their tokens.
    """
    waiting: tuple[TokenWindow, TextPieces, Callable[[], Floats]] | None = None
    for batch in batches:
        pieces = plan.pieces(batch)
        share = len(batch.ids) / int(lengths(pieces, plan.frame).sum())  # texts per token
        done = partial(_scaled, advance, share)
        inner = batch.spans(pieces, plan.frame)
        packed, count = plan.packed(batch, pieces), len(pieces.text)
        if inner is None:
            started = model.start(packed, count, done)
        else:
            assert isinstance(model, PoolsSpans), "`pools_sentences` says which models do"
            started = model.start(packed, count, done, inner)
        if waiting is not None:
            yield plan.finish(waiting[0], waiting[1], waiting[2]())
        waiting = (batch, pieces, started)
    if waiting is not None:
        yield plan.finish(waiting[0], waiting[1], waiting[2]())


def window_sizes(first: int) -> Iterator[int]:
    """Texts of each window, up to WINDOW: half as many again as in the one before, during which they are tokenised."""
    return accumulate(repeat(WINDOW), lambda size, most: min(size * 3 // 2, most), initial=min(first, WINDOW))


def question_precision() -> Precision:
    """What questions are encoded in on a CPU: `auto`, unless the int8 kernels would have to be compiled for them.

    A question alone takes a sixth of the time in int8 (aarch64); compiling takes as long as a thousand in fp32.
    """
    if not HAS_NUMBA:
        return "fp32"
    from liebig.model.kernels import int8

    return "auto" if int8.is_compiled(int8.run_layers) or default_precision() != "auto" else "fp32"


def _scaled(advance: Callable[[float], None], share: float, tokens: int) -> None:
    advance(tokens * share)


def frame_of(layout: RoleLayout) -> Frame:
    """The special tokens and the prompt of a layout, for texts that may become several pieces."""
    template = layout.tokenizer.template
    parts = (template.before, template.after, layout.prompt_ids)
    before, after, again = (np.array(ids, np.int32) for ids in parts)
    return Frame(before, after, again, layout.length)


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
    """Within, a model is loaded once while its files stay the same: who follows a folder needs it with every change.

    `models` is where they are kept, for a process that comes here again and again.
    """
    token = _KEPT.set({} if models is None else models)
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
        key = *args, *sorted(options.items()), *(stamp_of(file.stat()) for file in files)
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
            if self._precision == "fp32" or not HAS_NUMBA:
                return "fp32"
            from liebig.model.kernels.int8 import choose

            return choose(self._precision, self._encoder.body)
        if self.encoder.in_half(self.half):
            return "bf16"
        from liebig.model.kernels.int8 import choose
        from liebig.model.kernels.lean_forward import body_of

        return choose(self._precision, body_of(self.encoder.backbone))

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
