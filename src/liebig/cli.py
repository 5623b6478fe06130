"""The command line: commands from a static table, imported when they are used.

A stage command takes a recipe (a .toml file), flags, `key=value` overrides, and `--out`. Errors that a user can fix are
one sentence on standard error and exit code 2; an interrupted command exits with 130.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import OptionInfo

from liebig import __version__
from liebig.base import machine
from liebig.base.errors import LiebigError, MissingDependency
from liebig.base.progress import Volume, complain, is_verbose, set_volume
from liebig.base.storage import at_hand
from liebig.commands import BUILT_IN, GROUPS, METAVARS, Command, commands

_SPACE = "free some space and run the same command again, which goes on from what is finished"
_ACCESS = "allow it to be read, or written, or name another place"
_MEMORY = "use a smaller batch or fewer workers, or a machine with more memory; the same command resumes"
_GPU_MEMORY = (
    "end other programs on it (nvidia-smi lists them), or use a smaller batch; the same command resumes"
)
FULL = (errno.ENOSPC, errno.EDQUOT)
SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # how numpy says that a disk is full
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
NO_MEMORY = "there is not enough memory"
MEMORY = (
    (machine.GPU_FULL, "there is not enough memory on the GPU", _GPU_MEMORY),
    (machine.MEMORY_FULL, NO_MEMORY, _MEMORY),
)
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
        complain(f"liebig: {NO_MEMORY}. To fix it: {_MEMORY}.")
        raise typer.Exit(2) from None
    except Exception as error:
        sentence = system_error(error)
        if sentence is None:
            raise
        complain(f"liebig: {sentence}")
        raise typer.Exit(2) from None


def system_error(error: BaseException | None) -> str | None:
    """A full disk or GPU and its like as a sentence, where an error or what led to it says so; None where nothing does.

    Libraries in other languages (safetensors, FAISS, ONNX, Arrow) raise errors of their own, with the system's words.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        said = str(error)
        code = error.errno if isinstance(error, OSError) else None
        code = errno.ENOSPC if code is None and SHORT_WRITE.fullmatch(said) else code
        for number, fix in FIXES.items():
            system = code == number
            if system or (number in FULL and os.strerror(number) in said):
                where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
                return f"{where}{os.strerror(number)}. To fix it: {fix}."
        for words, what, fix in MEMORY:
            if isinstance(error, RuntimeError) and any(word in said for word in words):
                return f"{what}. To fix it: {fix}."
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
        written = getattr(sys.modules[function.__module__], "WRITTEN", ("out",))
        # The workers of a cluster fetch and publish by themselves.
        local = nullcontext(kwargs) if kwargs.get("on") else at_hand(kwargs, written)
        with reported(), local as values:
            function(*args, **values)

    signature = inspect.signature(function, eval_str=True)
    volumes = [
        inspect.Parameter(
            volume,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[bool, typer.Option(f"--{volume}", letter, help=help, hidden=True)],
            default=False,
        )
        for volume, (letter, help) in VOLUMES.items()
    ]
    parameters = [*signature.parameters.values(), *volumes]
    for parameter in parameters:
        name_value(parameter.annotation)
    wrapper.__doc__ = function.__doc__
    wrapper.__name__ = function.__name__
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def name_value(annotation: Any) -> None:
    """Give an option that has no metavar the one of its type, such as INTEGER."""
    kind, info = get_args(annotation)[:2]
    while parts := [part for part in get_args(kind) if part is not NoneType]:
        kind = parts[0]
    if isinstance(info, OptionInfo) and info.metavar is None:
        info.metavar = METAVARS.get(getattr(kind, "__name__", ""))


class PlainHelp:
    """Help for people: metavars as they are written, and neither Python's types nor a type behind a flag."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]  # of typer's command or group
        for param in params:
            if isinstance(param, TyperArgument):
                many = "..." if param.nargs != 1 and param.metavar is None else ""
                param.metavar = param.metavar or f"{(param.name or '').upper()}{many}"
                param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
            elif getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class PlainCommand(PlainHelp, TyperCommand):
    """A command whose usage has the metavars of its arguments, and no braces around them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        names = [f"[{a.metavar}]" if not a.required and a.nargs == 1 else str(a.metavar) for a in arguments]
        return ["[OPTIONS]", *names]


