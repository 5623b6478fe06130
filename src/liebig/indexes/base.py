"""What every vector index can do: five verbs and a few questions.

An index numbers its vectors in the order they came. A folder it was saved to is never changed: adding and deleting
happen on an opened index, which is saved to another folder (old shards are linked, so that costs little).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.vectors.quantise import Floats
from liebig.vectors.ranked import Ranked

INDEX = "index.json"


@dataclass(frozen=True)
class Recall:
    """Recall@k wanted (0: the effort was given instead) and measured, on so many queries."""

    k: int
    wanted: float
    measured: float
    queries: int


class Index(ABC):
    """Vectors that can be searched by inner product."""

    kind: str
    width: int
    about: Mapping[str, Any]  # how the vectors were made: model, side, prompts

    @abstractmethod
    def __len__(self) -> int:
        """Vectors that are there."""

    @abstractmethod
    def add(self, ids: Sequence[str], vectors: Floats) -> None:
        """Add vectors; one whose id is already there takes its place."""

    @abstractmethod
    def delete(self, ids: Iterable[str]) -> list[str]:
        """Take vectors out; gives the ids that were not there."""

    @abstractmethod
    def search(self, queries: Floats, k: int) -> Ranked:
        """The k best of every query: numbers and scores, best first, of equal scores the one added first."""

    @abstractmethod
    def id(self, number: int) -> str:
        """The id of a vector found."""

    @abstractmethod
    def find(self, id: str) -> int | None:
        """The number of a vector that is there."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything below a folder that a stage will finish."""

    @property
    def knob(self) -> str | None:
        """What trades speed for recall (nprobe, efSearch); None where everything is looked at."""
        return None

    def set_effort(self, effort: int) -> None:
        """Turn the knob."""
        raise AssertionError(f"an index of kind {self.kind} has no knob")

    @property
    def most_effort(self) -> int:
        """The largest effort that makes a difference."""
        return 4096

    @property
    def exhaustive(self) -> bool:
        """Whether every vector is looked at, so that there is no recall to measure."""
        return False

    recall: Recall | None = None

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What is in the index, for people."""
