"""Tokens ahead of the model: windows of texts are tokenised beside it, in processes where it is a GPU.

Results come in order, and only a few windows are ever under way, so memory does not grow. A process sends back one
array of tokens; starting it costs a second, so few texts are tokenised in a thread instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from liebig.encode.rows import Window
from liebig.encode.source import Item
from liebig.processes import helpers
from liebig.text.layout import RoleLayout, Title
from liebig.text.tokenizer import Tokenizer

AHEAD = 2  # windows under way besides one for each worker


@dataclass(frozen=True)
class Batch:
    """A window of items, tokenised."""

    ids: list[str]
    window: Window


_tokenizer: Tokenizer | None = None


def _load(folder: str) -> None:
    """Runs once in every process."""
    global _tokenizer
    _tokenizer = Tokenizer.from_folder(folder)


def _in_process(texts: Sequence[str], title: Title) -> Window:
    assert _tokenizer is not None, "the process was started without a tokenizer"
    return Window(*RoleLayout(_tokenizer, 0, title=title).tokens(texts))


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

    def _here(self, texts: Sequence[str], title: Title) -> Window:
        return Window(*RoleLayout(self._tokenizer, 0, title=title).tokens(texts))


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
    encode: Callable[[Sequence[str], Title], Window],
    layout: RoleLayout,
    ahead: int,
) -> Iterator[Batch]:
    pending: deque[tuple[list[str], Future[Window] | Window]] = deque()
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


def _finished(ids: list[str], window: Future[Window] | Window) -> Batch:
    return Batch(ids, window.result() if isinstance(window, Future) else window)


def _joined(group: Sequence[Item], prompt: NDArray[np.int32]) -> Window:
    """Items that are tokens already, each behind the tokens of the prompt."""
    rows = [np.concatenate([prompt, item.tokens]) for item in group if item.tokens is not None]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)])
    return Window(np.concatenate(rows).astype(np.int32), offsets)
