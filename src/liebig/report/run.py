"""`liebig report`: reads folders that stages left, writes `report.html` and its plots."""

from __future__ import annotations

from liebig.evaluate.plots import write_svg
from liebig.evaluate.table import show
from liebig.report.config import ReportConfig
from liebig.report.gather import find_stages
from liebig.report.page import all_plots, assemble, render
from liebig.workspace import Folder


def run(config: ReportConfig, folder: Folder) -> None:
    """Write the page, and every plot as a file of its own."""
    stages = find_stages(config.folders)
    page = assemble(stages, title=config.title, about=config.about, samples=config.samples, seed=config.seed)
    folder.write_text("report.html", render(page))
    for plot in all_plots(page):
        write_svg(folder.path / "plots" / f"{plot.name}.svg", plot.svg)
    show(f"{len(stages)} stages, {len(page.tables)} tasks: {folder.out / 'report.html'}")
