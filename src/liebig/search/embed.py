"""From tokens of many texts to packed rows: pieces of long texts, special tokens, batches by length.

A window of texts is one array of tokens with offsets. Texts longer than the model takes are cut, or become several
pieces that overlap. Pieces are sorted by length and put together up to a budget of tokens, so rows hold no padding
and those that a model pads hold little. All of it is index arithmetic; copying tokens costs 1 ns each.

N texts of a window, P pieces, T tokens.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from liebig.base.errors import DataError
from liebig.base.machine import helpers
from liebig.base.records import Document, Passage, Query, Title
from liebig.collection.collection import Collection, is_collection
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged, gather, offsets_of, split_by_budget
from liebig.search.embed_cpu import LeanForward, supports
from liebig.store.store import SUMMARY, TokenStore
from liebig.text.layout import Record, RoleLayout
from liebig.text.tokenizer import Tokenizer

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
class Pieces:
    """P pieces: the text each belongs to, where it begins in the window, how many tokens, and whether it is a first."""

    text: Longs
    start: Longs
    size: Longs
    first: NDArray[np.bool_]


def first_pieces(window: Ragged, frame: Frame) -> Pieces:
    """One piece a text: its beginning."""
    numbers = np.arange(len(window), dtype=np.int64)
    size = np.minimum(window.lengths, frame.room)
    return Pieces(numbers, window.offsets[:-1], size, np.ones(len(window), bool))


def all_pieces(window: Ragged, frame: Frame, overlap: int, most: int | None) -> Pieces:
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
    return Pieces(text, window.offsets[text] + begin, size, place == 0)


def lengths(pieces: Pieces, frame: Frame) -> Longs:
    """Tokens of each piece with what is put around it."""
    around = len(frame.before) + len(frame.after)
    return pieces.size + around + np.where(pieces.first, 0, len(frame.again))


def packed_rows(window: Ragged, pieces: Pieces, frame: Frame, budget: int) -> Iterator[PackedRow]:
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


def cut(window: Ragged, pieces: Pieces) -> Cut:
    """What of the texts is in none of their pieces."""
    reached = np.zeros(len(window), np.int64)
    np.maximum.at(reached, pieces.text, pieces.start + pieces.size)
    lost = np.maximum(window.offsets[1:] - np.maximum(reached, window.offsets[:-1]), 0)
    return Cut(len(window), int((lost > 0).sum()), int(lost.sum()), int(lost.max(initial=0)))


def mean_of_pieces(vectors_PD: NDArray[np.float32], pieces: Pieces, texts: int) -> NDArray[np.float32]:
    """The mean of the vectors of each text's pieces, N x D."""
    starts = np.searchsorted(pieces.text, np.arange(texts))
    sums = np.add.reduceat(vectors_PD.astype(np.float64), starts, axis=0)
    return (sums / np.bincount(pieces.text, minlength=texts)[:, None]).astype(np.float32)


def numbered(ids: list[str], pieces: Pieces) -> list[str]:
    """Ids of the pieces: id#0, id#1, …"""
    place = np.arange(len(pieces.text)) - np.searchsorted(pieces.text, pieces.text)
    return [f"{ids[text]}#{number}" for text, number in zip(pieces.text.tolist(), place.tolist())]


# What is encoded: passages, queries or documents of a collection, a token store, any file that can be read,
# stdin.
#
# Everything becomes a stream of ids and records (or tokens, from a store); how a record becomes text is the
# layout's. A file is recognised as `liebig init` would recognise it; lines of standard input are JSON with
# `id` and `text`, or plain text numbered from 1.

