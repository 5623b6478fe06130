"""Evaluation while training: exact search of a dev split, or each query's positives among sampled candidates.

Texts are tokenised once; every evaluation encodes them with the towers as they are, scores every passage, and hands
the ranking to the measures of `liebig evaluate`, so the numbers are the same as that command's. The ABS paper's
protocol is `candidates`: one positive among 99 negatives sampled from the top 1,000 of a first stage. Cost: encoding
the passages, so sample them (`passages`) where there are millions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import rng
from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.records import Passage
from liebig.collection import Collection
from liebig.losses.contrastive import Similarity
from liebig.measures import Measure, MeasureName, parse_all
from liebig.measures.evaluator import (
    Judgements,
    block_from_mapping as from_mapping,
    block_from_matrix as from_matrix,
    evaluate,
    judgements_from_mapping as judged,
    judgements_from_records as from_records,
)
from liebig.methods.labelled import Draft, cache_tokens, drafts, read_groups
from liebig.methods.samplers import Towers
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.train.distributed import World
from liebig.vectors.topk import topk

HITS_PER_QUERY = 100
NOISE = 0.05
"""A dev split whose 95 % interval may be wider than this on either side is called too small."""


@dataclass(frozen=True)
class DevSearch:
    """All passages ranked for every judged query."""

    query_ids: Sequence[str]
    passage_ids: Sequence[str]
    queries: Ragged
    passages: Ragged
    judgements: Judgements
    measures: Sequence[Measure]
    similarity: Similarity

    def __call__(self, retriever: Towers) -> dict[str, float]:
        queries = vectors(retriever.tower("query"), self.queries, self.similarity)
        passages = vectors(retriever.tower("passage"), self.passages, self.similarity)
        depth = max([HITS_PER_QUERY, *(measure.cut or 1000 for measure in self.measures)])
        scores, numbers = topk(queries, passages, depth, device=retriever.tower("query").device)
        block = from_matrix(self.query_ids, self.passage_ids, numbers, scores)
        return evaluate([block], self.judgements, self.measures).means()


@dataclass(frozen=True)
class Candidates:
    """Every query with its own few passages, positives first; `loss` is the contrastive loss among them."""

    query_ids: Sequence[str]
    passage_ids: Sequence[str]
    queries: Ragged
    passages: Ragged
    groups: Sequence[NDArray[np.int64]]
    judgements: Judgements
    measures: Sequence[Measure]
    similarity: Similarity
    temperature: float = 1.0

    def __call__(self, retriever: Towers) -> dict[str, float]:
        queries = vectors(retriever.tower("query"), self.queries, self.similarity)
        passages = vectors(retriever.tower("passage"), self.passages, self.similarity)
        run, losses = {}, []
        for i, (query, group) in enumerate(zip(self.query_ids, self.groups)):
            scores = retriever.scores(queries[i], passages[group])
            run[query] = {self.passage_ids[p]: float(s) for p, s in zip(group, scores)}
            scaled = np.asarray(scores, np.float64) / self.temperature
            losses.append(np.logaddexp.reduce(scaled) - scaled[0])  # the first is a positive
        means = evaluate([from_mapping(run)], self.judgements, self.measures).means()
        return {**means, "loss": float(np.mean(losses))}


class DevConfig(Config):
    """Evaluation while training, by exact search or on each query's own candidates."""

    split: str | None = Field(default=None, description="Split to evaluate on [default: none]")
    collection: InputPath | None = Field(
        default=None, description="Collection of that split [default: that of the training data]"
    )
    over: Literal["all", "candidates"] = Field(
        default="all",
        description="Rank all passages, or only the positives and negatives of each query's group",
    )
    groups: tuple[InputPath, ...] = Field(
        default=(),
        description="Folders written by liebig mine with candidates of the split [default: the collection]",
    )
    candidates: int = Field(default=99, ge=1, description="Number of negatives drawn per query")
    passages: int | None = Field(
        default=None,
        ge=1,
        description="Search only the judged passages and this many others, drawn at random",
    )
    measures: tuple[MeasureName, ...] = Field(
        default=("RR@10", "nDCG@10", "R@100"), description="Measures; the first decides which model is best"
    )

    def read(
        self,
        collection: Collection,
        layouts: tuple[RoleLayout, RoleLayout],
        cache: Path,
        world: World,
        similarity: Similarity,
        temperature: float = 1.0,
    ) -> DevSearch | Candidates | None:
        """The evaluation, if there is one; `collection` is that of the training data."""
        if self.split is None:
            return None
        collection = collection if self.collection is None else Collection(self.collection)
        if self.over == "candidates":
            return self._candidates(collection, self.split, layouts, similarity, temperature)
        return self._search(collection, self.split, layouts, cache, world, similarity)

    def _search(
        self,
        collection: Collection,
        split: str,
        layouts: tuple[RoleLayout, RoleLayout],
        cache: Path,
        world: World,
        similarity: Similarity,
    ) -> DevSearch:
        """The split and the passages it is searched in; all of them, or the judged ones and a sample."""
        judgements = from_records(collection.judgements(split))
        judged_queries = set(judgements.queries)
        texts = {query.id: query for query in collection.queries() if query.id in judged_queries}
        unknown = [query for query in judgements.queries if query not in texts]
        if not texts or unknown:
            what = f"the judged query {unknown[0]!r} has no text" if unknown else "there is no judged query"
            raise DataError(what, file=collection.path / "judgements" / f"{split}.tsv")
        ids = [passage.id for passage in _searched(collection, judgements, self.passages)]
        stored = cache_tokens(
            cache, layouts[1].parts(_searched(collection, judgements, self.passages)), world
        )
        queries = layouts[0].all_ids(texts.values())
        return DevSearch(list(texts), ids, queries, stored, judgements, parse_all(self.measures), similarity)

    def _candidates(
        self,
        collection: Collection,
        split: str,
        layouts: tuple[RoleLayout, RoleLayout],
        similarity: Similarity,
        temperature: float,
    ) -> Candidates:
        """The groups of the split, with some negatives each, drawn the same way for every run."""
        folders = self.groups or [collection.path]
        examples = drafts(placed for folder in folders for placed in read_groups(folder, split))
        chosen = [_drawn(draft, self.candidates, i) for i, draft in enumerate(examples)]
        names = {name: i for i, name in enumerate(dict.fromkeys(n for some in chosen for n in some))}
        return Candidates(
            [draft.query for draft in examples],
            list(names),
            layouts[0].all_ids(collection.query(draft.query) for draft in examples),
            layouts[1].all_ids(collection.passage(name) for name in names),
            [np.array([names[n] for n in some], np.int64) for some in chosen],
            judged({draft.query: dict.fromkeys(draft.positives, 1) for draft in examples}),
            parse_all(self.measures),
            similarity,
            temperature,
        )


