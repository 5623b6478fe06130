"""Training examples of a collection: queries with their positives and negatives, as arrays of numbers.

Groups files (of the collection, or of `liebig mine`) are read, or judgements where there are none; several files give
one example a query with the negatives of all. Everything wrong with them is found here, before the first step, and
said with file and line. Cost: one pass over the files and one over the passages; 8 bytes for each id named.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.machine import cores, helpers, in_order
from liebig.base.progress import Progress
from liebig.base.records import Group, Passage, Query
from liebig.collection.collection import Collection
from liebig.collection.lookup import hash64
from liebig.formats.items import Where
from liebig.model.packed import Packed
from liebig.ragged import Rows, bounds, picked
from liebig.text.layout import AT_ONCE, Record, RoleLayout
from liebig.train.distributed import World

# Queries or passages of a collection become tokens, in several processes where there are many of them.
#
# A process finds its texts by their ids, so this one only joins what comes back, in order: the tokens are
# the same for any number of processes. Cost: about 40 microseconds a passage of 100 words and core; no
# torch is imported.

LEAST = 8  # tasks that a process is started for


@dataclass(frozen=True)
class Named:
    """Queries or passages of a collection by their ids, in this order."""

    collection: Path
    kind: Literal["query", "passage"]
    ids: Sequence[str]


def tokenised(named: Named, layout: RoleLayout) -> Iterator[Rows]:
    """The tokens of all texts, some thousand at a time."""
    work = Work(named.collection, named.kind, layout)
    tasks = [named.ids[at : at + AT_ONCE] for at in range(0, len(named.ids), AT_ONCE)]
    processes = min(cores(), len(tasks) // LEAST)
    if processes < 2:
        yield from map(work, tasks)
        return
    with (
        Progress(f"tokenise {named.kind} texts", len(named.ids), "texts") as bar,
        helpers(processes, _set_up, work) as pool,
    ):
        for task, rows in zip(tasks, in_order(pool, _made, tasks, 2 * processes)):
            yield rows
            bar.advance(len(task))


class Work:
    """Finds texts by their ids and tokenises them; a process that gets it opens the collection for itself."""

    def __init__(self, collection: Path, kind: Literal["query", "passage"], layout: RoleLayout) -> None:
        self._collection, self._kind, self._layout = Collection(collection), kind, layout

    def __call__(self, ids: Sequence[str]) -> Rows:
        found = self._collection.query if self._kind == "query" else self._collection.passage
        return self._layout.ids([found(name) for name in ids])


_work: list[Work] = []


def _set_up(work: Work) -> None:
    os.putenv("TOKENIZERS_PARALLELISM", "false")  # one thread here: there is a process for every core
    _work.append(work)


def _made(ids: Sequence[str]) -> Rows:
    return _work[0](ids)


Longs = NDArray[np.int64]


class Placed(NamedTuple):
    """A group and where it stands."""

    group: Group
    where: Where


@dataclass
class Draft:
    """An example while files are read: ids in order of appearance, with scores where every file has them.

    `where` is the line that named the query first, `later` has the ids that only further lines named.
    """

    query: str
    where: Where
    positives: dict[str, float | None] = field(default_factory=dict)
    negatives: dict[str, float | None] = field(default_factory=dict)
    later: dict[str, Where] = field(default_factory=dict)

    def add(self, group: Group, where: Where) -> None:
        """Take over what a line says about the query."""
        if where is not self.where:
            named = (*group.positives, *group.negatives)
            new = (i for i in named if i not in self.positives and i not in self.negatives)
            self.later |= dict.fromkeys(new, where)
        for mine, ids, scores in (
            (self.positives, group.positives, group.positive_scores),
            (self.negatives, group.negatives, group.negative_scores),
        ):
            given: Iterable[float | None] = scores if len(scores) == len(ids) else (None,) * len(ids)
            mine.update((i, s) for i, s in zip(ids, given) if mine.get(i) is None)

    @property
    def scored(self) -> bool:
        """Whether a teacher scored every passage."""
        return all(s is not None for s in (*self.positives.values(), *self.negatives.values()))


@dataclass(frozen=True)
class Ragged:
    """Lists of numbers, one after the other."""

    values: Longs
    bounds: Longs

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> Ragged:
        rows = list(lists)
        bounds = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
        flat = np.fromiter((i for row in rows for i in row), np.int64, int(bounds[-1]))
        return cls(flat, bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> Longs:
        return self.values[self.bounds[i] : self.bounds[i + 1]]


@dataclass(frozen=True)
class Examples:
    """One example a query. Passages are numbered; `content` is equal for passages of equal text.

    `scores` are a teacher's, positives first, then negatives, where every passage of every example has one.
    """

    queries: tuple[str, ...]
    passages: tuple[str, ...]
    positives: Ragged
    negatives: Ragged
    relevant: Ragged  # per example, contents of all that is known to be relevant, sorted
    content: Longs
    scores: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def teacher(self, example: int) -> NDArray[np.float32]:
        """The teacher's scores of an example's positives and negatives."""
        assert self.scores is not None, "the groups have no scores"
        start = self.positives.bounds[example] + self.negatives.bounds[example]
        return self.scores[start : start + len(self.positives[example]) + len(self.negatives[example])]


def read_groups(folder: Path, split: str) -> Iterator[Placed]:
    """The groups of a collection or of a folder of `liebig mine`, each with its line."""
    path = folder / "groups" / f"{split}.jsonl"
    if not path.is_file():
        raise DataError(
            f"there are no groups of the split {split!r}", file=path, fix="make them with liebig mine"
        )
    yield from (Placed(group, where) for where, group in Collection(folder).placed_groups(split))


def read_judgements(collection: Collection, split: str, relevant: int) -> Iterator[Placed]:
    """Every relevant judgement as a group of one positive, with its line."""
    path = collection.path / "judgements" / f"{split}.tsv"
    if not path.is_file():
        raise DataError(f"the split {split!r} has neither groups nor judgements", file=collection.path)
    for where, found in collection.placed_judgements(split):
        if found.relevance >= relevant:
            yield Placed(Group(found.query, (found.passage,)), where)


def drafts(placed: Iterable[Placed]) -> list[Draft]:
    """One draft a query; what is wrong in itself is refused with its place."""
    found: dict[str, Draft] = {}
    for group, where in placed:
        if not group.positives:
            where.refuse(f"the query {group.query!r} has no positive", "give it one, or remove the line")
        _check_scores(group, where)
        draft = found.get(group.query)
        if draft is None:
            draft = found[group.query] = Draft(group.query, where)
        draft.add(group, where)
        named = (*group.negatives, *group.positives) if draft.negatives else ()
        both = next((i for i in named if i in draft.positives and i in draft.negatives), None)
        if both is not None:
            where.refuse(
                f"the passage {both!r} is a positive and a negative of the query {group.query!r}",
                "remove it from the negatives",
            )
    return list(found.values())


def _check_scores(group: Group, where: Where) -> None:
    for name, ids, scores in (
        ("positives", group.positives, group.positive_scores),
        ("negatives", group.negatives, group.negative_scores),
    ):
        if scores and len(scores) != len(ids):
            what = f"the query {group.query!r} has {len(ids)} {name} and {len(scores)} scores of them"
            where.refuse(what, "give every passage a score, or none")


def subset(found: Sequence[Draft], queries: int | None, seed: int) -> list[Draft]:
    """A fixed number of examples, drawn by seed; the draw of a smaller number is part of that of a larger one."""
    if queries is None or queries >= len(found):
        return list(found)
    order = np.argsort(rng.uniform(rng.key(seed, 7), np.arange(len(found))), kind="stable")
    return [found[i] for i in sorted(order[:queries].tolist())]


@dataclass(frozen=True)
class Read:
    """Examples, and their texts, in the order of their numbers."""

    examples: Examples
    queries: Named
    passages: Named


def read_examples(
    collection: Collection,
    split: str,
    *,
    groups: Sequence[Path] = (),
    relevant: int = 1,
    queries: int | None = None,
    subset_seed: int = 0,
    scored: bool = False,
) -> Read:
    """The examples of a split from groups, else from judgements; checked against the collection's texts.

    `scored` are those of which a teacher must have scored every passage.
    """
    folders = list(groups)
    if not folders and split in collection.splits_of("groups"):
        folders = [collection.path]
    placed = (
        [p for folder in folders for p in read_groups(folder, split)]
        if folders
        else read_judgements(collection, split, relevant)
    )
    chosen = subset(drafts(placed), queries, subset_seed)
    if not chosen:
        raise DataError(f"the split {split!r} has no example", file=collection.path)
    unscored = next((draft for draft in chosen if scored and not draft.scored), None)
    if unscored is not None:
        what = f"the query {unscored.query!r} has no teacher's scores, or not of every passage"
        unscored.where.refuse(what, "give groups with scores, as liebig rerank score --groups writes them")
    judged = _judged(collection, split, relevant) if folders else {}
    texts = _Checked(collection, chosen, judged)
    examples = _numbered(chosen, texts, judged)
    return Read(
        examples,
        Named(collection.path, "query", examples.queries),
        Named(collection.path, "passage", examples.passages),
    )


def content_of(text: str) -> int:
    """A number that is equal for texts of the same words."""
    return hash64(" ".join(text.split())) & 0x7FFFFFFFFFFFFFFF


class _Checked:
    """The queries and passages that drafts name: where each is first named, checked in one pass over the texts.

    `contents` also has what is judged relevant and named by no draft: it may be drawn as a random negative.
    """

    def __init__(
        self, collection: Collection, found: Sequence[Draft], judged: Mapping[str, Sequence[str]]
    ) -> None:
        self.queries = {draft.query: draft.where for draft in found}
        self.passages: dict[str, Where] = {}
        for draft in found:
            for name in (*draft.positives, *draft.negatives):
                self.passages.setdefault(name, draft.later.get(name, draft.where))
        self._check("query", self.queries, collection.queries())
        also = {i for draft in found for i in judged.get(draft.query, ())}
        self.contents = self._check("passage", self.passages, collection.passages(), also)

    @staticmethod
    def _check(
        kind: str,
        named: Mapping[str, Where],
        records: Iterable[Query | Passage],
        also: frozenset[str] | set[str] = frozenset(),
    ) -> dict[str, int]:
        """The content of each text named, and of the others of `also` that are there."""
        found: dict[str, int] = {}
        for record in records:
            if record.id in named and not record.text.strip():
                named[record.id].refuse(f"the {kind} {record.id!r} has an empty text", "remove it")
            if record.id in named or record.id in also:
                found[record.id] = content_of(record.text)
        unknown = [name for name in named if name not in found]
        if unknown:
            more = f", and {len(unknown) - 1:,} more are unknown" if len(unknown) > 1 else ""
            named[unknown[0]].refuse(
                f"the collection has no {kind} {unknown[0]!r}{more}",
                "use the collection the file was made from",
            )
        return found


def _judged(collection: Collection, split: str, relevant: int) -> dict[str, list[str]]:
    """All that is judged relevant beside what groups name, by query; none where the split has no judgements."""
    found: dict[str, list[str]] = {}
    if split in collection.splits_of("judgements"):
        for judgement in collection.judgements(split):
            if judgement.relevance >= relevant:
                found.setdefault(judgement.query, []).append(judgement.passage)
    return found


def _numbered(found: Sequence[Draft], texts: _Checked, judged: Mapping[str, Sequence[str]]) -> Examples:
    numbers = {name: i for i, name in enumerate(texts.passages)}
    content = np.fromiter((texts.contents[name] for name in numbers), np.int64, len(numbers))
    relevant = (
        sorted(
            {
                texts.contents[i]
                for i in (*draft.positives, *judged.get(draft.query, ()))
                if i in texts.contents
            }
        )
        for draft in found
    )
    scores = None
    if all(draft.scored for draft in found):
        flat = [s for draft in found for s in (*draft.positives.values(), *draft.negatives.values())]
        scores = np.array(flat, np.float32)
    return Examples(
        tuple(texts.queries),
        tuple(numbers),
        Ragged.of([numbers[i] for i in draft.positives] for draft in found),
        Ragged.of([numbers[i] for i in draft.negatives] for draft in found),
        Ragged.of(relevant),
        content,
        scores,
    )


# Which positive and which negatives a query meets in an epoch: Tevatron v1's rule, with no state.
#
# The positive is number (hash + epoch) of the query's positives, the hash being example + seed. Negatives
# are shuffled once per example with that hash, and each epoch takes the next window of the circle; where
# there are fewer than wanted they are drawn with replacement (Tevatron draws these from a global generator,
# here they follow from seed, example and epoch). Cost: 20 µs an example with 30 negatives.

CHOICE, HARD, DRAW = 0, 1, 2  # numbered streams of an example's own key


def positives(
    count: int, example: int, epoch: int, seed: int, most: int = 1, rotate: bool = True
) -> list[int]:
    """Places of the positives shown this epoch, `most` of `count` at the most, the rotation's first."""
    first = (example + seed + epoch) % count if rotate else 0
    return [(first + i) % count for i in range(min(most, count))]