What = Literal["passages", "queries", "documents"]
KINDS: dict[What, type[Passage | Query | Document]] = {
    "passages": Passage, "queries": Query, "documents": Document
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """An id with its record or text, or with the tokens of one."""

    id: str
    record: Record
    tokens: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Wish:
    """What of a source is wanted."""

    what: What = "passages"
    split: str | None = None


def items(path: Path, wish: Wish, tokenizer: str | None = None) -> Iterator[Item]:
    """The items of a file or folder; a token store must be of the tokenizer with this digest."""
    if (path / SUMMARY).is_file():
        store = TokenStore.open(path)
        if tokenizer is not None and store.tokenizer.digest != tokenizer:
            raise DataError(
                "the token store was made with another tokenizer than the model's",
                file=path,
                fix="prepare it again with the model's tokenizer, or encode the collection",
            )
        return store_items(store)
    if is_collection(path):
        return _collection(Collection(path), wish)
    return _any_file(path, wish)


def total(path: Path, wish: Wish) -> int | None:
    """How many items there are, where that is known before they are read."""
    if (path / SUMMARY).is_file():
        store = TokenStore.open(path, hashes=False)
        return len(store) if store.passages is None else len(store.passages)
    if not is_collection(path):
        return None
    collection = Collection(path)
    if wish.what == "queries" and wish.split is not None:
        return len(set(collection.query_ids(wish.split)))
    return collection.count(wish.what)


def _collection(collection: Collection, wish: Wish) -> Iterator[Item]:
    if not collection.has(wish.what):
        raise DataError(f"the collection has no {wish.what}", file=collection.path, fix="encode what it has")
    records: Iterable[Passage | Query | Document]
    if wish.what == "queries":
        records = collection.queries(wish.split)
    else:
        records = collection.passages() if wish.what == "passages" else collection.documents()
    return (Item(record.id, record) for record in records)


def _any_file(path: Path, wish: Wish) -> Iterator[Item]:
    seen: Counter[type] = Counter()
    for found in detect(path):
        for item in found.items(Options(split=wish.split)):
            seen[type(item.record)] += 1
            if isinstance(item.record, KINDS[wish.what]):
                yield Item(item.record.id, item.record)
    if not seen[KINDS[wish.what]]:
        others = [what for what, kind in KINDS.items() if seen[kind]]
        fix = f"it holds {' and '.join(others)}: --what {others[0]}" if others else "name another file"
        raise DataError(f"there are no {wish.what} in it", file=path, fix=fix)


def lines(stream: IO[str], wish: Wish) -> Iterator[Item]:
    """Lines of standard input; none with a text is a mistake."""
    empty = True
    try:
        for number, line in enumerate(stream, 1):
            text = line.rstrip("\r\n")
            if text.strip():
                empty = False
                yield _json(text, number, wish) if text.startswith("{") else Item(str(number), text)
    except UnicodeDecodeError:
        raise DataError(
            "is not UTF-8", file="standard input", fix="convert it, for example with iconv"
        ) from None
    if empty:
        raise DataError(
            "there is nothing to encode", file="standard input", fix="name a source, or pipe texts in"
        )


def _json(line: str, number: int, wish: Wish) -> Item:
    try:
        row = json.loads(line)
        id, text, title = row["id"] if "id" in row else row["_id"], row["text"], row.get("title") or ""
    except (ValueError, KeyError):
        id = text = title = None
    if not (isinstance(id, str | int) and isinstance(text, str) and isinstance(title, str)):
        raise DataError(
            "is not JSON with an id and a text", file="standard input", line=number, fix="or give plain lines"
        )
    record = Query(str(id), text) if wish.what == "queries" else Passage(str(id), text, title)
    return Item(record.id, record)


def store_items(store: TokenStore) -> Iterator[Item]:
    """Passages of a token store, named document#0, document#1, …; whole documents where none were cut."""
    if store.passages is None:
        for number in range(len(store)):
            yield Item(store.ids[number], "", store.document(number).astype(np.int32))
        return
    begins, _ = store.token_ranges(np.arange(len(store)))
    owners = np.searchsorted(begins, store.passages[:, 0], side="right") - 1
    last, place = -1, 0
    for owner, (begin, end) in zip(owners.tolist(), store.passages):
        place = place + 1 if owner == last else 0
        last = owner
        yield Item(f"{store.ids[owner]}#{place}", "", store.tokens[begin:end].astype(np.int32))


# Tokens ahead of the model: windows of texts are tokenised beside it, in processes where it is a GPU.
#
# Results come in order, and only a few windows are ever under way, so memory does not grow. A process sends
# back one array of tokens; starting it costs a second, so few texts are tokenised in a thread instead.

AHEAD = 2  # windows under way besides one for each worker


@dataclass(frozen=True)
class Batch:
    """A window of items, tokenised."""

    ids: list[str]
    window: Ragged


_tokenizer: Tokenizer | None = None


def _load(folder: str) -> None:
    """Runs once in every process."""
    global _tokenizer
    _tokenizer = Tokenizer.from_folder(folder)


def _in_process(texts: Sequence[str], title: Title) -> Ragged:
    assert _tokenizer is not None, "the process was started without a tokenizer"
    return RoleLayout(_tokenizer, 0, title=title).tokens(texts)


class Workers:
    """Processes with the tokenizer of a folder, or a thread where `count` is 0; may serve several runs."""

    def __init__(self, tokenizer: Tokenizer, folder: Path | None, count: int) -> None:
        self._tokenizer, self._count = tokenizer, count if folder is not None else 0
        self._opened: AbstractContextManager[Executor] = (
            helpers(count, _load, str(folder)) if self._count else _thread()
        )

    def __enter__(self) -> Workers:
        self._pool = self._opened.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def windows(self, groups: Iterable[list[Item]], layout: RoleLayout) -> Iterator[Batch]:
        """Each group of items as a window, in order."""
        encode = _in_process if self._count else self._here
        return _ordered(groups, self._pool, encode, layout, self._count + AHEAD)

    def _here(self, texts: Sequence[str], title: Title) -> Ragged:
        return RoleLayout(self._tokenizer, 0, title=title).tokens(texts)


@contextmanager
def _thread() -> Iterator[Executor]:
    """One thread; what it has not begun when it is left is not done."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _ordered(
    groups: Iterable[list[Item]],
    pool: Executor,
    encode: Callable[[Sequence[str], Title], Ragged],
    layout: RoleLayout,
    ahead: int,
) -> Iterator[Batch]:
    pending: deque[tuple[list[str], Future[Ragged] | Ragged]] = deque()
    for group in groups:
        if group[0].tokens is not None:
            pending.append(
                ([item.id for item in group], _joined(group, np.array(layout.prompt_ids, np.int32)))
            )
        else:
            texts = [layout.text(item.record) for item in group]
            pending.append(([item.id for item in group], pool.submit(encode, texts, layout.title)))
        if len(pending) > ahead:
            yield _finished(*pending.popleft())
    while pending:
        yield _finished(*pending.popleft())


def _finished(ids: list[str], window: Future[Ragged] | Ragged) -> Batch:
    return Batch(ids, window.result() if isinstance(window, Future) else window)


def _joined(group: Sequence[Item], prompt: NDArray[np.int32]) -> Ragged:
    """Items that are tokens already, each behind the tokens of the prompt."""
    rows = [np.concatenate([prompt, item.tokens]) for item in group if item.tokens is not None]
    return Ragged(np.concatenate(rows).astype(np.int32), offsets_of([len(row) for row in rows]))


# The model's side: packed rows in, vectors of a window out, without waiting for the device.
#
# Rows are copied to the device while the row before is computed; vectors of a window stay there until the
# window is done and come back as one array, while the next window is already under way. Cost: the model's,
# on real tokens.

Floats = NDArray[np.float32]
Long = Literal["first", "max", "mean"]
TOKENS_CPU, TOKENS_ONNX, TOKENS_CUDA = 1024, 512, 65_536  # of a row
PackedRow = tuple[Ragged, Longs]  # the tokens of some pieces, and their numbers


def nothing(tokens: int) -> None:
    """Tells nobody."""


class Model(Protocol):
    """Whatever makes vectors of packed rows."""

    width: int

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Set going the vectors of `count` pieces, given as packed rows.

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
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            vectors = self.encoder.vectors(self._states(row), row, self._skip).float()
        vectors = F.normalize(vectors, dim=-1) if self._unit else vectors
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
            return first_pieces(batch.window, self.frame)
        return all_pieces(batch.window, self.frame, self.overlap, self.most)

    def packed(self, batch: Batch, pieces: Pieces) -> Iterator[PackedRow]:
        """The rows of a window, longest pieces first."""
        return packed_rows(batch.window, pieces, self.frame, self.budget)

    def finish(self, batch: Batch, pieces: Pieces, vectors_PD: Floats) -> Encoded:
        """Ids and vectors of a window: of its pieces, or of its texts."""
        cuts = cut(batch.window, pieces)
        if self.long == "max":
            return Encoded(numbered(batch.ids, pieces), vectors_PD, cuts)
        if self.long == "mean":
            vectors_PD = mean_of_pieces(vectors_PD, pieces, len(batch.ids))
            if self.unit:
                vectors_PD = vectors_PD / np.maximum(np.linalg.norm(vectors_PD, axis=1, keepdims=True), 1e-12)
        return Encoded(batch.ids, vectors_PD, cuts)


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
        done = _in_texts(advance, len(batch.ids), int(lengths(pieces, plan.frame).sum()))
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
