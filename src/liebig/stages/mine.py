"""`liebig mine`: reads runs, judgements and texts, writes `groups/SPLIT.jsonl` for fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from liebig.base import rng
from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.collection import Collection, group_row
from liebig.formats.output import json_line
from liebig.search.mine import Miner, QueryLines, Take, Teacher


class Source(Config):
    """A run that negatives are taken from."""

    run: InputPath = Field(description="TREC run.")
    first: int = Field(1, ge=1, description="First rank that can be a negative.")
    depth: int = Field(200, ge=1, description="Last rank that can be a negative.")
    keep: int = Field(30, ge=1, description="Number of negatives per query.")
    sample: Literal["random", "top"] = Field("random", description="Which candidates to keep.")
    margin: float | None = Field(
        None, description="Drop candidates that score above the positive's score minus this margin."
    )
    relative_margin: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Drop candidates that score above the positive's score times (1 - this margin).",
    )


class MineConfig(Config):
    """`liebig mine`: hard negatives from runs, to groups for fine-tuning."""

    collection: InputPath = Field(description="Collection with queries, passages and judgements.")
    split: str = Field("train", description="Split whose queries get negatives.")
    sources: list[Source] = Field(
        min_length=1, description="Runs to take negatives from; their negatives are concatenated."
    )
    relevant: int = Field(1, description="Lowest grade of a positive passage.")
    duplicates: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description=(
            "Drop near-duplicates, which share at least this fraction of word triples with a positive; none "
            "keeps them."
        ),
    )
    scores: InputPath | None = Field(
        None,
        description="Run with a cross-encoder's scores of the candidates: scores.trec of liebig rerank score.",
    )
    logits: bool = Field(
        True,
        description="With scores: apply the sigmoid before comparing with below and above.",
    )
    below: float = Field(
        0.1, description="With scores: a negative must score below this (0.1 is RocketQA's)."
    )
    above: float | None = Field(
        None, description="With scores: a candidate that scores above this becomes a positive."
    )
    pad: int = Field(0, ge=0, description="Add random passages up to this many negatives.")
    seed: int = Field(0, ge=0, description="Seed of the random sample.")

    @model_validator(mode="after")
    def _thresholds_fit(self) -> MineConfig:
        given = (self.below, self.above if self.above is not None else self.below)
        if given[1] < given[0]:
            raise ValueError("above is less than below: a passage would be both a negative and a positive")
        if self.logits and not 0 <= min(given) <= max(given) <= 1:
            raise ValueError("below and above must lie between 0 and 1, or set logits = false")
        return self


POOL = 100_000  # passages that random negatives are drawn from


def run(config: MineConfig, folder: Folder) -> None:
    """Write the groups, and `mining.json` with what was kept and dropped."""
    collection = Collection(config.collection)
    miner = Miner(
        sources=[_take(source) for source in config.sources],
        lookup=collection.passage,
        duplicates=config.duplicates,
        teacher=Teacher(QueryLines(config.scores), config.below, config.above, config.logits)
        if config.scores is not None
        else None,
        pad=_pool(collection, config.seed) if config.pad else (),
        pad_to=config.pad,
        seed=config.seed,
    )
    queries = collection.query_ids(config.split)
    judgements = Positives(config.collection / "judgements" / f"{config.split}.tsv", config.relevant)
    path = folder.path / "groups" / f"{config.split}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with Progress("mine", len(queries), "queries") as bar, path.open("w", encoding="utf-8") as file:
        for group in miner.mine(queries, judgements.of):
            file.write(json_line(group_row(group)) + "\n")
            bar.advance()
        for reason, count in sorted(miner.counts.items()):
            if count:
                bar.say(f"{count:>12,}  {reason}")
    if miner.counts["negatives"] == miner.counts["random negatives"]:
        raise DataError(
            "no passage of the runs became a negative",
            file=config.sources[0].run,
            fix=f"give runs of the queries of the split {config.split!r}, or loosen the filters counted above",
        )
    folder.write_json("mining.json", dict(sorted(miner.counts.items())))


def _take(source: Source) -> Take:
    return Take(
        run=QueryLines(source.run),
        first=source.first,
        depth=source.depth,
        keep=source.keep,
        random=source.sample == "random",
        margin=source.margin,
        relative_margin=source.relative_margin,
    )


class Positives:
    """The judged positives of a query, read when asked for."""

    def __init__(self, path: Path, relevant: int) -> None:
        self._path, self._judgements, self._relevant = path, QueryLines(path, b"\t"), relevant

    def of(self, query: str) -> list[str]:
        """Ids of passages whose grade makes them positives."""
        passages = []
        for columns in self._judgements.lines(query):
            if len(columns) != 3 or not columns[2].strip().lstrip("-").isdecimal():
                raise DataError(
                    f"a judgement of query {query!r} does not have the form query, passage, grade",
                    file=self._path,
                )
            if int(columns[2]) >= self._relevant:
                passages.append(columns[1])
        return passages


def _pool(collection: Collection, seed: int) -> Sequence[str]:
    """Ids drawn evenly from all passages, in one pass (a reservoir)."""
    ids = (passage.id for passage in collection.passages())
    pool = list(islice(ids, POOL))
    key = rng.key(seed, 1)
    for number, id in enumerate(ids, len(pool)):
        place = int(rng.below(key, np.int64(number), number + 1))
        if place < len(pool):
            pool[place] = id
    return pool


STAGE = Stage("mine", MineConfig, run, "liebig mine recipe.toml --out runs/negatives")
