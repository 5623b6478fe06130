"""`liebig build`: documents without labels in, a folder that answers questions out (`builder/build.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from liebig.base.config import parse
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.progress import announce
from liebig.builder.build_config import BuildConfig
from liebig.builder.project_file import read_project
from liebig.formats.convert import given_converters

BUILT = "built"  # below a folder that searches in an engine, the retriever that was pushed
SAMPLES = 2000  # of randomisation tests
DEFAULTS = BuildConfig.model_construct(sources=())
DEFAULTS_GIVEN = {**DEFAULTS.model_dump(), "exclude": [], "include": []}


def option(name: str, *names: str, **more: Any) -> Any:
    """An option for a field of the config, with the field's description as its help."""
    return typer.Option(*names, help=BuildConfig.model_fields[name].description, **more)


def command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Files and folders, in any format liebig init reads [default: as liebig.toml says].",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the retriever [default: as liebig.toml says].")
    ] = None,
    minutes: Annotated[float | None, option("minutes", min=0)] = DEFAULTS.minutes,
    model: Annotated[str | None, option("model")] = DEFAULTS.model,
    teacher: Annotated[str | None, option("teacher")] = DEFAULTS.teacher,
    texts: Annotated[str | None, option("texts")] = DEFAULTS.texts,
    questions: Annotated[str | None, option("questions")] = DEFAULTS.questions,
    language: Annotated[str | None, option("language")] = DEFAULTS.language,
    seed: Annotated[int, option("seed", min=0)] = DEFAULTS.seed,
    format: Annotated[str | None, option("format")] = DEFAULTS.format,
    reranker: Annotated[str | None, option("reranker")] = DEFAULTS.reranker,
    rerank_depth: Annotated[int | None, option("rerank_depth", min=1)] = DEFAULTS.rerank_depth,
    rerank_int8: Annotated[
        bool, option("rerank_int8", "--rerank-int8/--no-rerank-int8")
    ] = DEFAULTS.rerank_int8,
    exclude: Annotated[list[str] | None, option("exclude", metavar="PATTERN")] = None,
    include: Annotated[list[str] | None, option("include", metavar="PATTERN")] = None,
    ignore_files: Annotated[
        bool, option("ignore_files", "--ignore-files/--no-ignore-files")
    ] = DEFAULTS.ignore_files,
    convert: Annotated[list[str] | None, option("convert", metavar="SUFFIX=COMMAND")] = None,
    strict: Annotated[bool, option("strict", "--strict")] = DEFAULTS.strict,
    replace: Annotated[bool, option("replace", "--replace")] = DEFAULTS.replace,
    engine: Annotated[
        str | None,
        typer.Option(help="Put the retriever into milvus or opensearch, and search there; see liebig push."),
    ] = None,
    uri: Annotated[str | None, typer.Option(help="Address of the engine.")] = None,
    name: Annotated[str, typer.Option(help="Name of the engine's table.")] = "passages",
) -> None:
    """Build a retriever from documents: passages, BM25, vectors, training where it pays, and a check of what is best.

    It keeps the better encoder and the better system, and says by how much. If interrupted, run it again to resume.

    Example:

        liebig build ~/articles --out runs/articles
    """
    fields = {
        "model": model,
        "teacher": teacher,
        "texts": texts,
        "minutes": minutes,
        "questions": questions,
        "language": language,
        "seed": seed,
        "format": format,
        "exclude": exclude or [],
        "include": include or [],
        "ignore_files": ignore_files,
        "convert": given_converters(convert or []),
        "strict": strict,
        "replace": replace,
        "reranker": reranker,
        "rerank_depth": rerank_depth,
        "rerank_int8": rerank_int8,
    }
    if not sources:
        # What differs from the default was given.
        given = {name: value for name, value in fields.items() if value != DEFAULTS_GIVEN[name]}
        project = read_project(Path(), given)
        config, out = project.config, out or project.out
    elif out is None:
        raise RecipeError("--out is missing", fix="say where the retriever is written: --out FOLDER")
    else:
        config = parse(BuildConfig, {"sources": sources, **fields})
    # Before torch is loaded. What has a colon is the name of a source, such as stdlib:.
    files = [source for source in config.sources if source != "-" and ":" not in source]
    for path in filter(None, [*files, questions, texts]):
        if not Path(path).exists():
            raise WorkspaceError("there is no such file or folder", file=path, fix="check the path")
    if (engine is None) != (uri is None):
        raise RecipeError("--engine and --uri belong together", fix="give both")
    if engine is not None:
        from liebig.builder.push import EngineConfig, push

        to = parse(EngineConfig, {"to": engine, "uri": uri, "name": name})
        build_and_report(config, out / BUILT)
        announce(push(out / BUILT, out, to))
    else:
        build_and_report(config, out)
    announce(f"Next: liebig serve {out}")


def build_and_report(config: BuildConfig, out: Path) -> Path:
    """Build or complete a retriever's folder, and write the page about it; gives the page."""
    from liebig.builder.build import build

    build(config, out, announce)
    report = write_report(out)
    announce(f"\nReport: {report}")
    return report


def write_report(out: Path) -> Path:
    """The page that shows what was built, what answers, and why."""
    from liebig.evaluation.report import assemble, render
    from liebig.evaluation.stage_runs import find_stages
    from liebig.stages.report import in_words

    report = out / "report.html"
    page = assemble(
        find_stages([out]),
        title=f"The retriever {out.name}",
        about="",
        samples=SAMPLES,
        seed=0,
        words=in_words,
    )
    report.write_text(render(page), encoding="utf-8")
    return report