def vectors(tower: Encoder, texts: Ragged, similarity: Similarity) -> NDArray[np.float32]:
    """Vectors of all texts, of length 1 where cosine compares them."""
    return tower.encode_rows(texts, unit=similarity == "cosine")


def too_small(queries: int) -> str | None:
    """A warning where so few queries cannot tell models apart."""
    width = 0.98 / queries**0.5
    if width <= NOISE:
        return None
    return (
        f"WARNING: {queries:,} dev queries: a mean over them is known to ±{width:.2f} at worst (95 %), so smaller "
        "differences between checkpoints are noise. Use more dev queries, or fix the number of epochs"
    )


def _searched(collection: Collection, judgements: Judgements, passages: int | None) -> Iterator[Passage]:
    """What is searched: all passages, or those judged and a sample of the others, the same for every run."""
    if passages is None:
        return collection.passages()
    judged_ids = {name for query in judgements.queries for name in judgements.grades(query)}
    share = passages / max(1, collection.count("passages"))
    key = rng.key(0, 23)
    return (
        passage
        for i, passage in enumerate(collection.passages())
        if passage.id in judged_ids or rng.uniform(key, np.int64(i)) < share
    )


def _drawn(draft: Draft, candidates: int, number: int) -> list[str]:
    others = list(draft.negatives)
    order = np.argsort(rng.uniform(rng.key(0, 29, number), np.arange(len(others))), kind="stable")
    return [*draft.positives, *(others[i] for i in order[:candidates].tolist())]
