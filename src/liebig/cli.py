"""The command line: commands from a static table, imported when they are used.

A stage command takes a recipe (a .toml file), flags, `key=value` overrides, and `--out`. Errors that a user can fix are
one sentence on standard error and exit code 2; an interrupted command exits with 130.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from liebig import __version__
from liebig.base import config as recipes, machine
from liebig.base.errors import LiebigError, MissingDependency, RecipeError
from liebig.base.json_output import print_json, without_text
from liebig.base.pipeline import Stage
from liebig.base.progress import Volume, complain, is_verbose, set_volume
from liebig.commands import GROUPS, Command, commands, run_stage

OVERRIDE = re.compile(r"^[A-Za-z_][\w-]*(\.[\w@-]+)*=")
_SPACE = "free some space and run the same command again, which goes on from what is finished"
_ACCESS = "allow it to be read, or written, or name another place"
_MEMORY = "use a smaller batch or fewer workers, or a machine with more memory; the same command resumes"
FULL = (errno.ENOSPC, errno.EDQUOT)
FIXES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.ENAMETOOLONG: "use shorter names",
    errno.ELOOP: "remove the symlink loop",
    errno.EIO: "the disk does not work; use another",
}
EPILOG = "Nested keys are set with KEY=VALUE, for example optim.lr=3e-4; liebig show --schema '{name}' lists them all."


@contextmanager
def reported() -> Iterator[None]:
    """Errors a user can fix end in one sentence and exit code 2; Ctrl-C says how to go on."""
    try:
        yield
    except LiebigError as error:
        if is_verbose():
            traceback.print_exc()
        complain(f"liebig: {error}")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        complain("liebig: interrupted. What was finished is kept: run the same command again to resume.")
        raise typer.Exit(130) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package == "liebig":
            raise
        complain(f"liebig: {MissingDependency(package, 'train', 'this command')}")
        raise typer.Exit(2) from None
    except MemoryError:
        complain(f"liebig: there is not enough memory. To fix it: {_MEMORY}.")
        raise typer.Exit(2) from None
    except Exception as error:
        sentence = system_error(error)
        if sentence is None:
            raise
        complain(f"liebig: {sentence}")
        raise typer.Exit(2) from None


def system_error(error: BaseException | None) -> str | None:
    """A full disk and its like as a sentence, where an error or what led to it says so; None where nothing does.

    Libraries in other languages (safetensors, FAISS, ONNX, Arrow) raise errors of their own, with the system's words.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        said = str(error)
        for number, fix in FIXES.items():
            system = isinstance(error, OSError) and error.errno == number
            if system or (number in FULL and os.strerror(number) in said):
                where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
                return f"{where}{os.strerror(number)}. To fix it: {fix}."
        error = error.__cause__ or error.__context__
    return None


VOLUMES: dict[Volume, tuple[str, str]] = {
    "quiet": ("-q", "Print results and errors only, no progress."),
    "verbose": ("-v", "Print remarks of every stage, warnings of libraries, and tracebacks of errors."),
}


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """The function with its errors reported, and with the signature that typer reads.

    --quiet and --verbose are accepted behind the name of every command too, whose help does not repeat them.
    """

    def wrapper(*args: Any, **kwargs: Any) -> None:
        for volume in VOLUMES:
            if kwargs.pop(volume):
                set_volume(volume)
        with reported():
            function(*args, **kwargs)

    signature = inspect.signature(function, eval_str=True)
    volumes = [
        _parameter(volume, bool, typer.Option(f"--{volume}", letter, help=help, hidden=True), False)
        for volume, (letter, help) in VOLUMES.items()
    ]
    parameters = [*signature.parameters.values(), *volumes]
    wrapper.__doc__ = function.__doc__
    wrapper.__name__ = function.__name__
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


class LazyGroup(TyperGroup):
    """Commands of the table whose names begin with `prefix`, imported when they are asked for by name.

    Its own help needs names, one line each and panels only, which the table has: nothing is imported for it.
    """

    prefix = ""
    markup: Literal["markdown"] | None = "markdown"
    static = False

    def list_commands(self, ctx: Any) -> list[str]:
        below = [name.removeprefix(self.prefix) for name in commands() if name.startswith(self.prefix)]
        return list(dict.fromkeys(name.partition(" ")[0] for name in below))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = self.prefix + cmd_name
        if name in commands():
            command = commands()[name]
            if self.static:
                return TyperCommand(cmd_name, help=command.help, rich_help_panel=command.panel)
            with reported():
                return _loaded(command, self.markup)
        first = next((c for c in commands().values() if c.name.startswith(name + " ")), None)
        return None if first is None else _group(name, self.markup, first.panel)

    @contextmanager
    def _from_the_table(self) -> Iterator[None]:
        self.static = True
        try:
            yield
        finally:
            self.static = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._from_the_table():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        with self._from_the_table():
            return super().shell_complete(ctx, incomplete)


