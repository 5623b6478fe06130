"""Training examples of a collection: queries with their positives and negatives as arrays of numbers, and their tokens.

Groups files (of the collection, or of `liebig mine`) are read, or judgements where there are none; several files give
one example per query with the negatives of all. Every mistake in them is found here, before the first step, and
reported with file and line. Texts are tokenised once into files that are mapped, in several processes where there are
very many of them: a process finds its texts by their ids and sends back tokens, which are joined in order, so the
result is the same for any number of processes. Nothing heavy is imported here, because every process imports this file.
Cost: one pass over the files, 8 bytes for each id, and about 40 microseconds per passage of 100 words and core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.machine import spread
from liebig.base.progress import Progress
from liebig.base.records import Group, Passage, Query
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.formats.items import Where
from liebig.ragged import Ragged, offsets_of
from liebig.text.layout import AT_ONCE, RoleLayout

if TYPE_CHECKING:
    from liebig.train.distributed import World

Longs = NDArray[np.int64]


class PlacedGroup(NamedTuple):
    """A group and the line it comes from."""

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
class Examples:
    """One example per query. Passages are numbered; `content` is equal for passages of equal text.

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
        start = self.positives.offsets[example] + self.negatives.offsets[example]
        return self.scores[start : start + len(self.positives[example]) + len(self.negatives[example])]


def read_groups(folder: Path, split: str) -> Iterator[PlacedGroup]:
    """The groups of a collection or of a folder of `liebig mine`, each with its line."""
    path = folder / "groups" / f"{split}.jsonl"
    if not path.is_file():
        raise DataError(
            f"there are no groups of the split {split!r}", file=path, fix="make them with liebig mine"
        )
    yield from (PlacedGroup(group, where) for where, group in Collection(folder).placed_groups(split))


def read_judgements(collection: Collection, split: str, relevant: int) -> Iterator[PlacedGroup]:
    """Every relevant judgement as a group of one positive, with its line."""
    path = collection.path / "judgements" / f"{split}.tsv"
    if not path.is_file():
        raise DataError(f"the split {split!r} has neither groups nor judgements", file=collection.path)
    for where, judgement in collection.placed_judgements(split):
        if judgement.relevance >= relevant:
            yield PlacedGroup(Group(judgement.query, (judgement.passage,)), where)


def drafts(placed: Iterable[PlacedGroup]) -> list[Draft]:
    """One draft per query; groups that are wrong in themselves are refused with file and line."""
    by_query: dict[str, Draft] = {}
    for group, where in placed:
        if not group.positives:
            where.refuse(f"the query {group.query!r} has no positive", "give it one, or remove the line")
        _check_scores(group, where)
        draft = by_query.get(group.query)
        if draft is None:
            draft = by_query[group.query] = Draft(group.query, where)
        draft.add(group, where)
        named = (*group.negatives, *group.positives) if draft.negatives else ()
        both = next((i for i in named if i in draft.positives and i in draft.negatives), None)
        if both is not None:
            where.refuse(
                f"the passage {both!r} is both a positive and a negative of the query {group.query!r}",
                "remove it from the negatives",
            )
    return list(by_query.values())


def _check_scores(group: Group, where: Where) -> None:
    for name, ids, scores in (
        ("positives", group.positives, group.positive_scores),
        ("negatives", group.negatives, group.negative_scores),
    ):
        if scores and len(scores) != len(ids):
            what = f"the query {group.query!r} has {len(ids)} {name} and {len(scores)} scores of them"
            where.refuse(what, "give every passage a score, or none")


def draw(n: int, limit: int | None, seed: int) -> list[int]:
    """Numbers of the examples kept; a smaller draw lies in a larger one."""
    order = np.argsort(rng.uniform(rng.key(seed, 7), np.arange(n)), kind="stable")
    return list(range(n)) if limit is None else sorted(order[:limit].tolist())


@dataclass(frozen=True)
class LabelledData:
    """Examples, and their texts in the order of their numbers."""

    examples: Examples
    queries: NamedTexts
    passages: NamedTexts


def read_examples(
    collection: Collection,
    split: str,
    *,
    groups: Sequence[Path] = (),
    relevant: int = 1,
    queries: int | None = None,
    subset_seed: int = 0,
    scored: bool = False,
) -> LabelledData:
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
    every = drafts(placed)
    chosen = [every[i] for i in draw(len(every), queries, subset_seed)]
    if not chosen:
        raise DataError(f"the split {split!r} has no examples", file=collection.path)
    unscored = next((draft for draft in chosen if scored and not draft.scored), None)
    if unscored is not None:
        what = f"the query {unscored.query!r} has no teacher's scores, or not of every passage"
        unscored.where.refuse(what, "give groups with scores, as liebig rerank score --groups writes them")
    judged = _judged(collection, split, relevant) if folders else {}
    texts = _CheckedTexts(collection, chosen, judged)
    examples = _numbered(chosen, texts, judged)
    return LabelledData(
        examples,
        NamedTexts(collection.path, "query", examples.queries),
        NamedTexts(collection.path, "passage", examples.passages),
    )


def content_of(text: str) -> int:
    """A number that is equal for texts of the same words."""
    return hash64(" ".join(text.split())) & 0x7FFFFFFFFFFFFFFF


