"""`liebig report`: reads the folders of finished stages, writes `report.html` and its plots.

The page says what a stage did in words: those of its summary, or those of `BUILT` for the folders of a retriever.
"""

from __future__ import annotations

import re

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import counted
from liebig.base.workspace import Folder
from liebig.evaluation.plots import write_svg
from liebig.evaluation.report import all_plots, assemble, render
from liebig.evaluation.stage_runs import StageRun, find_stages
from liebig.evaluation.tables import show
from liebig.search import retriever_folder
from liebig.search.retriever_folder import WORK
from liebig.stages import STAGES, does

BUILT = {  # by the name of the folder below a retriever or its work folder; the first that fits
    "read": "read the documents",
    "collection": "cut the documents into passages",
    "bm25": "index the words of all passages (BM25)",
    "reranker": "copy the reranker",
    "model|query": "copy the encoder that was chosen",
    "index": "index the vectors of all passages",
    "sentences": "index the vectors of all sentences",
    "vectors": "encode all passages",
    "vectors-teacher": "encode all passages with the teacher",
    "sentence-vectors": "encode all sentences",
    "spread": "measure the unit of the cosines",
    "questions": "make questions about the documents",
    "given": "read your questions",
    "checks": "answer the questions with every system, and choose",
    "check-start": "check the encoder before training",
    "pool-bm25": "index the words of the passages that the check searches",
    "pool-.*-sentences": "encode the sentences that the check searches",
    "pool-.*": "encode the passages that the check searches",
    "rest": "set aside the passages that no question is about",
    "store|lessons-store": "tokenize the texts to train on",
    "trained": "train the encoder on the documents",
    "mean": "average the encoder before and after training",
    "phrases": "cut short texts from the documents, for the teacher",
    "phrases-taught": "encode the short texts with the teacher",
    "lessons": "put texts and the teacher's vectors together",
    "lessons-start": "encode the texts with the encoder before training",
    "vectors-start": "encode all passages with the encoder before training",
    "candidates-.*": "put together the passages that texts are ranked against",
    "student": "fit the student to the teacher's vectors, before training",
    "student-.*": "average the student before and after training",
    "taught": "train the student",
    "learnt.*": "learn a map of the vectors from your questions",
    "mapped.*": "map the vectors",
    "changes": "find what changed in the documents",
    "changed-.*": "encode what changed",
    "compact-.*": "compact the index",
}


def in_words(stage: StageRun) -> str:
    """What a stage did: by its folder in a retriever, or by its kind."""
    parent, kind = stage.path.parent, stage.manifest.kind
    if parent.name == WORK or retriever_folder.is_retriever(parent):
        name = re.sub(r"-\d+$", "", stage.path.name) if parent.name != WORK else stage.path.name
        for pattern, said in BUILT.items():
            if re.fullmatch(pattern, name):
                return said
    return does(kind) if kind in STAGES else kind


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
    page = assemble(
        stages,
        title=config.title,
        about=config.about,
        samples=config.samples,
        seed=config.seed,
        words=in_words,
    )
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