class LazyGroup(PlainHelp, TyperGroup):
    """Commands of the table whose names begin with `prefix`, imported when they are asked for by name.

    Its own help needs names, one line each and panels only, which the table has: nothing is imported for it.
    """

    prefix = ""
    static = False

    def list_commands(self, ctx: Any) -> list[str]:
        below = [name.removeprefix(self.prefix) for name in commands() if name.startswith(self.prefix)]
        firsts = (name.partition(" ")[0] for name in below)
        # `mcp` is a command and `mcp install` is one too: the second word does not make a group of the first.
        return list(dict.fromkeys(name if first in below else first for name, first in zip(below, firsts)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = self.prefix + cmd_name
        if name in commands():
            command = commands()[name]
            if self.static:
                return TyperCommand(cmd_name, help=command.help, rich_help_panel=command.panel)
            with reported():
                return _loaded(command)
        first = next((c for c in commands().values() if c.name.startswith(name + " ")), None)
        return None if first is None else _group(name, first.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if " ".join(args[:2]) in names:
            args = [" ".join(args[:2]), *args[2:]]
        if args[0] not in names and not args[0].startswith("-"):
            near = get_close_matches(args[0], names, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

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

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands under the names of their panels, each with the whole of its line."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        for panel in dict.fromkeys(command.rich_help_panel or "Commands" for _, command in named):
            with formatter.section(panel):
                here = [(n, c.help or "") for n, c in named if (c.rich_help_panel or "Commands") == panel]
                formatter.write_dl(here)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        with self._from_the_table():
            return super().shell_complete(ctx, incomplete)


def make_app() -> typer.Typer:
    """The whole command line. Its help is plain text: rich would take longer to import than all the rest."""
    app = typer.Typer(
        name="liebig",
        cls=_below(""),
        help="Turn a text corpus into a retriever.",
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": 100},
    )
    app.callback()(_options)
    return app


def _below(prefix: str) -> type[LazyGroup]:
    return type("Commands", (LazyGroup,), {"prefix": prefix})


def _group(name: str, panel: str) -> Any:
    """A word before commands, such as `queries`."""
    app = typer.Typer(name=name, cls=_below(f"{name} "), no_args_is_help=True, rich_markup_mode=None)
    app.callback(help=GROUPS.get(name, ""))(lambda: None)
    group = typer.main.get_group(app)
    group.rich_help_panel = panel
    return group


def _loaded(command: Command) -> Any:
    """The command of a module: of its `STAGE`, which is loaded when it runs, or of its function `command`."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    name = command.name.rpartition(" ")[2]
    if command.stage:
        from liebig.stage_command import Form, stage_command, stored_forms

        known = stored_forms().get(command.name) if command in BUILT_IN else None
        form = known or Form.of(command.load().STAGE)
        text = f"{command.help}\n\nExample:\n\n    {form.example}"
        epilog = EPILOG.format(name=command.name)
        does = stage_command(form, lambda: command.load().STAGE)
        app.command(name, cls=PlainCommand, help=text, epilog=epilog)(guarded(does))
    else:
        module = command.load()
        app.command(name, cls=PlainCommand, help=inspect.getdoc(module.command))(guarded(module.command))
    made = typer.main.get_command(app)
    made.name = name
    made.rich_help_panel = command.panel  # type: ignore[attr-defined]  # typer's own commands have it
    return made


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"liebig {__version__}")
        raise typer.Exit


FIRST = """Liebig turns a folder of documents into a search engine. To begin:

  liebig build ~/articles --out runs/articles    index the folder, and check what works best
  liebig search runs/articles                    ask it questions in the terminal
  liebig serve runs/articles --open              ask it in a browser

liebig demo builds one from the documentation of your own Python; liebig --help lists every command."""


def _options(
    ctx: typer.Context,
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
    if ctx.invoked_subcommand is None:
        typer.echo(FIRST)


def main() -> None:
    machine.fix_threads(os.environ.get("OMP_NUM_THREADS"))
    machine.wait_passively()
    sys.exit(make_app()())