def negatives(count: int, example: int, epoch: int, seed: int, wanted: int, rotate: bool = True) -> list[int]:
    """Places of the negatives shown this epoch, `wanted` of them where there are any at all."""
    if not wanted or not count:
        return []
    if count < wanted:
        draws = rng.below(rng.key(seed, epoch, example, CHOICE), np.arange(wanted), count)
        return [int(i) for i in draws]
    places = list(range(count))
    if rotate:
        random.Random(example + seed).shuffle(places)
        start = epoch * wanted % count
        places = (places * 2)[start : start + wanted]
    return places[:wanted]


def softened(
    chosen: Sequence[int], hard: float, example: int, epoch: int, seed: int, wanted: int, pool: range
) -> list[int]:
    """Numbers of passages: each chosen one with the chance `hard`, else a random one of `pool` (Contriever, A).

    Without enough chosen ones the rest is random too, if `hard` is less than 1.
    """
    if hard >= 1.0:
        return list(chosen)
    keep = rng.uniform(rng.key(seed, epoch, example, HARD), np.arange(wanted)) < hard
    drawn = rng.below(rng.key(seed, epoch, example, DRAW), np.arange(wanted), len(pool))
    return [int(chosen[i]) if i < len(chosen) and keep[i] else pool[int(drawn[i])] for i in range(wanted)]