def make_app(markup: Literal["markdown"] | None = "markdown") -> typer.Typer:
    """The whole command line; without markup its help is plain text, as in docs/cli.md."""
    app = typer.Typer(
        name="liebig",
        cls=_below("", markup),
        help="Turn a text corpus into a retriever.",
        no_args_is_help=True,
        rich_markup_mode=markup,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    return app


def _below(prefix: str, markup: Literal["markdown"] | None) -> type[LazyGroup]:
    return type("Commands", (LazyGroup,), {"prefix": prefix, "markup": markup})


def _group(name: str, markup: Literal["markdown"] | None, panel: str) -> Any:
    """A word before commands, such as `queries`."""
    app = typer.Typer(
        name=name, cls=_below(f"{name} ", markup), no_args_is_help=True, rich_markup_mode=markup
    )
    app.callback(help=GROUPS.get(name, ""))(lambda: None)
    group = typer.main.get_group(app)
    group.rich_help_panel = panel
    return group


def _loaded(command: Command, markup: Literal["markdown"] | None) -> Any:
    """The command of a module: of its `STAGE`, or of its function `command`."""
    app = typer.Typer(rich_markup_mode=markup, pretty_exceptions_enable=False, add_completion=False)
    module = command.load()
    name = command.name.rpartition(" ")[2]
    if command.stage:
        text = f"{command.help}\n\nExample:\n\n    {module.STAGE.example}"
        epilog = EPILOG.format(name=command.name)
        app.command(name, help=text, epilog=epilog)(_stage_command(module.STAGE))
    else:
        app.command(name, help=inspect.getdoc(module.command))(guarded(module.command))
    made = typer.main.get_command(app)
    made.name = name
    made.rich_help_panel = command.panel  # type: ignore[attr-defined]  # typer's own commands have it
    return made


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"liebig {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", VOLUMES["quiet"][0], help=VOLUMES["quiet"][1])] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", VOLUMES["verbose"][0], help=VOLUMES["verbose"][1])
    ] = False,
) -> None:
    """Options of `liebig` itself; --quiet and --verbose may also follow the command."""
    set_volume("quiet" if quiet else "verbose" if verbose else "normal")


def _stage_command(stage: Stage) -> Callable[..., None]:
    """A typer command whose options are the plain fields of the stage's config."""
    options = {
        name: field for name, field in stage.config.model_fields.items() if _is_plain(field.annotation)
    }

    def command(
        words: list[str], out: Path | None, only_plan: bool = False, as_json: bool = False, **flags: Any
    ) -> None:
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
            with without_text(as_json):
                run_stage(stage, config, out)
            if as_json:
                print_json(json.loads((out / stage.document).read_text(encoding="utf-8")))

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
        help_plan = "Print steps, tokens, memory and time, and exit without running."
        parameters.append(_parameter("only_plan", bool, typer.Option("--plan", help=help_plan), False))
    if stage.document:
        help_json = (
            f"Print {stage.document} as one line of JSON instead of tables; docs/json.md has the fields."
        )
        parameters.append(_parameter("as_json", bool, typer.Option("--json", help=help_json), False))
    for name, field in options.items():
        flag, kind = "--" + name.replace("_", "-"), _plain_type(field.annotation)
        names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
        default = (
            "" if field.is_required() or field.default is None else f" [default: {_shown(field.default)}]"
        )
        option = typer.Option(
            *names,
            help=(field.description or "") + default,
            show_default=False,
            metavar=None if kind is bool else "|".join(_type_names(field.annotation)),
        )
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


def _type_names(annotation: Any) -> list[str]:
    """What the help shows as an option's type: the words of a choice, or the kinds of values it takes."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_names(parts[0])
    if origin in (Union, UnionType):
        return list(
            dict.fromkeys(name for part in parts if part is not NoneType for name in _type_names(part))
        )
    if origin is Literal:
        return [_shown(part) for part in parts]
    return {str: ["TEXT"], int: ["INTEGER"], float: ["FLOAT"], Path: ["PATH"], bool: ["true", "false"]}[
        annotation
    ]


def _many(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_many(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)


def main() -> None:
    """The console script."""
    machine.fix_threads(os.environ.get("OMP_NUM_THREADS"))
    machine.wait_passively()
    sys.exit(make_app()())
