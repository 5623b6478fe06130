"""What contrastive training, distillation and learning to rank share: a retriever, its batches and its data.

A retriever has a query tower and a passage tower, or one for both. `represent` encodes queries and passages, in one row
where they share a tower; `contrast` hands all vectors and the batch's marks to the losses, each with a weight. Cost:
the encoder on both sides, one more pass without gradient when a batch is cut into chunks, and the loss's three matrix
products.

A batch holds queries with the passages they meet this epoch. Which ones is decided for the whole batch from numbers
alone; tokens are copied for this process's share. Marks (targets, false negatives, own group, teacher's scores) name
passages by their column in the whole batch, so a loss over all processes needs no further exchange. Random negatives
come from the whole collection: their numbers follow those of the passages that examples name, and they are read and
tokenised when drawn, so none is held in memory. Cost: about 10 µs per example and 40 per random passage, in threads
ahead of training.

n examples, g passages of a group, N passages of the batch, P positives, X excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from liebig.base.progress import counted
from liebig.collection import Collection
from liebig.methods.dev_evaluation import too_small
from liebig.methods.finetune_base import QUERY, FinetuneObjective, FinetuneRecipe, Run
from liebig.methods.labelled import Examples, cache_tokens, content_of, read_examples, tokenise
from liebig.methods.samplers import GroupChoice, LabelledRun, PassageGroup, Sampler
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged, ranges
from liebig.text.layout import RoleLayout
from liebig.train.batch import Batch, Side, joined, unweave, weave, woven
from liebig.train.distributed import World
from liebig.train.loop import Epochs
from liebig.train.objective import Contrast, Represented
from liebig.train.stage import MODEL, Data

SCHEDULE = "schedule"
Longs = NDArray[np.int64]
TARGETS, EXCLUDE, MEMBERS, TEACHER = "targets", "exclude", "members", "teacher"


@dataclass(frozen=True)
class RandomPassages:
    """The passages of a whole collection by their places in its index; none is held in memory."""

    collection: Collection
    layout: RoleLayout

    def content(self, places: Longs) -> Longs:
        texts = (self.collection.passage_at(i).text for i in places.tolist())
        return np.fromiter(map(content_of, texts), np.int64, len(places))

    def rows(self, places: Longs) -> Ragged:
        return self.layout.ids([self.collection.passage_at(i) for i in places.tolist()])


@dataclass(frozen=True)
class RetrievalBatches:
    """This process's share of the batch of a step, as a function of the step."""

    examples: Examples
    queries: Ragged
    passages: Ragged
    sampler: Sampler
    choice: GroupChoice
    world: World
    mask: bool = True
    random: RandomPassages | None = None

    def __call__(self, step: int) -> Batch:
        chosen, epoch = self.sampler(step), self.sampler.epoch(step)
        groups = [self.choice.group(self.examples, int(i), epoch) for i in chosen]
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        content = self._content(np.concatenate([group.passages for group in groups])) if self.mask else None
        marks = mark_columns(self.examples, chosen, groups, content)
        mine = groups[first:last]
        owner = np.repeat(np.arange(last - first), [len(group.passages) for group in mine])
        sides = {
            "query": Side(
                Packed.from_ragged(self.queries.take(chosen[first:last])), torch.arange(last - first)
            ),
            "passage": Side(
                self._packed(np.concatenate([group.passages for group in mine])), torch.from_numpy(owner)
            ),
        }
        return Batch(sides, last - first, {name: x[first:last] for name, x in marks.items()})

    def _content(self, numbers: Longs) -> Longs:
        """The contents of passages, those of examples and random ones."""
        named = len(self.examples.passages)
        far = numbers >= named
        contents = self.examples.content[np.where(far, 0, numbers)]
        if self.random is not None and far.any():
            contents[far] = self.random.content(numbers[far] - named)
        return contents

    def _packed(self, numbers: Longs) -> Packed:
        """The tokens of passages, those of examples and random ones, in the order given."""
        named = len(self.examples.passages)
        far = numbers >= named
        if self.random is None or not far.any():
            return Packed.from_ragged(self.passages.take(numbers))
        parts = self.passages.take(numbers[~far]), self.random.rows(numbers[far] - named)
        order = np.argsort(np.argsort(far, kind="stable"), kind="stable")
        return Packed.from_ragged(Ragged.concatenate(parts, np.int32).take(order))