# Which examples meet in a batch: at random, in the order of the file, or as a schedule says.
#
# A sampler gives the examples of a step as a function of the step alone. Each example comes once an epoch;
# those left over make a last, smaller batch where every process gets one, and else join the batch before
# it. Cost: one permutation an epoch, 8 bytes an example.

Order = Callable[[int], Longs]
"""The examples of an epoch, batch after batch."""


def steps_of(n: int, batch: int, processes: int = 1) -> int:
    """Batches in an epoch; a rest too small to share, or of one example, which has no others, makes none of its own."""
    whole, rest = divmod(n, batch)
    return whole + (rest >= max(2, processes)) if whole else 1


@dataclass(frozen=True)
class Sampler:
    """`order(epoch)` cut into batches, the last of which takes all that is left.

    `begin(epoch)` is called before an epoch where an order has to be made, `close()` when no other will come.
    """

    order: Order
    n: int
    batch: int
    steps: int
    begin: Callable[[int], None] | None = field(default=None)
    close: Callable[[], None] = field(default=lambda: None)

    def __call__(self, step: int) -> Longs:
        epoch, place = divmod(step, self.steps)
        end = self.n if place == self.steps - 1 else (place + 1) * self.batch
        return self.order(epoch)[place * self.batch : end]

    def epoch(self, step: int) -> int:
        return step // self.steps


