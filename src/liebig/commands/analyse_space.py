"""The recipes of `liebig analyse attention`, `neighbours`, `space`, `errors` and `leakage`."""

from __future__ import annotations

from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.evaluation.analyses import _write_table, draw, system_names
from liebig.evaluation.tasks import read_task


class SpaceConfig(Config):
    """`liebig analyse space MODEL…`: alignment, uniformity, isotropy, hubness, effective dimension."""

    models: tuple[ModelPath, ...] = Field(description="Model folders.")
    collection: InputPath = Field(
        description="Collection with passages; alignment also needs its judgements."
    )
    split: str | None = Field(
        None, description="Split whose queries and relevant passages are the pairs for alignment."
    )
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    count: int = Field(10_000, ge=10, description="Number of passages, drawn at random.")
    k: int = Field(10, ge=1, description="Number of neighbours per passage for hubness.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, ge=0, description="Seed of the random sample.")


def run(config: SpaceConfig, folder: Folder) -> None:
    """Alignment, uniformity, isotropy, hubness, effective dimension."""
    from liebig.evaluation.analyses import describe_space

    names = system_names(config.models, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    passages = draw(task.passages(), config.count, config.seed)
    if len(passages) < 2:
        raise DataError(
            "the analysis needs at least two passages",
            file=config.collection,
            fix="use a collection with more",
        )
    found = [describe_space(path, task, passages, config.k, config.device) for path in config.models]
    folder.write_json("space.json", {"passages": len(passages), "models": dict(zip(names, found))})
    header = ["measure", *names]
    rows = [[key, *(f"{one[key]:.4f}" for one in found)] for key in found[0]]
    _write_table(folder, "space.md", header, rows, left=1)


STAGE = Stage(
    "analyse space",
    SpaceConfig,
    run,
    "liebig analyse space runs/mlm/model --collection runs/collection --out runs/space",
    positional="models",
)