def mark_columns(
    examples: Examples, chosen: Longs, groups: Sequence[PassageGroup], content: Longs | None
) -> dict[str, Tensor]:
    """Columns of the whole batch by example: its positives, its own group, what must not count against it.

    `content` is that of every column, and none where nothing is left out.
    """
    sizes = np.array([len(group.passages) for group in groups])
    positives = np.array([group.positives for group in groups])
    starts = np.cumsum(sizes) - sizes
    marks = {
        TARGETS: padded(ranges(starts, positives), positives),
        MEMBERS: padded(ranges(starts, sizes), sizes),
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
    ordered, bounds = content[order], examples.relevant.offsets
    sizes = bounds[chosen + 1] - bounds[chosen]
    known = examples.relevant.values[ranges(bounds[chosen], sizes)]
    first = np.searchsorted(ordered, known)
    matches = np.searchsorted(ordered, known, side="right") - first
    row = np.repeat(np.repeat(np.arange(len(chosen)), sizes), matches)
    column = order[ranges(first, matches)]
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


SIDES = ("query", "passage")


@dataclass(frozen=True)
class BatchVectors:
    """What a loss may look at: this process's queries, all passages, the batch's marks, queries over all processes."""

    queries: Tensor
    passages: Tensor
    batch: Batch
    total: int

    def targets(self) -> Tensor:
        """The positive of each query, or entries (query, passage) where one has several."""
        targets = self.batch.extras[TARGETS]
        if targets.shape[1] == 1:
            return targets[:, 0]
        several = self.batch.on_host(TARGETS)
        assert several is not None
        return pairs(several)

    def exclude(self) -> Tensor | None:
        """Entries (query, passage) that must not count."""
        columns = self.batch.on_host(EXCLUDE)
        return None if columns is None or not columns.shape[1] else pairs(columns)


class Loss(Protocol):
    """A loss of the vectors of a batch: this process's share of the mean, and of the metrics."""

    def __call__(self, vectors: BatchVectors) -> Contrast: ...


class RetrievalObjective(FinetuneObjective):
    """A query tower and a passage tower, the same one if they are tied.

    `mask` leaves passages that are known to be relevant, or have a positive's text, out of the negatives.
    """

    class Config(FinetuneObjective.Config):
        """What every retriever's recipe has in common."""

        roles: ClassVar[bool] = True

        def check(self, recipe: FinetuneRecipe) -> None:
            if recipe.loop.batch == 1 and recipe.negatives == 0:
                raise ValueError(
                    "a batch of one query without negatives has nothing to contrast: set loop.batch = 2"
                )

    needs_scores: ClassVar[bool] = False
    """Whether a teacher must have scored every passage of every group."""

    def __init__(
        self,
        query: Encoder,
        passage: Encoder | None = None,
        *,
        loss: Sequence[tuple[float, Loss]] = (),
        mask: bool = True,
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(
            {"query": query} if passage is None else {"query": query, "passage": passage}
        )
        self.loss, self.mask = tuple(loss), mask

    def tower(self, side: str) -> Encoder:
        tower = self.towers[side] if side in self.towers else self.towers["query"]
        assert isinstance(tower, Encoder), "a tower is an encoder"
        return tower

    @property
    def encoders(self) -> Mapping[str, Encoder]:
        both = {MODEL: self.tower("passage"), QUERY: self.tower("query")}
        return both if len(self.towers) == 2 else {MODEL: self.tower("query")}

    def represent(self, chunk: Batch) -> Represented:
        if len(self.towers) == 1:
            return Represented(woven(chunk, self.tower("query")(joined(chunk, SIDES)), SIDES))
        return Represented(weave(chunk, {name: self.tower(name)(chunk.sides[name].packed) for name in SIDES}))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        gathered = self.gather(vectors, batch, world)
        value = gathered.queries.new_zeros(())
        metrics: dict[str, Tensor] = {}
        for weight, loss in self.loss:
            contrast = loss(gathered)
            value = value + contrast.loss * weight
            metrics = {**contrast.metrics, **metrics}
        return Contrast(value, metrics)

    def gather(self, vectors: Tensor, batch: Batch, world: World) -> BatchVectors:
        """This process's vectors of queries and the passages of all processes."""
        sides = unweave(batch, vectors, SIDES)
        passages = world.gather(sides["passage"])
        total = int(world.total(torch.tensor(batch.n)))
        return BatchVectors(sides["query"], passages.rows, batch, total)

    def scores(self, query: NDArray[np.float32], passages: NDArray[np.float32]) -> NDArray[np.floating]:
        """How a query's vector ranks passages, given one vector per row."""
        return passages @ query

    def compile(self, *args: Any, **kwargs: Any) -> None:
        for tower in self.towers.values():
            assert isinstance(tower, Encoder), "a tower is an encoder"
            tower.backbone.compile(*args, **kwargs)

    def data(self, run: Run) -> Data:
        config, world = run.config, run.world
        collection = Collection(config.collection)
        labelled = read_examples(
            collection,
            config.split,
            groups=config.groups,
            relevant=config.relevant,
            queries=config.limit,
            subset_seed=config.limit_seed,
            scored=self.needs_scores,
        )
        examples = labelled.examples
        run.say(
            f"{counted(len(examples), 'queries')}, {counted(len(examples.passages), 'passages')}, "
            f"{len(examples.negatives.values) / len(examples):.1f} negatives per query"
        )
        layouts = self.tower("query").layout_for("query"), self.tower("query").layout_for("passage")
        queries = cache_tokens(run.cache / "queries", tokenise(labelled.queries, layouts[0]), world)
        passages = cache_tokens(run.cache / "passages", tokenise(labelled.passages, layouts[1]), world)
        scheduled = LabelledRun(self, examples, queries, passages, run.folder / SCHEDULE)
        sampler = config.batching.sampler(len(examples), config.loop, world, scheduled)
        pool = collection.count("passages") if config.hard < 1 else 0
        choice = GroupChoice(
            config.negatives, config.positives, config.rotate, config.hard, config.seed, pool
        )
        random = RandomPassages(collection, layouts[1]) if pool else None
        batches = RetrievalBatches(examples, queries, passages, sampler, choice, world, self.mask, random)
        dev = config.evaluation.read(
            collection,
            layouts,
            run.cache / "dev",
            world,
            self.tower("query").similarity,
            getattr(config.objective, "temperature", 1.0),  # of losses that have one
        )
        if dev is not None and (warning := too_small(len(dev.query_ids))) is not None:
            run.say(warning)
        return Data(
            batches,
            Epochs(sampler.steps, sampler.begin),
            evaluate=None if dev is None else lambda _: dev(self),
        )
