"""`liebig mine`: reads runs, judgements and texts, writes `groups/SPLIT.jsonl` for fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from liebig import rng
from liebig.data.collection import Collection, group_row
from liebig.data.output import json_line
from liebig.errors import DataError
from liebig.progress import Progress
from liebig.search.blocks import Blocks
from liebig.search.config import MineConfig, Source
from liebig.search.mine import Miner, Take, Teacher
from liebig.workspace import Folder

POOL = 100_000  # passages that random negatives are drawn from


def run(config: MineConfig, folder: Folder) -> None:
    """Write the groups, and `mining.json` with what was kept and dropped."""
    collection = Collection(config.collection)
    miner = Miner(
        sources=[_take(source) for source in config.sources],
        lookup=collection.passage,
        duplicates=config.duplicates,
        teacher=Teacher(Blocks(config.scores), config.below, config.above, config.logits)
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
        run=Blocks(source.run),
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
        self._path, self._judgements, self._relevant = path, Blocks(path, b"\t"), relevant

    def of(self, query: str) -> list[str]:
        """Ids of passages whose grade makes them positives."""
        found = []
        for columns in self._judgements.lines(query):
            if len(columns) != 3 or not columns[2].strip().lstrip("-").isdecimal():
                raise DataError(
                    f"a judgement of query {query!r} is not query, passage, grade", file=self._path
                )
            if int(columns[2]) >= self._relevant:
                found.append(columns[1])
        return found


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
