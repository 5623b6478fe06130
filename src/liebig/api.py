"""The commands that build, train and measure, as Python functions: `build`, `pretrain`, `finetune`, `evaluate`.

    import liebig

    trained = liebig.pretrain(out="runs/model", stores=[{"path": "runs/store"}], objective={"kind": "condenser"})
    liebig.evaluate(trained.model, "runs/collection")

Keyword arguments are the keys of the command's recipe, tables are nested dicts, and a recipe file can be named first.
A folder that is up to date with its recipe and inputs is not made again. What comes back is a small object that prints
well and knows its folder.
"""

from __future__ import annotations

import contextlib
import html
import io
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from liebig.base import config as recipes
from liebig.base.errors import DataError, RecipeError
from liebig.base.mistakes import nearest
from liebig.base.pipeline import Planned, Stage, run_as_rank
from liebig.base.progress import announce
from liebig.base.records import Document
from liebig.builder.build import BuildResult, build as build_folder, kept_documents
from liebig.builder.build_config import BuildConfig
from liebig.evaluation.results import Results, TaskResult, read_results
from liebig.evaluation.tables import results_markdown, task_rows
from liebig.formats.documents import IDS, document
from liebig.formats.items import Where
from liebig.stages.evaluate import STAGE as EVALUATE
from liebig.stages.finetune import STAGE as FINETUNE
from liebig.stages.pretrain import STAGE as PRETRAIN
from liebig.train.log import read_log, warnings_of

if TYPE_CHECKING:
    from liebig.model.encoder import Encoder

C = TypeVar("C", bound=recipes.Config)
SHOWN = 10  # lines of a log in a notebook


@dataclass(frozen=True)
class TrainingResult:
    """A finished training run: `folder`, `model` (its model folder), `log` (a dict per line), `encoder()`."""

    folder: Path

    @property
    def model(self) -> Path:
        """The folder of the model, which transformers and sentence-transformers load too."""
        return self.folder / "model"

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log: losses, evaluations and events by step."""
        return read_log(self.folder)

    @property
    def losses(self) -> dict[int, float]:
        """The loss by step."""
        return {line["step"]: line["loss"] for line in self.log if "loss" in line}

    @property
    def evaluations(self) -> dict[int, dict[str, float]]:
        """The values on held-out data by step; empty where nothing was held out."""
        return {line["step"]: line["evaluation"] for line in self.log if "evaluation" in line}

    def encoder(self) -> Encoder:
        """The trained model, loaded."""
        from liebig.model.encoder import Encoder

        return Encoder.load(self.model)

    def __repr__(self) -> str:
        losses, evaluations = self.losses, self.evaluations
        lines = [f"Model in {self.model}"]
        if losses:
            first, last = min(losses), max(losses)
            lines.append(f"{last:,} steps, loss {losses[first]:.4f} (step {first:,}) to {losses[last]:.4f}")
        if evaluations:
            last = max(evaluations)
            values = ", ".join(f"{name} {value:.4f}" for name, value in evaluations[last].items())
            lines.append(f"held out, step {last:,}: {values}")
        return "\n".join([*lines, *warnings_of(self.folder)])

    def _repr_html_(self) -> str:
        """Losses and evaluations as a table, for notebooks."""
        losses, evaluations = self.losses, self.evaluations
        steps = sorted({*losses, *evaluations})
        shown = steps[:: max(1, len(steps) // SHOWN)] + steps[-1:]
        names = list(dict.fromkeys(name for values in evaluations.values() for name in values))
        rows = [
            [f"{step:,}", _cell(losses.get(step)), *(_cell(evaluations.get(step, {}).get(n)) for n in names)]
            for step in dict.fromkeys(shown)
        ]
        return f"<p>Model in {html.escape(str(self.model))}</p>" + _table(["step", "loss", *names], rows)


@dataclass(frozen=True)
class EvaluationResult:
    """Measures with their intervals, task by task; `result["nDCG@10"]` is the mean on the only task."""

    results: Results

    @property
    def tasks(self) -> Sequence[TaskResult]:
        """What was measured on each collection."""
        return self.results.tasks

    def __getitem__(self, measure: str) -> float:
        """The mean of a measure; `tasks` has intervals, and several collections."""
        if len(self.tasks) != 1:
            raise RecipeError(
                f"{measure} was measured on {len(self.tasks)} tasks",
                fix="choose one of result.tasks, such as result.tasks[0].measures",
            )
        measures = self.tasks[0].measures
        if measure not in measures:
            raise RecipeError(f"{measure} was not measured", fix=nearest(measure, list(measures)))
        return measures[measure].mean

    def __repr__(self) -> str:
        return results_markdown(self.results)

    def _repr_html_(self) -> str:
        """A table per task, for notebooks."""
        tables = (task_rows(self.results.system, task) for task in self.tasks)
        return "".join(_table(header, rows) for header, rows in tables)


def build(sources: str | Path | Iterable[str | Path], out: str | Path, **config: Any) -> BuildResult:
    """Build a retriever from files and folders without labels, as `liebig build` does.

    `config` takes `model`, `questions`, `teacher`, `minutes` of training on the documents, `language`, `seed`,
    `format` and `strict` (see `liebig build --help`).
    """
    fields = {"sources": sources if isinstance(sources, str | Path) else list(sources), **config}
    return build_folder(recipes.parse(BuildConfig, fields), Path(out), announce)


class TemporaryFolder:
    """A folder that is removed when nothing refers to this object any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="liebig-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def build_documents(documents: Iterable[Any], out: str | Path | None = None, **config: Any) -> BuildResult:
    """Build a retriever from Python objects: strings, dicts with `text`, or Documents.

    `liebig.build_documents(["Barley needs nitrogen.", "Glass is made of sand."]).retriever.search("barley")`

    A dict may have `id`, `title`, `sections` and `metadata` too; other keys become metadata. What has no id gets its
    place as one. Without `out` the folder is a temporary one, removed with the result and its retrievers.
    """
    if isinstance(documents, str | bytes | Mapping):
        raise DataError("one document was given where several are expected", fix="give a list: [document]")
    records = [_document(given, str(place)) for place, given in enumerate(documents)]
    keeper = TemporaryFolder() if out is None else None
    folder = keeper.path if keeper is not None else Path(str(out))
    fields = {"sources": str(kept_documents(folder)), **config}
    result = build_folder(recipes.parse(BuildConfig, fields), folder, announce, records)
    return replace(result, keeper=keeper)


