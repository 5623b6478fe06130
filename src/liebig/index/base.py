"""What every vector index can do: five verbs and a few questions.

An index numbers its vectors in the order they came. A folder it was saved to is never changed: adding and deleting
happen on an opened index, which is saved to another folder (old shards are linked, so that costs little).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from liebig.data.ranked import Ranked
from liebig.index.quantise import Floats

INDEX = "index.json"


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

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What is in the index, for people."""