def random_batches(n: int, batch: int, seed: int, processes: int = 1) -> Sampler:
    """A new order every epoch, a function of seed and epoch."""

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Longs:
        return np.argsort(rng.uniform(rng.key(seed, epoch, 11), np.arange(n)), kind="stable")

    return Sampler(order, n, batch, steps_of(n, batch, processes))


def sequential_batches(n: int, batch: int, processes: int = 1) -> Sampler:
    """The order of the file, every epoch: the second baseline of the ABS paper."""
    fixed = np.arange(n)
    return Sampler(lambda epoch: fixed, n, batch, steps_of(n, batch, processes))


# The texts of a training set, tokenised once into files that are read as memory.
#
# `write` streams tokens into one flat array and its offsets, `Texts` maps them. Cost: the tokenizer once, 4
# bytes a token on disk, no memory; a text is then a slice, so that a batch costs about 100 ns a sequence
# and 1 ns a token.


@dataclass(frozen=True)
class Texts:
    """Tokenised texts: text i is tokens[offsets[i]:offsets[i + 1]], special tokens included."""

    tokens: NDArray[np.int32]
    offsets: Longs

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, records: Iterable[Record], layout: RoleLayout) -> Texts:
        """In memory, for few texts."""
        return cls.joined(layout.parts(records))

    @classmethod
    def joined(cls, parts: Iterable[Rows]) -> Texts:
        """In memory, what was tokenised part by part."""
        found, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for row, offsets in parts:
            found.append(row)
            sizes.append(np.diff(offsets))
        return cls(np.concatenate(found), bounds(np.concatenate(sizes)))

    @classmethod
    def open(cls, path: Path) -> Texts:
        """What `write` left, mapped."""
        offsets = np.load(path.with_suffix(".npy"))
        if not offsets[-1]:
            return cls(np.zeros(0, np.int32), offsets)
        return cls(np.asarray(np.memmap(path.with_suffix(".tokens"), np.int32, "r")), offsets)

    def sequences(self, numbers: Iterable[int]) -> list[list[int]]:
        """Token ids of some texts."""
        return [self.tokens[self.offsets[i] : self.offsets[i + 1]].tolist() for i in numbers]

    def rows(self, numbers: Longs | None = None) -> Rows:
        """Some texts in the order given, or all."""
        rows = self.tokens, self.offsets
        return rows if numbers is None else picked(rows, numbers)

    def packed(self, numbers: Longs) -> Packed:
        """Some texts as one row, in the order given."""
        return Packed.from_numpy(*self.rows(numbers))


def write(path: Path, parts: Iterable[Rows]) -> None:
    """Write what is tokenised to `path`.tokens and `path`.npy; the latter last, so it says that all is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [np.zeros(0, np.int64)]
    with path.with_suffix(".tokens").open("wb") as file:
        for row, offsets in parts:
            file.write(row.tobytes())
            sizes.append(np.diff(offsets))
    np.save(path.with_suffix(".npy"), bounds(np.concatenate(sizes)))


def cached(path: Path, parts: Iterable[Rows], world: World) -> Texts:
    """Texts tokenised by the first process into files that all map; what is there already is taken."""
    if world.first and not path.with_suffix(".npy").exists():
        write(path, parts)
    world.barrier()
    return Texts.open(path)
