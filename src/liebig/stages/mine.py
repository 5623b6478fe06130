"""`liebig mine`: reads runs, judgements and texts, writes `groups/SPLIT.jsonl` for fine-tuning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.parts import clear_pieces, in_pieces
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.collection import Collection, group_row
from liebig.formats.output import json_line
from liebig.search.mine import Miner, QueryLines, Take


class Source(Config):
    """A run that negatives are taken from."""

    run: InputPath = Field(description="TREC run.")
    first: int = Field(1, ge=1, description="First rank that can be a negative.")
    depth: int = Field(200, ge=1, description="Last rank that can be a negative.")
    keep: int = Field(30, ge=1, description="Number of negatives per query.")
    sample: Literal["random", "top"] = Field("random", description="Which candidates to keep.")


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
        description="Drop near-duplicates, which share at least this fraction of word triples with a positive; none "
        "keeps them.",
    )
    seed: int = Field(0, ge=0, description="Seed of the random sample.")


BLOCK, COUNTS = 512, "counts.jsonl"  # queries of a piece, and what was counted for each


def run(config: MineConfig, folder: Folder) -> None:
    """Write the groups, and `mining.json` with what was kept and dropped."""
    collection = Collection(config.collection)
    miner = Miner(
        sources=[_take(source) for source in config.sources],
        lookup=collection.passage,
        duplicates=config.duplicates,
        seed=config.seed,
    )
    queries = collection.query_ids(config.split)
    positives = _positives(collection, config.split, config.relevant)
    name = f"groups/{config.split}.jsonl"

    def mine(block: list[str]) -> dict[str, list[str]]:
        miner.counts = Counter()
        lines = [json_line(group_row(group)) for group in miner.mine(block, positives)]
        return {name: lines, COUNTS: [json_line(dict(miner.counts))]}

    with Progress("mine", len(queries), "queries") as bar:
        if not in_pieces(folder, queries, BLOCK, mine, bar.advance):
            return
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).touch()
        counts: Counter[str] = Counter()
        if (path := folder.path / COUNTS).is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                counts.update(json.loads(line))
            path.unlink()
        for reason, count in sorted(counts.items()):
            if count:
                bar.say(f"{count:>12,}  {reason}")
    if not counts["negatives"]:
        raise DataError(
            "no passage of the runs became a negative",
            file=config.sources[0].run,
            fix=f"give runs of the queries of the split {config.split!r}, or loosen the filters counted above",
        )
    folder.write_json("mining.json", dict(sorted(counts.items())))
    clear_pieces(folder)


def _take(source: Source) -> Take:
    return Take(
        run=QueryLines(source.run),
        first=source.first,
        depth=source.depth,
        keep=source.keep,
        random=source.sample == "random",
    )


def _positives(collection: Collection, split: str, relevant: int) -> Callable[[str], list[str]]:
    """The positives of a query: as judged, or those of groups where nothing is judged, as in DPR's training data."""
    path = collection.path / "judgements" / f"{split}.tsv"
    if path.is_file() or split not in collection.splits_of("groups"):
        return Positives(path, relevant).of
    known: dict[str, list[str]] = {}
    for group in collection.groups(split):
        known.setdefault(group.query, []).extend(group.positives)
    return lambda query: list(dict.fromkeys(known.get(query, ())))


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


STAGE = Stage("mine", MineConfig, run, "liebig mine recipe.toml --out runs/negatives", in_parts=True)
