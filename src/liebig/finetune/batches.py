"""The batch of a step: each query with the passages it meets this epoch, and what is known about them.

Which passages meet is decided for the whole batch from numbers alone; tokens are copied for this process's share.
Marks (targets, false negatives, own group, teacher's scores) name passages by their column in the whole batch, so a
loss over all processes needs no further exchange. Random negatives come from the whole collection: their numbers
follow those of the passages that examples name, and they are read and tokenised when drawn, so that none is held.
Cost: about 10 µs an example, and 40 for a passage drawn; threads prepare it ahead.

n examples, g passages of a group, N passages of the batch, P positives, X excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.data.collection import Collection
from liebig.model.packed import Packed
from liebig.text.layout import RoleLayout
from liebig.text.rows import Rows, bounds, counted, picked
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.labelled import rotation
from liebig.train.labelled.examples import Examples, content_of
from liebig.train.labelled.samplers import Sampler
from liebig.train.labelled.texts import Texts

Longs = NDArray[np.int64]
TARGETS, EXCLUDE, MEMBERS, TEACHER = "targets", "exclude", "members", "teacher"


@dataclass(frozen=True)
class Choice:
    """How many positives and negatives a query brings, and how they change from epoch to epoch."""

    negatives: int = 7
    positives: int = 1
    rotate: bool = True
    hard: float = 1.0
    seed: int = 0
    pool: int = 0  # passages of the collection, of which random negatives are drawn

    def group(self, examples: Examples, example: int, epoch: int) -> Group:
        """The passages of an example at this visit, positives first."""
        mine, other = examples.positives[example], examples.negatives[example]
        kept = rotation.positives(len(mine), example, epoch, self.seed, self.positives, self.rotate)
        places = rotation.negatives(len(other), example, epoch, self.seed, self.negatives, self.rotate)
        drawn = rotation.softened(
            other[places].tolist(),
            self.hard,
            example,
            epoch,
            self.seed,
            self.negatives,
            range(len(examples.passages), len(examples.passages) + self.pool),
        )
        scores = None
        if examples.scores is not None and self.hard >= 1.0:
            scores = examples.teacher(example)[[*kept, *(len(mine) + p for p in places)]]
        return Group(np.array([*mine[kept].tolist(), *drawn], np.int64), len(kept), scores)


@dataclass(frozen=True)
class Group:
    """Numbers of passages, how many of them (the first) are positives, and a teacher's scores."""

    passages: Longs
    positives: int
    scores: NDArray[np.float32] | None


@dataclass(frozen=True)
class Drawn:
    """The passages of a whole collection by their places in its index; none is held."""

    collection: Collection
    layout: RoleLayout

    def content(self, places: Longs) -> Longs:
        texts = (self.collection.passage_at(i).text for i in places.tolist())
        return np.fromiter(map(content_of, texts), np.int64, len(places))

    def rows(self, places: Longs) -> Rows:
        return self.layout.ids([self.collection.passage_at(i) for i in places.tolist()])


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step, as a function of the step."""

    examples: Examples
    queries: Texts
    passages: Texts
    sampler: Sampler
    choice: Choice
    world: World
    mask: bool = True
    drawn: Drawn | None = None

    def __call__(self, step: int) -> Batch:
        chosen, epoch = self.sampler(step), self.sampler.epoch(step)
        groups = [self.choice.group(self.examples, int(i), epoch) for i in chosen]
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        content = self._content(np.concatenate([group.passages for group in groups])) if self.mask else None
        marks = marked(self.examples, chosen, groups, content)
        mine = groups[first:last]
        owner = np.repeat(np.arange(last - first), [len(group.passages) for group in mine])
        sides = {
            "query": Side(self.queries.packed(chosen[first:last]), torch.arange(last - first)),
            "passage": Side(
                self._packed(np.concatenate([group.passages for group in mine])),
                torch.from_numpy(owner),
            ),
        }
        return Batch(sides, last - first, {name: x[first:last] for name, x in marks.items()})

    def _content(self, numbers: Longs) -> Longs:
        """The contents of passages, named or drawn."""
        named = len(self.examples.passages)
        far = numbers >= named
        found = self.examples.content[np.where(far, 0, numbers)]
        if self.drawn is not None and far.any():
            found[far] = self.drawn.content(numbers[far] - named)
        return found

    def _packed(self, numbers: Longs) -> Packed:
        """The tokens of passages, named or drawn, in the order given."""
        named = len(self.examples.passages)
        far = numbers >= named
        if self.drawn is None or not far.any():
            return self.passages.packed(numbers)
        parts = self.passages.rows(numbers[~far]), self.drawn.rows(numbers[far] - named)
        offsets = bounds(np.concatenate([np.diff(offsets) for _, offsets in parts]))
        order = np.argsort(np.argsort(far, kind="stable"), kind="stable")
        return Packed.from_numpy(*picked((np.concatenate([row for row, _ in parts]), offsets), order))


def marked(
    examples: Examples, chosen: Longs, groups: Sequence[Group], content: Longs | None
) -> dict[str, Tensor]:
    """Columns of the whole batch by example: its positives, its own group, what must not count against it.

    `content` is that of every column, and none where nothing is left out.
    """
    sizes = np.array([len(group.passages) for group in groups])
    positives = np.array([group.positives for group in groups])
    starts = np.cumsum(sizes) - sizes
    marks = {
        TARGETS: padded(counted(starts, positives), positives),
        MEMBERS: padded(counted(starts, sizes), sizes),
    }
    if content is not None:
        marks[EXCLUDE] = padded(*false_negatives(examples, chosen, content, starts, positives))
    if all(group.scores is not None for group in groups):
        scores = np.concatenate([group.scores for group in groups if group.scores is not None])
        marks[TEACHER] = padded(scores, sizes, 0.0)
    return marks


def false_negatives(
    examples: Examples, chosen: Longs, content: Longs, starts: Longs, positives: Longs
) -> tuple[Longs, Longs]:
    """The columns, other than its targets, whose text is known to be relevant to an example; how many each has."""
    order = np.argsort(content, kind="stable")
    ordered, bounds = content[order], examples.relevant.bounds
    sizes = bounds[chosen + 1] - bounds[chosen]
    known = examples.relevant.values[counted(bounds[chosen], sizes)]
    first = np.searchsorted(ordered, known)
    found = np.searchsorted(ordered, known, side="right") - first
    row = np.repeat(np.repeat(np.arange(len(chosen)), sizes), found)
    column = order[counted(first, found)]
    other = (column < starts[row]) | (column >= (starts + positives)[row])
    row, column = row[other], column[other]
    return column[np.lexsort((column, row))], np.bincount(row, minlength=len(chosen))


def padded(values: Longs | NDArray[np.float32], sizes: Longs, fill: float = -1) -> Tensor:
    """Rows of so many values each as one tensor, filled up at the end."""
    width = int(sizes.max(initial=0))
    out = np.full((len(sizes), width), fill, values.dtype)
    out[np.arange(width) < sizes[:, None]] = values
    return torch.from_numpy(out)


def pairs(columns: Tensor) -> Tensor:
    """(row, column) of every entry of padded rows in host memory, X × 2."""
    rows, places = (columns >= 0).nonzero(as_tuple=True)
    return torch.stack((rows, columns[rows, places]), dim=1)
