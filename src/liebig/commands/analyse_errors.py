"""The recipes of `liebig analyse attention`, `neighbours`, `space`, `errors` and `leakage`."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.evaluation.analyses import _write_table, system_names
from liebig.evaluation.tasks import read_task


class ErrorsConfig(Config):
    """`liebig analyse errors A B`: which queries A wins and loses against B, with the texts, by kind of query."""

    runs: tuple[InputPath, InputPath] = Field(description="The runs of A and of B.")
    collection: InputPath = Field(description="Collection that was searched.")
    split: str | None = Field(None, description="Split of the collection.")
    measure: str = Field("nDCG@10", description="Measure that decides which system wins.")
    names: tuple[str, ...] = Field((), description="Names of A and B.")
    examples: int = Field(20, ge=0, description="Number of wins and of losses to show.")


def run(config: ErrorsConfig, folder: Folder) -> None:
    """Wins and losses of A against B."""
    from liebig.evaluation.wins import compare_runs

    names = system_names(config.runs, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    groups, wins, losses = compare_runs(task, config.runs, config.measure, config.examples)
    tree = {
        "names": names,
        "measure": config.measure,
        "groups": [asdict(group) for group in groups],
        "wins": [asdict(example) for example in wins],
        "losses": [asdict(example) for example in losses],
    }
    folder.write_json("errors.json", tree)
    rows = [
        [group.by, group.name, str(group.queries), f"{group.mean_a:.4f}", f"{group.mean_b:.4f}",
         f"{group.difference:+.4f}", f"{group.wins} / {group.losses}"]
        for group in groups
    ]  # fmt: skip
    header = ["by", "queries that are", "n", *names, "difference", "wins / losses"]
    _write_table(folder, "errors.md", header, rows)


STAGE = Stage(
    "analyse errors",
    ErrorsConfig,
    run,
    "liebig analyse errors runs/a/run.trec runs/b/run.trec --collection runs/collection --out runs/errors",
    positional="runs",
)
