"""What an index back end is: one class with its `Config` inside, in one file, named by one line of a table.

A back end builds an index from a folder of vectors, extends it, saves it to a folder, opens it again, searches it and
checks it. It numbers its vectors in the order they came. A saved folder is never changed: adding and deleting happen
on an opened index, which is saved to another folder (shards on disk are linked, so that costs little).

To add a back end: subclass `Index`, give it a `kind` and a `Config`, write the abstract methods, and name the class in
`liebig.indexes.BUILT_IN`, or in the entry point group `liebig.indexes` of another package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from liebig import encoders
from liebig.base import config
from liebig.base.json_file import FileModel
from liebig.formats.on_disk import DiskSource
from liebig.formats.rows import text_lines
from liebig.indexes import exact_cpu
from liebig.indexes.recall import Recall, RecallGoal, draw, measure
from liebig.vectors import Shard, Vectors
from liebig.vectors.quantise import Floats
from liebig.vectors.ranked import Ranked

INDEX = "index.json"  # in a saved index; its "kind" names the back end


class IndexFile(FileModel):
    """`index.json`; a back end adds what it keeps there."""

    kind: str


CHUNK = 8192  # vectors decoded and added at once
CHECK_K, CHECK_QUERIES = 10, 200  # what `check` measures recall with
TOLERANCE = 0.02  # below the recall it was built for, because the sample is another


def ignore(count: int) -> None:
    """The progress callback of a caller that shows none."""


class Index(ABC):
    """Vectors that can be searched by inner product."""

    class Config(config.Config):
        """Options of `liebig index`; `kind` is a Literal with the back end's name."""

        kind: str

        @property
        def goal(self) -> RecallGoal:
            """The recall that a new index is tuned for, if the back end is approximate."""
            return RecallGoal()

    kind: ClassVar[str]
    width: int
    about: Mapping[str, Any]  # how the vectors were made: model, role, prompts
    folder: Path | None = None  # where it was opened
    recall: Recall | None = None

    @classmethod
    @abstractmethod
    def build(
        cls,
        config: Any,
        vectors: Vectors,
        folder: Path,
        *,
        seed: int = 0,
        done: Callable[[int], None] = ignore,
    ) -> Self:
        """A new index of the vectors; `config` is a `cls.Config`, `done` counts the vectors taken in.

        Files that are too large for memory may be written below `folder`, where the index will be saved.
        """

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, *, threads: int | None = None, device: str | None = None) -> Self:
        """What `save` wrote; the files' hashes have been checked."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the index, with its kind in `index.json`, into the folder of a stage."""

    def extend(self, vectors: Vectors, folder: Path, *, done: Callable[[int], None] = ignore) -> None:
        """Add a folder of vectors; files may be written below `folder`, where the index will be saved."""
        for ids, rows in vectors.chunks(CHUNK):
            self.add(ids, rows)
            done(len(ids))

    @abstractmethod
    def add(self, ids: Sequence[str], vectors: Floats) -> None:
        """Add vectors; one whose id is already there is replaced."""

    @abstractmethod
    def delete(self, ids: Iterable[str]) -> list[str]:
        """Remove vectors; returns the ids that were not there."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of vectors, deleted ones not counted."""

    @abstractmethod
    def search(self, queries: Floats, k: int) -> Ranked:
        """The k best of every query: numbers and scores, best first; of equal scores the one added first."""

    @abstractmethod
    def id(self, number: int) -> str:
        """The id of a vector."""

    @abstractmethod
    def find(self, id: str) -> int | None:
        """The number of the vector with this id."""

    def vectors_of(self, text: str, pieces: bool) -> list[tuple[str, int]]:
        """Ids and numbers of a text's vectors: that under its own id, or those of its pieces text#0, text#1, …"""
        found: list[tuple[str, int]] = []
        while (number := self.find(id := f"{text}#{len(found)}" if pieces else text)) is not None:
            found.append((id, number))
            if not pieces:
                break
        return found

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What is in the index, for people."""

    @property
    def model(self) -> Path | None:
        """The model of its queries: a folder, or `liebig:NAME`; None where nothing says.

        A relative path was right in some directory above the index when it was made, so that is where it is looked
        for first, wherever the process runs: an index and its model can be moved together. It is never a name on
        the hub.
        """
        name = self.about.get("query_model", self.about.get("model"))
        if name is None or self.folder is None or str(name).startswith(encoders.PREFIX):
            return None if name is None else Path(name)
        places = (*self.folder.resolve().parents, Path.cwd())
        return next((folder / name for folder in places if (folder / name).is_dir()), places[0] / name)

    def stored(self) -> Sequence[Shard] | None:
        """The vectors as they are stored; None where the back end does not keep them on disk."""
        return None

    def search_masked(self, queries: Floats, k: int, mask: NDArray[np.bool_]) -> Ranked:
        """The k best vectors among those of a mask, by scoring all that are stored."""
        shards = self.stored()
        assert shards is not None, "the caller looked"
        return exact_cpu.search(queries, exact_cpu.without_others(shards, mask), k)

    @property
    def fragmented(self) -> bool:
        """Whether so many additions and deletions were made that the vectors should be written anew."""
        return False

    @property
    def exhaustive(self) -> bool:
        """Whether every vector is scored, so that there is no recall to measure."""
        return False

    @property
    def knob(self) -> str | None:
        """The parameter that trades speed for recall (nprobe, efSearch); None where there is none."""
        return None

    @property
    def effort(self) -> int | None:
        return None

    def set_effort(self, effort: int) -> None:
        raise AssertionError(f"an index of kind {self.kind} has no knob")

    @property
    def most_effort(self) -> int:
        """The largest effort that makes a difference."""
        return 4096

    @property
    def goal(self) -> RecallGoal:
        """What to tune for after vectors were added: as before, or the same effort where that was given."""
        if self.recall is None:
            return RecallGoal()
        fixed = self.effort if self.recall.wanted == 0 else None
        return RecallGoal(self.recall.k, self.recall.wanted, effort=fixed)

    def check(self) -> tuple[str, bool]:
        """What `liebig doctor` says about the index's recall, measured now, and whether it is good."""
        if self.exhaustive:
            return "1, every vector is scored", True
        shards = self.stored()
        if shards is None:
            built = "unknown" if self.recall is None else f"{self.recall.measured}"
            return (
                f"{built} when it was built; not measured again, because the vectors are not stored here",
                True,
            )
        value = measure(self, draw(shards, CHECK_K, CHECK_QUERIES))
        target = self.recall.wanted if self.recall is not None else 0.0
        return f"{value:.3f} of the {CHECK_K} best are found; goal {target:g}", value >= target - TOLERANCE


