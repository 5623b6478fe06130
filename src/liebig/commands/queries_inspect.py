"""`liebig queries inspect`: generated queries side by side, as a table, examples and a page."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection
from liebig.queries.consistency import Finder
from liebig.queries.inspection import PURPOSE, PassageExample, examples, measure, page, queries_of, table
from liebig.queries.labelled_pairs import draw


class QueriesInspectConfig(Config):
    """`liebig queries inspect`: generated queries side by side, and what can be counted about them."""

    folders: tuple[InputPath, ...] = Field(
        min_length=1,
        description="Folders written by liebig queries generate, or collections with judgements.",
    )
    split: str = Field(
        default="generated",
        description="Split of the judgements; if a collection does not have it, all its splits are shown.",
    )
    bm25: InputPath | None = Field(default=None, description="BM25 index in which to look for the passages.")
    passages: int = Field(default=1000, ge=1, description="Number of passages to measure, drawn at random.")
    examples: int = Field(default=20, ge=1, description="Number of passages to show, drawn at random.")
    seed: int = Field(default=0, ge=0, description="Seed of the random sample.")


def run(config: QueriesInspectConfig, folder: Folder) -> None:
    """Write table, examples and page."""
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
    folder.write_text("index.html", page(rows, shown))
    Progress("inspect").say(table(rows))


STAGE = Stage(
    "queries inspect",
    QueriesInspectConfig,
    run,
    "liebig queries inspect runs/queries --bm25 runs/bm25 --out runs/inspected",
    positional="folders",
)
