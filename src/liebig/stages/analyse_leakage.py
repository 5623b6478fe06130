"""`liebig analyse leakage`: detect evaluation texts that leaked into the pre-training corpus, by runs of n words.

Texts are cut into words in lower case; a text shorter than n words counts as one run. Only words that occur in the
evaluation texts get a number, so windows of the corpus are compared as numbers: a rolling hash finds candidates, and
every hit is confirmed word by word. Memory: the evaluation texts; the corpus is read once, at about 10 MB/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Document, Passage
from liebig.base.workspace import Folder
from liebig.evaluation.tables import show, write_table
from liebig.evaluation.tasks import read_task, records
from liebig.queries.consistency import words as words_of

Longs = NDArray[np.int64]
BASE = np.uint64(0x100000001B3)


@dataclass(frozen=True, slots=True)
class Leak:
    """An evaluation text of which runs were found: what share, and the document that has the first of them."""

    name: str
    share: float
    document: str
    run: str


class Checker:
    """The runs of the evaluation texts, and which of them were met so far."""

    def __init__(self, texts: Mapping[str, str], length: int, shortest: int) -> None:
        self.names: list[str] = []
        self.skipped = 0
        self._vocabulary: dict[str, int] = {}
        self._words: list[str] = []
        runs: dict[int, list[tuple[int, int]]] = {}
        for name, text in texts.items():
            words = words_of(text)
            if len(words) < shortest:
                self.skipped += 1
                continue
            start, size = len(self._words), min(length, len(words))
            self._words += words
            runs.setdefault(size, []).extend(
                (start + i, len(self.names)) for i in range(len(words) - size + 1)
            )
            self.names.append(name)
        for word in self._words:
            self._vocabulary.setdefault(word, len(self._vocabulary))
        numbers = np.array([self._vocabulary[word] for word in self._words], dtype=np.int64)
        self._tables = [_RunTable(numbers, size, places) for size, places in sorted(runs.items())]
        self._where: dict[int, tuple[str, int, int]] = {}

    def read(self, document: str, text: str) -> None:
        """Look for every run in one document."""
        numbers = np.array([self._vocabulary.get(word, -1) for word in words_of(text)], dtype=np.int64)
        for table in self._tables:
            for text_number, start in table.find(numbers):
                self._where.setdefault(text_number, (document, start, table.size))

    def leaks(self) -> list[Leak]:
        """The texts of which at least one run was met, the most complete first."""
        met, total = np.zeros(len(self.names)), np.zeros(len(self.names))
        for table in self._tables:
            np.add.at(met, table.owners, table.met)
            np.add.at(total, table.owners, 1)
        leaks = []
        for number, (document, start, size) in self._where.items():
            run = " ".join(self._words[start : start + size])
            leaks.append(Leak(self.names[number], float(met[number] / total[number]), document, run))
        return sorted(leaks, key=lambda leak: (-leak.share, leak.name))


class _RunTable:
    """The runs of one length, sorted by hash."""

    def __init__(self, numbers: Longs, size: int, runs: Sequence[tuple[int, int]]) -> None:
        starts = np.array([start for start, _ in runs], dtype=np.int64)
        hashes = window_hashes(numbers, size)[starts]
        order = np.argsort(hashes, kind="stable")
        self.size, self.numbers = size, numbers
        self.hashes, self.starts = hashes[order], starts[order]
        self.owners = np.array([owner for _, owner in runs], dtype=np.int64)[order]
        self.met = np.zeros(len(runs), dtype=np.bool_)

    def find(self, document: Longs) -> list[tuple[int, int]]:
        """Mark the runs that occur in a document; those met for the first time, as (text, start of the run)."""
        if document.size < self.size:
            return []
        fresh = mark_runs(document, self.size, self.numbers, self.hashes, self.starts, self.met)
        return [(int(self.owners[i]), int(self.starts[i])) for i in fresh]


@numba.njit(cache=True, nogil=True)
def window_hashes(numbers: Longs, size: int) -> NDArray[np.uint64]:
    """A polynomial hash of each window of `size` numbers; 0 for windows that do not fit."""
    hashes = np.zeros(numbers.size, dtype=np.uint64)
    top = np.uint64(1)
    for _ in range(size - 1):
        top *= BASE
    value = np.uint64(0)
    for i in range(numbers.size):
        if i >= size:
            value -= top * np.uint64(numbers[i - size] + 2)
        value = value * BASE + np.uint64(numbers[i] + 2)
        if i >= size - 1:
            hashes[i - size + 1] = value
    return hashes


@numba.njit(cache=True, nogil=True)
def mark_runs(
    document: Longs,
    size: int,
    numbers: Longs,
    hashes: NDArray[np.uint64],
    starts: Longs,
    met: NDArray[np.bool_],
) -> Longs:
    """Rows of the table whose run stands in the document and was not met before; they are marked."""
    fresh = np.empty(hashes.size, dtype=np.int64)
    n, known = 0, 0
    windows = window_hashes(document, size)
    for i in range(document.size):
        known = known + 1 if document[i] >= 0 else 0
        if known < size:
            continue
        first = i - size + 1
        row = np.searchsorted(hashes, windows[first])
        while row < hashes.size and hashes[row] == windows[first]:
            same = not met[row]
            for j in range(size):
                same = same and numbers[starts[row] + j] == document[first + j]
            if same:
                met[row] = True
                fresh[n] = row
                n += 1
            row += 1
    return fresh[:n]


def named_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every document or passage with its id."""
    for record in records(path):
        if isinstance(record, Document | Passage):
            yield record.id, f"{record.title} {record.text}"


class LeakageConfig(Config):
    """`liebig analyse leakage`: evaluation texts that stand in pre-training text."""

    evaluation: InputPath = Field(description="Collection or file of questions used for evaluation.")
    corpus: tuple[InputPath, ...] = Field(description="Collections or files used for training.")
    split: str | None = Field(None, description="Split whose queries are checked [default: all queries].")
    length: int = Field(
        13,
        ge=2,
        description=(
            "Number of consecutive words that count as a leak; shorter texts are matched as a whole."
        ),
    )
    shortest: int = Field(5, ge=1, description="Texts with fewer words are not checked.")
    examples: int = Field(50, ge=0, description="Maximum number of leaks to list.")


def run(config: LeakageConfig, folder: Folder) -> None:
    """Evaluation texts inside pre-training texts."""
    task = read_task(config.evaluation, split=config.split)
    checker = Checker(
        {name: query.text for name, query in task.queries.items()}, config.length, config.shortest
    )
    with Progress("reading the corpus", unit="texts") as bar:
        for path in config.corpus:
            for name, text in named_texts(path):
                checker.read(name, text)
                bar.advance()
    leaks = checker.leaks()
    tree = {"checked": len(checker.names), "too_short": checker.skipped, "leaked": len(leaks)}
    folder.write_json("leakage.json", tree | {"leaks": [asdict(leak) for leak in leaks]})
    rows = [[leak.name, leak.run, leak.document, f"{leak.share:.0%}"] for leak in leaks[: config.examples]]
    write_table(
        folder, "leakage.md", ["query", "run of words", "found in", "share of its runs"], rows, left=3
    )
    show(
        f"{len(leaks)} of {len(checker.names)} texts have a run of {config.length} words (or all of their words) in "
        f"the corpus; {checker.skipped} were shorter than {config.shortest} words and not checked."
    )


STAGE = Stage(
    "analyse leakage",
    LeakageConfig,
    run,
    "liebig analyse leakage runs/wiki --evaluation runs/collection --out runs/leakage",
    positional="corpus",
)