class _CheckedTexts:
    """The queries and passages that drafts name: where each is first named, checked in one pass over the texts.

    `contents` also has what is judged relevant and named by no draft: it may be drawn as a random negative.
    """

    def __init__(
        self, collection: Collection, examples: Sequence[Draft], judged: Mapping[str, Sequence[str]]
    ) -> None:
        self.queries = {draft.query: draft.where for draft in examples}
        self.passages: dict[str, Where] = {}
        for draft in examples:
            for name in (*draft.positives, *draft.negatives):
                self.passages.setdefault(name, draft.later.get(name, draft.where))
        self._check("query", self.queries, collection.queries())
        also = {i for draft in examples for i in judged.get(draft.query, ())}
        self.contents = self._check("passage", self.passages, collection.passages(), also)

    @staticmethod
    def _check(
        kind: str,
        named: Mapping[str, Where],
        records: Iterable[Query | Passage],
        also: frozenset[str] | set[str] = frozenset(),
    ) -> dict[str, int]:
        """The content of each text named, and of the others of `also` that are there."""
        contents: dict[str, int] = {}
        for record in records:
            if record.id in named and not record.text.strip():
                named[record.id].refuse(f"the {kind} {record.id!r} has an empty text", "remove it")
            if record.id in named or record.id in also:
                contents[record.id] = content_of(record.text)
        unknown = [name for name in named if name not in contents]
        if unknown:
            more = f", and {len(unknown) - 1:,} more are unknown" if len(unknown) > 1 else ""
            named[unknown[0]].refuse(
                f"the collection has no {kind} {unknown[0]!r}{more}",
                "use the collection the file was made from",
            )
        return contents


def _judged(collection: Collection, split: str, relevant: int) -> dict[str, list[str]]:
    """All that is judged relevant beside what groups name, by query; none where the split has no judgements."""
    passages: dict[str, list[str]] = {}
    if split in collection.splits_of("judgements"):
        for judgement in collection.judgements(split):
            if judgement.relevance >= relevant:
                passages.setdefault(judgement.query, []).append(judgement.passage)
    return passages


def _numbered(
    examples: Sequence[Draft], texts: _CheckedTexts, judged: Mapping[str, Sequence[str]]
) -> Examples:
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
        for draft in examples
    )
    scores = None
    if all(draft.scored for draft in examples):
        flat = [s for draft in examples for s in (*draft.positives.values(), *draft.negatives.values())]
        scores = np.array(flat, np.float32)
    return Examples(
        tuple(texts.queries),
        tuple(numbers),
        Ragged.from_lists([numbers[i] for i in draft.positives] for draft in examples),
        Ragged.from_lists([numbers[i] for i in draft.negatives] for draft in examples),
        Ragged.from_lists(relevant),
        content,
        scores,
    )


def open_tokens(path: Path) -> Ragged:
    """The tokens that `write` left, mapped."""
    offsets = np.load(path.with_suffix(".npy"))
    if not offsets[-1]:
        return Ragged(np.zeros(0, np.int32), offsets)
    return Ragged(np.asarray(np.memmap(path.with_suffix(".tokens"), np.int32, "r")), offsets)


def write(path: Path, parts: Iterable[Ragged]) -> None:
    """Write what is tokenised to `path`.tokens and `path`.npy; the latter last, so it says that all is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [np.zeros(0, np.int64)]
    with path.with_suffix(".tokens").open("wb") as file:
        for part in parts:
            file.write(part.values.tobytes())
            sizes.append(part.lengths)
    np.save(path.with_suffix(".npy"), offsets_of(np.concatenate(sizes)))


def cache_tokens(path: Path, parts: Iterable[Ragged], world: World) -> Ragged:
    """Texts tokenised by the first process into files that all processes map; existing files are used as they are.

    Cost: the tokenizer once, 4 bytes per token on disk, no memory; then about 100 ns per sequence and 1 ns per token.
    """
    if world.first and not path.with_suffix(".npy").exists():
        write(path, parts)
    world.barrier()
    return open_tokens(path)


@dataclass(frozen=True)
class NamedTexts:
    """Queries or passages of a collection by their ids, in this order."""

    collection: Path
    kind: Literal["query", "passage"]
    ids: Sequence[str]


def tokenise(named: NamedTexts, layout: RoleLayout) -> Iterator[Ragged]:
    """The tokens of all texts, a few thousand texts at a time."""
    work = _Worker(named.collection, named.kind, layout)
    tasks = [named.ids[at : at + AT_ONCE] for at in range(0, len(named.ids), AT_ONCE)]
    if len(tasks) < 2:
        yield from map(work, tasks)
        return
    with Progress(f"tokenise {named.kind} texts", len(named.ids), "texts") as bar:
        for task, rows in zip(tasks, spread(work, tasks)):
            yield rows
            bar.advance(len(task))


class _Worker:
    """Finds texts by their ids and tokenises them; each process opens the collection for itself."""

    def __init__(self, collection: Path, kind: Literal["query", "passage"], layout: RoleLayout) -> None:
        self._collection, self._kind, self._layout = Collection(collection), kind, layout

    def __call__(self, ids: Sequence[str]) -> Ragged:
        find = self._collection.query if self._kind == "query" else self._collection.passage
        return self._layout.ids([find(name) for name in ids])

    def __reduce__(self) -> tuple[type[_Worker], tuple[Any, ...]]:
        return _Worker, (self._collection.path, self._kind, self._layout)
