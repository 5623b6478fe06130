"""`liebig rerank score`: cross-encoders rerank a run, or score the passages of groups for distillation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from liebig.base.config import Config, InputPath, ModelPath, one_or_several
from liebig.base.machine import chosen
from liebig.base.parts import clear_pieces, in_pieces
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Group, Hit, Title
from liebig.base.workspace import Folder
from liebig.collection import Collection, group_row
from liebig.formats.items import Options
from liebig.formats.on_disk import DiskSource
from liebig.formats.output import json_line
from liebig.formats.trec import by_query, read_run, run_lines
from liebig.methods.labelled import read_groups
from liebig.methods.reranker import AT_ONCE, rerank, scorer, soft_labels
from liebig.model.cross_encoder import CrossEncoder

RUN = "run.trec"


class RerankScoreConfig(Config):
    """`liebig rerank score`: rerank a run, or score groups for soft labels."""

    models: Annotated[tuple[ModelPath, ...], BeforeValidator(one_or_several)] = Field(
        min_length=1, description="Cross-encoders, by folder or org/name; the scores of several are averaged."
    )
    collection: InputPath = Field(description="Collection with the texts.")
    run: InputPath | None = Field(default=None, description="TREC run to rerank.")
    depth: int = Field(
        default=100,
        ge=1,
        description=("Number of hits per query to rerank; the others follow in their old order."),
    )
    groups: InputPath | None = Field(
        default=None, description="Folder with groups to score, written by liebig mine."
    )
    split: str = Field(default="train", description="Split of the groups.")
    title: Title | None = Field(
        default=None,
        description="Put the title before the text: with a space, with the separator token, or not at all [default: as "
        "each model was trained].",
    )
    length: int | None = Field(
        default=None, ge=16, description="Tokens of query and passage together [default: the model's own]."
    )
    device: str | None = Field(default=None, description="cpu or cuda [default: the GPU if there is one].")
    tag: str = Field(default="rerank", description="Last column of the run.")

    @model_validator(mode="after")
    def _one_thing(self) -> RerankScoreConfig:
        if (self.run is None) == (self.groups is None):
            raise ValueError("give a run to rerank, or groups to score")
        return self


def run(config: RerankScoreConfig, folder: Folder) -> None:
    """Write `run.trec`, or `groups/SPLIT.jsonl` with scores."""
    device = chosen(config.device)
    models = [CrossEncoder.load(path, device=device, length=config.length) for path in config.models]
    score, collection = scorer(models, config.title), Collection(config.collection)
    if config.run is not None:

        def reranked(rankings: list[list[Hit]]) -> dict[str, Iterable[str]]:
            hits = rerank(chain(*rankings), config.depth, score, collection.query, collection.passage)
            return {RUN: run_lines(hits, config.tag)}

        name = RUN
        with Progress("rerank", unit="queries") as bar:
            whole = in_pieces(folder, by_query(_hits(config.run)), AT_ONCE, reranked, bar.advance)
    else:
        assert config.groups is not None, "there is a run, or there are groups"
        name = f"groups/{config.split}.jsonl"

        def labelled(groups: list[Group]) -> dict[str, list[str]]:
            made = soft_labels(groups, score, collection.query, collection.passage)
            return {name: [json_line(group_row(group)) for group in made]}

        groups = (example.group for example in read_groups(config.groups, config.split))
        with Progress("score", unit="queries") as bar:
            whole = in_pieces(folder, groups, AT_ONCE, labelled, bar.advance)
    if whole:
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).touch()
        clear_pieces(folder)


def _hits(path: Path) -> Iterator[Hit]:
    for item in read_run(DiskSource(path), Options()):
        assert isinstance(item.record, Hit), "a run holds hits"
        yield item.record


STAGE = Stage(
    "rerank score",
    RerankScoreConfig,
    run,
    "liebig rerank score recipe.toml --out runs/reranked",
    in_parts=True,
)
