"""The recipes of `liebig analyse attention`, `neighbours`, `space`, `errors` and `leakage`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.evaluation.analyses import _write_table, named_texts
from liebig.evaluation.leakage import Checker
from liebig.evaluation.tables import show
from liebig.evaluation.tasks import read_task

Depth = Annotated[int, Field(ge=1)]


class LeakageConfig(Config):
    """`liebig analyse leakage`: evaluation texts that stand in pre-training text."""

    evaluation: InputPath = Field(description="Collection or file of questions used for evaluation.")
    corpus: tuple[InputPath, ...] = Field(description="Collections or files used for training.")
    split: str | None = Field(None, description="Split whose queries are checked [default: all queries].")
    length: int = Field(
        13,
        ge=2,
        description=(
            "Number of consecutive words that count as a leak; shorter texts are matched as a whole."
        ),
    )
    shortest: int = Field(5, ge=1, description="Texts with fewer words are not checked.")
    examples: int = Field(50, ge=0, description="Maximum number of leaks to list.")


def run(config: LeakageConfig, folder: Folder) -> None:
    """Evaluation texts inside pre-training texts."""
    task = read_task(config.evaluation, split=config.split)
    checker = Checker(
        {name: query.text for name, query in task.queries.items()}, config.length, config.shortest
    )
    with Progress("reading the corpus", unit="texts") as bar:
        for path in config.corpus:
            for name, text in named_texts(path):
                checker.read(name, text)
                bar.advance()
    leaks = checker.leaks()
    tree = {"checked": len(checker.names), "too_short": checker.skipped, "leaked": len(leaks)}
    folder.write_json("leakage.json", tree | {"leaks": [asdict(leak) for leak in leaks]})
    rows = [[leak.name, leak.run, leak.document, f"{leak.share:.0%}"] for leak in leaks[: config.examples]]
    _write_table(
        folder, "leakage.md", ["query", "run of words", "found in", "share of its runs"], rows, left=3
    )
    show(
        f"{len(leaks)} of {len(checker.names)} texts have a run of {config.length} words (or all of their words) in "
        f"the corpus; {checker.skipped} were shorter than {config.shortest} words and not checked."
    )


STAGE = Stage(
    "analyse leakage",
    LeakageConfig,
    run,
    "liebig analyse leakage runs/wiki --evaluation runs/collection --out runs/leakage",
    positional="corpus",
)
