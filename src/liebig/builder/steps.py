"""The values that the steps of a build hand on: what was read, what is asked, and which encoders are compared.

A build goes read → index → questions → (training | teacher | own questions) → check → write (`build.py`). Each step
takes such values and returns new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from liebig.builder.signs import CorpusSigns

BY_SENTENCES = 1_000_000  # up to this many passages, their sentences have vectors too: some five to ten each


@dataclass(frozen=True)
class IndexedCorpus:
    """What was read: passages, how many, what they look like, BM25 over all of them, and the main language."""

    collection: Path
    passages: int
    signs: CorpusSigns
    bm25: Path
    language: str

    @property
    def by_sentences(self) -> bool:
        """Whether sentences have vectors too."""
        return self.passages <= BY_SENTENCES and self.signs.has_sentences


@dataclass(frozen=True)
class Exam:
    """Questions that systems are compared by, and the pool of passages they are asked against.

    `questions` are the user's own where any are judged, else those made from the corpus (`made`), which are asked too.
    """

    questions: Path
    made: Path
    judged: int  # questions of the user's own
    pool: Path
    bm25: Path
    made_bm25: Path


@dataclass(frozen=True)
class Candidate:
    """An encoder that the check compares, by the name that it has there.

    `pool` has its vectors of the pool. One that a user's questions trained has `parts`, too: vectors of the pool by
    encoders that were trained without a part of them, and the same of sentences.
    """

    name: str
    model: Path
    pool: Path | None = None
    query: Path | None = None  # the model of questions, where it is another one
    vectors: Path | None = None  # of all passages, where they were made before the check
    parts: tuple[Path, ...] = ()
    sentence_parts: tuple[Path, ...] = ()
    display_only: bool = False
    made: Path | None = (
        None  # its vectors of the pool of questions made from the corpus, where that is another
    )
