"""Texts as windows of tokens, made ahead of the model: in threads, or in processes where a GPU waits for them.

Memory: a few windows. Where they are asked for, the sentences of a text are known as spans of its pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np

from liebig.base.machine import Pace, helpers, tokenizer_threads
from liebig.base.records import Title
from liebig.model.settings import Longs, TokenSpans
from liebig.ragged import Ragged, offsets_of
from liebig.search.pieces import Frame, TextPieces
from liebig.text.layout import Record, RoleLayout, set_up_worker, worker_tokens
from liebig.text.tokenizer import Tokenizer


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
