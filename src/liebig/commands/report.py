"""`liebig report`: reads folders that stages left, writes `report.html` and its plots."""

from __future__ import annotations

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.evaluation.plots import write_svg
from liebig.evaluation.report import all_plots, assemble, find_stages, render
from liebig.evaluation.tables import show

# The recipe of `liebig report`.


class ReportConfig(Config):
    """`liebig report FOLDER…`: one self-contained HTML page of everything in the folders."""

    folders: tuple[InputPath, ...] = Field(
        description="Folders that stages wrote, or folders of such folders."
    )
    title: str = Field("Liebig report", description="The title of the page.")
    about: str = Field("", description="A few sentences on what was tried and why, shown at the top.")
    samples: int = Field(2000, ge=100, description="Samples of the tests between systems on one task.")
    seed: int = Field(0, description="Seed of those tests.")


def run(config: ReportConfig, folder: Folder) -> None:
    """Write the page, and every plot as a file of its own."""
    stages = find_stages(config.folders)
    page = assemble(stages, title=config.title, about=config.about, samples=config.samples, seed=config.seed)
    folder.write_text("report.html", render(page))
    for plot in all_plots(page):
        write_svg(folder.path / "plots" / f"{plot.name}.svg", plot.svg)
    show(f"{len(stages)} stages, {len(page.tables)} tasks: {folder.out / 'report.html'}")


STAGE = Stage(
    "report",
    ReportConfig,
    run,
    "liebig report runs/evaluation runs/comparison --out runs/report",
    positional="folders",
)