def pretrain(recipe: str | Path | None = None, *, out: str | Path, **config: Any) -> TrainingResult:
    """Train an encoder on text without labels, as `liebig pretrain` does.

    `liebig.pretrain(out="runs/m", stores=[{"path": "runs/store"}], objective={"kind": "condenser"}, loop={"steps": 9})`
    """
    return TrainingResult(_made(PRETRAIN, recipe, Path(out), config))


def finetune(recipe: str | Path | None = None, *, out: str | Path, **config: Any) -> TrainingResult:
    """Train a retriever on labelled or mined data, as `liebig finetune` does.

    `liebig.finetune(out="runs/r", model={"kind": "folder", "path": "runs/m/model"}, collection="runs/collection")`
    """
    return TrainingResult(_made(FINETUNE, recipe, Path(out), config))


def evaluate(
    system: str | Path, *collections: str | Path, out: str | Path | None = None, **config: Any
) -> EvaluationResult:
    """Evaluate a run or a model on collections, as `liebig evaluate` does; `out` keeps the values of every query.

    `liebig.evaluate("runs/model/model", "runs/collection", split="dev")["nDCG@10"]`
    """
    fields = {"system": system, "collections": list(collections), **config}
    with contextlib.ExitStack() as stack:
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="liebig-"))) / "evaluation"
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))  # the object prints the table
        return EvaluationResult(read_results(_made(EVALUATE, None, Path(out), fields)))


def _made(stage: Stage[C], recipe: str | Path | None, out: Path, fields: Mapping[str, Any]) -> Path:
    """The folder of a stage, run unless it is up to date."""
    config = recipes.load(stage.config, None if recipe is None else Path(recipe), values=fields)
    if not Planned(stage.name, stage, config, out).up_to_date:
        run_as_rank(stage, config, out)
    return out


def _document(given: Any, place: str) -> Document:
    if isinstance(given, Document):
        return given
    where = Where(f"document {place}")
    row = {"text": given} if isinstance(given, str) else given
    if not isinstance(row, Mapping):
        where.refuse(
            f"expected a string, a dict or a Document, got {type(given).__name__}", 'write {"text": ...}'
        )
    return document(row if set(IDS) & set(row) else {"id": place, **row}, where)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of cells that are text."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
