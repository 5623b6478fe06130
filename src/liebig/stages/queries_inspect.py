"""`liebig queries inspect`: generated queries side by side, as a table and examples.

For each folder: how many queries and how long, how many of their words stand in the passage (lexical overlap), how many
occur for several passages, and, with a BM25 index, how many find their passage. Several folders (other generators, the
human queries) are shown for the same passages. The passages are drawn by seed, so nothing is selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.collection import GENERATED, Collection
from liebig.queries.consistency import Finder, share, words
from liebig.queries.labelled_pairs import GENERATION, draw, labels_of

CUTS = (1, 5, 20, 100)
PURPOSE = 24
STOP = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "has", "have", "how", "in",
        "is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "were", "what", "when",
        "where", "which", "who", "why", "with",
    )
)  # fmt: skip


@dataclass(frozen=True)
class QuerySummary:
    """What was counted in one folder."""

    name: str
    labels: str
    passages: int
    queries: int
    words: float
    overlap: float
    repeated: float
    found: Mapping[str, float]


@dataclass(frozen=True)
class PassageExample:
    """A passage, and its queries in each folder."""

    passage: Passage
    queries: Sequence[Sequence[str]]


def queries_of(path: Path, split: str) -> dict[str, list[str]]:
    """The queries of each passage, of the split or, where a collection has no such split, of all its splits."""
    collection = Collection(path)
    splits = [split] if split in collection.splits else list(collection.splits_of("judgements"))
    tied = [(j.query, j.passage) for s in splits for j in collection.judgements(s) if j.relevance > 0]
    texts = {query.id: query.text for query in collection.queries()}
    by_passage: dict[str, list[str]] = {}
    for query, passage in tied:
        if query not in texts:
            raise DataError(f"a judgement names the query {query!r}, which does not exist", file=path)
        by_passage.setdefault(passage, []).append(texts[query])
    if not by_passage:
        raise DataError("no query belongs to a passage here", file=path)
    return by_passage


def measure(
    path: Path, queries: Sequence[Sequence[str]], passages: Sequence[Passage], finder: Finder | None
) -> QuerySummary:
    """Counts of one folder, over the passages drawn."""
    flat = [(text, passage) for some, passage in zip(queries, passages) for text in some]
    texts = [text for text, _ in flat]
    found = {}
    if finder is not None:
        ranks = finder.ranks(texts, [passage.id for _, passage in flat], CUTS[-1])
        found = {f"found@{k}": share(ranks, k) for k in CUTS}
    alike = [tuple(words(text)) for text in texts]
    repeated = 1 - len(set(alike)) / len(alike)
    return QuerySummary(
        name=path.name if path.name not in ("generated", "queries") else f"{path.parent.name}/{path.name}",
        labels=_labels(path),
        passages=len(passages),
        queries=len(texts),
        words=float(np.mean([len(one) for one in alike])),
        overlap=float(np.mean([overlap(text, passage) for text, passage in flat])),
        repeated=repeated,
        found=found,
    )


def overlap(query: str, passage: Passage) -> float:
    """The share of a query's content words that stand in its passage or title."""
    query_words = set(words(query)) - STOP
    return (
        len(query_words & set(words(f"{passage.title} {passage.text}"))) / len(query_words)
        if query_words
        else 0.0
    )


def _labels(path: Path) -> str:
    """Which human labels are behind these queries."""
    if not (path / GENERATION).is_file():
        return "these are labels"
    return "; ".join(labels_of(path)) or "none known"


def table(rows: Sequence[QuerySummary]) -> str:
    """The counts as a Markdown table."""
    cuts = list(rows[0].found)
    head = ["queries", "labels behind them", "passages", "queries", "words", "overlap", "repeated", *cuts]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        shares = [row.overlap, row.repeated, *row.found.values()]
        counts = [row.name, row.labels, f"{row.passages:,}", f"{row.queries:,}", f"{row.words:.1f}"]
        lines.append(_line([*counts, *(f"{value:.3f}" for value in shares)]))
    return "\n".join(lines) + "\n"


def examples(rows: Sequence[QuerySummary], shown: Sequence[PassageExample]) -> str:
    """The passages drawn with their queries, as Markdown."""
    parts = []
    for one in shown:
        parts.append(f"**{one.passage.title}** {one.passage.text}\n")
        for row, queries in zip(rows, one.queries):
            parts += [f"- {row.name}: {query}" for query in queries]
        parts.append("")
    return "\n".join(parts) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


class QueriesInspectConfig(Config):
    """`liebig queries inspect`: generated queries side by side, and what can be counted about them."""

    folders: tuple[InputPath, ...] = Field(
        min_length=1,
        description="Folders written by liebig queries generate, or collections with judgements.",
    )
    split: str = Field(
        default=GENERATED,
        description="Split of the judgements; if a collection does not have it, all its splits are shown.",
    )
    bm25: InputPath | None = Field(default=None, description="BM25 index in which to look for the passages.")
    passages: int = Field(default=1000, ge=1, description="Number of passages to measure, drawn at random.")
    examples: int = Field(default=20, ge=1, description="Number of passages to show, drawn at random.")
    seed: int = Field(default=0, ge=0, description="Seed of the random sample.")


def run(config: QueriesInspectConfig, folder: Folder) -> None:
    """Write the table and the examples; `liebig report` shows both as a page."""
    named = [queries_of(path, config.split) for path in config.folders]
    common = [id for id in named[0] if all(id in other for other in named[1:])]
    if not common:
        raise DataError("the folders have no passage in common", file=config.folders[-1])
    chosen = [common[i] for i in draw(len(common), config.passages, config.seed, PURPOSE)]
    collection = Collection(config.folders[0])
    passages = [collection.passage(id) for id in chosen]
    finder = Finder([config.bm25]) if config.bm25 is not None else None
    rows = [
        measure(path, [found[id] for id in chosen], passages, finder)
        for path, found in zip(config.folders, named)
    ]
    order = draw(len(chosen), config.examples, config.seed, PURPOSE + 1)
    shown = [PassageExample(passages[i], [found[chosen[i]] for found in named]) for i in order]
    folder.write_json(
        "queries.json", {"rows": [asdict(r) for r in rows], "examples": [asdict(s) for s in shown]}
    )
    folder.write_text("table.md", table(rows))
    folder.write_text("examples.md", examples(rows, shown))
    Progress("inspect").say(table(rows))


STAGE = Stage(
    "queries inspect",
    QueriesInspectConfig,
    run,
    "liebig queries inspect runs/queries --bm25 runs/bm25 --out runs/inspected",
    positional="folders",
)
