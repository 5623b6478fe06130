"""`liebig report`: reads the folders of finished stages, writes `report.html` and its plots."""

from __future__ import annotations

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import counted
from liebig.base.workspace import Folder
from liebig.evaluation.plots import write_svg
from liebig.evaluation.report import all_plots, assemble, render
from liebig.evaluation.stage_runs import find_stages
from liebig.evaluation.tables import show


class ReportConfig(Config):
    """Write one self-contained HTML page with everything found in the folders: data, training, results, tests."""

    folders: tuple[InputPath, ...] = Field(
        description="Folders of finished stages, or folders that contain them."
    )
    title: str = Field("Liebig report", description="Title of the page.")
    about: str = Field("", description="A few sentences about the work, shown at the top.")
    samples: int = Field(2000, ge=100, description="Number of samples in the randomisation tests.")
    seed: int = Field(0, ge=0, description="Seed of the randomisation tests.")


def run(config: ReportConfig, folder: Folder) -> None:
    """Write the page, and every plot as an SVG file."""
    stages = find_stages(config.folders)
    page = assemble(stages, title=config.title, about=config.about, samples=config.samples, seed=config.seed)
    folder.write_text("report.html", render(page))
    for plot in all_plots(page):
        write_svg(folder.path / "plots" / f"{plot.name}.svg", plot.svg)
    show(
        f"{counted(len(stages), 'stages')}, {counted(len(page.tables), 'tasks')}: {folder.out / 'report.html'}"
    )


STAGE = Stage(
    "report",
    ReportConfig,
    run,
    "liebig report runs/evaluation runs/comparison --out runs/report",
    positional="folders",
)
