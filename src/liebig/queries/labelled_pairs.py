"""Passages with their queries from the judgements of collections: what a generator learns from and is held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, read_json
from liebig.base.records import Passage
from liebig.collection import Collection


@dataclass(frozen=True)
class LabelledPassage:
    """A passage and the queries that it answers."""

    passage: Passage
    queries: tuple[str, ...]


def read_labelled_passages(collections: Sequence[Path], split: str, relevant: int) -> list[LabelledPassage]:
    """The passages of a split with their queries, collection after collection, in the order of the judgements."""
    labelled = [one for path in collections for one in _read(path, split, relevant)]
    if not labelled:
        raise DataError(f"the split {split!r} has no relevant pairs", file=collections[0])
    return labelled


def _read(path: Path, split: str, relevant: int) -> Iterator[LabelledPassage]:
    collection = Collection(path)
    named: dict[str, dict[str, None]] = {}
    for judgement in collection.judgements(split):
        if judgement.relevance >= relevant:
            named.setdefault(judgement.passage, {})[judgement.query] = None
    judged = {query for queries in named.values() for query in queries}
    texts = {query.id: query.text for query in collection.queries() if query.id in judged}
    for passage, queries in named.items():
        missing = next((query for query in queries if query not in texts), None)
        if missing is not None:
            raise DataError(f"a judgement names the query {missing!r}, which does not exist", file=path)
        yield LabelledPassage(collection.passage(passage), tuple(texts[query] for query in queries))


def draw(n: int, count: int | None, seed: int, purpose: int) -> np.ndarray:
    """`count` of range(n) drawn by seed, in ascending order; a smaller draw lies in a larger one."""
    if count is None or count >= n:
        return np.arange(n)
    draws = rng.uniform(rng.key(seed, purpose), np.arange(n))
    return np.sort(np.argsort(draws, kind="stable")[:count])


GENERATION = "generation.json"


class GeneratedFrom(FileModel):
    """`generation.json`, as far as it says what is behind generated queries."""

    labels: list[str] = []


def labels_of(folder: Path) -> list[str]:
    """Which human labels are behind the queries of a folder, as far as it says so."""
    about = folder / GENERATION
    return read_json(about, GeneratedFrom).labels if about.is_file() else []
