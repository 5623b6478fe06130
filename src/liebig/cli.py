"""The command line: a table of stages, and the few commands that are not stages.

Every stage command takes a recipe (a .toml file) or flags, `key=value` overrides, and `--out`. Errors a user can
fix are one sentence on standard error and exit code 2. The environment is read here and nowhere else.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from liebig import __version__, config as recipes, machine, pipeline, workspace
from liebig.commands import COMMANDS
from liebig.config import Config
from liebig.errors import LiebigError, RecipeError
from liebig.explain import nearest
from liebig.pipeline import Stage
from liebig.serve.command import serve
from liebig.stages import STAGES

GROUPS = {
    "analyse": "Look into models, vectors and results.",
    "queries": "Train query generators, write queries and look at them.",
    "rerank": "Train cross-encoders and score with them.",
}
OVERRIDE = re.compile(r"^[A-Za-z_][\w-]*(\.[\w@-]+)*=")
_SPACE = "free some space and run the same command again, which goes on from what is finished"
_ACCESS = "allow it to be read, or written, or name another place"
FIXES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.ENAMETOOLONG: "use shorter names",
    errno.ELOOP: "mend the links, which lead in a circle",
    errno.EIO: "the disk does not work; use another",
}
EPILOG = "Nested keys are set with KEY=VALUE, for example optim.lr=3e-4; liebig show --schema '{name}' lists them all."


def say(text: str) -> None:
    """A line for the user, beside the results."""
    typer.echo(text, err=True)


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Errors a user can fix end in one sentence and exit code 2; Ctrl-C says how to go on."""

    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except LiebigError as error:
            say(f"liebig: {error}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say("liebig: interrupted. What was finished is kept: run the same command again to go on.")
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in FIXES:
                raise
            where = f"{error.filename}: " if error.filename else ""
            say(f"liebig: {where}{os.strerror(error.errno)}. To fix it: {FIXES[error.errno]}.")
            raise typer.Exit(2) from None

    wrapper.__doc__ = function.__doc__
    wrapper.__name__ = function.__name__
    wrapper.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__annotations__ = {p.name: p.annotation for p in wrapper.__signature__.parameters.values()}  # type: ignore[attr-defined]
    return wrapper


def make_app(markup: Literal["markdown"] | None = "markdown") -> typer.Typer:
    """The whole command line; without markup its help is plain text, as in docs/cli.md."""
    app = typer.Typer(
        name="liebig",
        help="Condense a text corpus into a retriever.",
        no_args_is_help=True,
        rich_markup_mode=markup,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(_version)
    groups = {"": app}
    for stage in STAGES.values():
        group, _, name = stage.name.rpartition(" ")
        if group not in groups:
            groups[group] = typer.Typer(no_args_is_help=True, rich_markup_mode=markup)
            app.add_typer(groups[group], name=group, help=GROUPS[group])
        groups[group].command(name, help=_help(stage), epilog=EPILOG.format(name=stage.name))(_command(stage))
    for function in (run, show, search, serve, demo, *COMMANDS):
        app.command(function.__name__, help=inspect.getdoc(function))(guarded(function))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"liebig {__version__}")
        raise typer.Exit


def _version(
    version: Annotated[
        bool,
        # A callback of the option itself: the group's own runs only after a command was found.
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options before any command."""


def _help(stage: Stage) -> str:
    return f"{stage.help}\n\nExample:\n\n    {stage.example}"


def _command(stage: Stage) -> Callable[..., None]:
    """A typer command whose options are the plain fields of the stage's config."""
    options = {
        name: field for name, field in stage.config.model_fields.items() if _is_plain(field.annotation)
    }

    def command(words: list[str], out: Path | None, only_plan: bool = False, **flags: Any) -> None:
        recipe, overrides, values = split_words(stage, words)
        values |= {name: _typed(flag, options[name]) for name, flag in flags.items() if flag is not None}
        if recipe is not None and "stages" in recipes.read_toml(recipe):
            fix = f"liebig run {recipe}" + (" --plan" if only_plan else "")
            raise RecipeError("this is a pipeline of stages", file=recipe, fix=fix)
        config = recipes.load(stage.config, recipe, overrides, values)
        if only_plan and stage.plan is not None:
            typer.echo(stage.plan(config))
        elif out is None:
            raise RecipeError("there is no folder to write", fix="add --out DIR")
        else:
            _run(stage, config, out)

    words_help = "A recipe (.toml), KEY=VALUE overrides" + (
        f", {stage.positional}" if stage.positional else ""
    )
    parameters = [
        _parameter(
            "words", list[str], typer.Argument(help=words_help, metavar="[RECIPE] [KEY=VALUE]..."), []
        ),
        _parameter(
            "out", Path | None, typer.Option("--out", help="The folder to write.", metavar="DIR"), None
        ),
    ]
    if stage.plan is not None:
        help_plan = "Print steps, tokens, memory and time, and do nothing."
        parameters.append(_parameter("only_plan", bool, typer.Option("--plan", help=help_plan), False))
    for name, field in options.items():
        flag, kind = "--" + name.replace("_", "-"), _plain_type(field.annotation)
        names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
        default = (
            "" if field.is_required() or field.default is None else f" [default: {_shown(field.default)}]"
        )
        option = typer.Option(*names, help=(field.description or "") + default, show_default=False)
        parameters.append(_parameter(name, (bool if kind is bool else str) | None, option, None))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__name__ = stage.name.replace(" ", "_")
    return guarded(command)


def _parameter(name: str, kind: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=default
    )


def _typed(flag: Any, field: FieldInfo) -> Any:
    """The value of a flag; words and paths are what they are, even when they look like a number."""
    if not isinstance(flag, str) or _is_text(field.annotation):
        return flag
    return recipes.literal(flag)


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_text(part) for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    return annotation in (str, Path) or get_origin(annotation) is Literal


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def split_words(stage: Stage, words: list[str]) -> tuple[Path | None, list[str], dict[str, Any]]:
    """Tell a recipe, overrides and positional values apart."""
    recipe, overrides, values = None, [], []
    for word in words:
        if OVERRIDE.match(word) and not Path(word).exists():
            overrides.append(word)
        elif word.endswith(".toml") and recipe is None:
            recipe = Path(word)
        else:
            values.append(word)
    if not values:
        return recipe, overrides, {}
    if stage.positional is None:
        raise RecipeError(
            f"{values[0]!r} is neither a .toml recipe nor KEY=VALUE", fix=f"see liebig {stage.name} --help"
        )
    many = _many(stage.config.model_fields[stage.positional].annotation)
    if not many and len(values) > 1:
        raise RecipeError(f"{values[1]!r} is one {stage.positional} too many", fix="give one")
    return recipe, overrides, {stage.positional: values if many else values[0]}


def _run(stage: Stage, config: Config, out: Path) -> None:
    """Run a stage; of several processes the first alone writes the folder."""
    if int(os.environ.get("RANK", "0")) == 0:
        pipeline.run_stage(stage, config, out)
    else:
        whole, partial = workspace.places(out)
        stage.run(config, workspace.Folder(partial, whole, resumed=False))


def run(
    recipe: Annotated[
        Path, typer.Argument(help="A pipeline recipe (.toml), or the name of a packaged one: smoke/mlm.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted overrides.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the stages' folders go [default: runs/RECIPE].")
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Print what the stages would take, and do nothing.")
    ] = False,
) -> None:
    """Run a recipe's stages in order; skip what is up to date, take up what was interrupted.

    Example:

        liebig run recipes/smoke/mlm.toml stages.model.loop.steps=20
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        fix = "run its stages one by one, and those that train or encode under torchrun"
        raise RecipeError("a pipeline runs in one process", file=recipe, fix=fix)
    folder = out if out is not None else Path("runs") / recipe.stem
    planned = pipeline.plan(STAGES, recipe, overrides or [], folder)
    if not only_plan:
        pipeline.run(planned, say)
    for item in planned if only_plan else ():
        typer.echo(f"{item.name}: liebig {item.stage.name}")
        if item.stage.plan is not None:
            typer.echo(item.stage.plan(item.config))
    if only_plan:
        typer.echo(f"Time, memory and disk of every stage: liebig plan {recipe}")


def show(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="The stage a single-stage recipe is for.")] = None,
    schema: Annotated[str | None, typer.Option(help="Print the JSON schema of a stage's recipe.")] = None,
) -> None:
    """Print a recipe as it will be run: defaults filled in, overrides applied.

    Example:

        liebig show recipes/smoke/mlm.toml stages.model.loop.seed=2
    """
    if schema is not None:
        typer.echo(recipes.schema(_stage(schema).config), nl=False)
        return
    if not words:
        raise RecipeError("there is no recipe to show", fix="liebig show RECIPE.toml, or --schema STAGE")
    path, overrides = Path(words[0]), words[1:]
    if stage is not None:
        typer.echo(recipes.dump(recipes.load(_stage(stage).config, path, overrides)), nl=False)
        return
    for item in pipeline.plan(STAGES, path, overrides, Path("runs") / path.stem):
        typer.echo(f"# {item.name}: liebig {item.stage.name}, written to {item.out}")
        typer.echo(recipes.dump(item.config))


def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX... QUESTION", help="A retriever, or one or two indexes; and the question."
        ),
    ],
    k: Annotated[int, typer.Option(help="Passages to show.", min=1)] = 5,
    system: Annotated[
        str | None,
        typer.Option(help="Of a retriever: hybrid, dense or bm25 [default: the one its build chose]."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of an index: model of the question [default: the index's own].")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="A collection with the texts, where no index has them.")
    ] = None,
) -> None:
    """Ask a question in the terminal: a retriever, by the system its build chose, or one or two indexes side by side.

    Example:

        liebig search runs/articles "how do I merge two sorted lists"
    """
    from liebig.retriever.folder import is_retriever
    from liebig.retriever.terminal import search_retriever
    from liebig.search.terminal import search_here

    *indexes, question = words
    if not indexes:
        raise RecipeError("there is no index, or no question", fix='liebig search INDEX "the question"')
    paths = [Path(index) for index in indexes]
    whole = next((path for path in paths if is_retriever(path)), None)
    if whole is None:
        if system is not None:
            raise RecipeError("only a retriever has systems", fix="leave out --system")
        search_here(paths, question, k=k, model=model, texts=texts)
    elif len(paths) > 1:
        raise RecipeError(
            "a retriever is asked alone", file=whole, fix="name indexes to see them side by side"
        )
    elif model is not None or texts is not None:
        raise RecipeError(
            "a retriever has a model and texts of its own", file=whole, fix="leave out --model and --texts"
        )
    else:
        search_retriever(whole, question, k=k, system=system)


def _stage(name: str) -> Stage:
    if name not in STAGES:
        raise RecipeError(f"{name!r} is no stage", fix=nearest(name, sorted(STAGES)))
    return STAGES[name]


def demo(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser at the end.")] = False,
) -> None:
    """Make a search engine of your Python's own documentation, and judge it by 309 questions, in about five minutes.

    BM25, the bundled encoder as it comes, the same after a minute of training on the corpus, and both together: a
    table with intervals and tests, a page, and a folder for `liebig serve`. Run again, it goes on where it stopped.

    Example:

        liebig demo --open
    """
    from liebig.demo import run as run_demo

    run_demo(STAGES, out, say, show=show)


def _is_plain(annotation: Any) -> bool:
    return _plain_type(annotation) is not None


def _plain_type(annotation: Any) -> Any:
    """The type of a field that fits one option: a scalar, a choice, or one of them or None."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain_type(parts[0])
    if origin in (Union, UnionType):
        plain = {_plain_type(part) for part in parts if part is not NoneType}
        return None if None in plain else (bool if plain == {bool} else str)
    if origin is Literal or annotation in (str, int, float, Path):
        return str
    return bool if annotation is bool else None


def _many(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_many(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)


def main() -> None:
    """The console script."""
    machine.fix_threads(os.environ.get("OMP_NUM_THREADS"))
    sys.exit(make_app()())