class ApproximateConfig(Index.Config):
    """Options of back ends that look at some of the vectors only: recall is measured, reached and recorded."""

    recall: float = Field(
        0.95, gt=0, le=1, description="Recall@k to reach; nprobe or ef is raised until the index reaches it."
    )
    recall_at: int = Field(100, ge=1, description="k of the recall.")
    sample: int = Field(1000, ge=1, description="Number of queries to measure recall with.")

    @property
    def given_effort(self) -> int | None:
        """The value of the knob, where the user sets it."""
        return None

    @property
    def goal(self) -> RecallGoal:
        return RecallGoal(self.recall_at, self.recall, self.sample, self.given_effort)


class ChangeConfig(config.Config):
    """Options of the commands that build an index or change an older one (`liebig index`, `liebig bm25`)."""

    base: config.InputPath | None = Field(None, description="Index to add to; its settings are kept.")
    delete: config.InputPath | None = Field(
        None, description="File of ids to delete from `base`, one per line."
    )

    @model_validator(mode="after")
    def _has_a_base_to_delete_from(self) -> Self:
        if self.delete is not None and self.base is None:
            raise ValueError("delete needs a base to delete from")
        return self

    def ids_to_delete(self) -> list[str]:
        """The lines of `delete`."""
        return [] if self.delete is None else [line for _, line in text_lines(DiskSource(self.delete))]
