"""A stage as a command: plain fields of its config are options; words are a recipe, overrides and positional values.

`Form` is what the command line shows of a stage. `make docs` stores the forms of all stages in `commands/forms.json`,
so `liebig pretrain --help` needs neither the module nor torch; a test holds the file to the modules.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from liebig.base import config as recipes
from liebig.base.errors import RecipeError
from liebig.base.json_output import print_json, without_text
from liebig.base.pipeline import Stage, run_as_rank
from liebig.commands import METAVARS

OVERRIDE = re.compile(r"^[A-Za-z_][\w-]*(\.[\w@-]+)*=")


class Option(BaseModel):
    """An option of a stage: a field of its config that fits one."""

    name: str
    help: str
    metavar: str | None  # None: a flag with its opposite


class Form(BaseModel):
    """What the command line shows of a stage."""

    name: str
    example: str
    positional: str | None
    many: bool  # whether several positional values are taken
    plan: bool
    document: str
    options: tuple[Option, ...]

    @classmethod
    def of(cls, stage: Stage) -> Form:
        """The form of a stage whose module is loaded."""
        fields = stage.config.model_fields
        return cls(
            name=stage.name,
            example=stage.example,
            positional=stage.positional,
            many=stage.positional is not None and _many(fields[stage.positional].annotation),
            plan=stage.plan is not None,
            document=stage.document,
            options=tuple(
                _option(name, field) for name, field in fields.items() if _is_plain(field.annotation)
            ),
        )

    def signature(self) -> inspect.Signature:
        """Parameters as typer reads them."""
        metavar, words_help = "[RECIPE] [KEY=VALUE]...", "a recipe (.toml), KEY=VALUE overrides"
        if self.positional is not None:
            metavar = f"[{self.positional.upper()}]{'...' * self.many} {metavar}"
            words_help = f"{self.positional}, {words_help}, in any order"
        words = typer.Argument(help=words_help[0].upper() + words_help[1:], metavar=metavar)
        out = typer.Option("--out", help="The folder to write.", metavar="DIR")
        parameters = [_parameter("words", list[str], words, []), _parameter("out", Path | None, out, None)]
        if self.plan:
            help_plan = "Print steps, tokens, memory and time, and exit without running."
            parameters.append(_parameter("only_plan", bool, typer.Option("--plan", help=help_plan), False))
        if self.document:
            help_json = (
                f"Print {self.document} as one line of JSON instead of tables; docs/json.md has the fields."
            )
            parameters.append(_parameter("as_json", bool, typer.Option("--json", help=help_json), False))
        for option in self.options:
            flag = "--" + option.name.replace("_", "-")
            names = [f"{flag}/--no-{flag[2:]}"] if option.metavar is None else [flag]
            info = typer.Option(*names, help=option.help, show_default=False, metavar=option.metavar)
            kind = bool if option.metavar is None else str
            parameters.append(_parameter(option.name, kind | None, info, None))
        return inspect.Signature(parameters)


FORMS = "forms.json"


@cache
def stored_forms() -> dict[str, Form]:
    """The forms of the stages that come with Liebig, by name."""
    text = (resources.files("liebig.commands") / FORMS).read_text(encoding="utf-8")
    return {form.name: form for form in TypeAdapter(list[Form]).validate_json(text)}


def help_command(form: Form) -> Callable[..., None]:
    """A command that has the help of a stage and does nothing."""

    def command(**_: Any) -> None:
        raise AssertionError("this command only has a help")

    command.__signature__ = form.signature()  # type: ignore[attr-defined]  # typer reads it
    return command


def stage_command(stage: Stage) -> Callable[..., None]:
    """A typer command whose options are the plain fields of the stage's config."""
    fields = stage.config.model_fields

    def command(
        words: list[str], out: Path | None, only_plan: bool = False, as_json: bool = False, **flags: Any
    ) -> None:
        recipe, overrides, values = split_words(stage, words)
        values |= {name: _typed(flag, fields[name]) for name, flag in flags.items() if flag is not None}
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
                run_as_rank(stage, config, out)
            if as_json:
                print_json(json.loads((out / stage.document).read_text(encoding="utf-8")))

    command.__signature__ = Form.of(stage).signature()  # type: ignore[attr-defined]  # typer reads it
    command.__name__ = stage.name.replace(" ", "_")
    return command


def _parameter(name: str, kind: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=default
    )


def _option(name: str, field: FieldInfo) -> Option:
    default = "" if field.is_required() or field.default is None else f" [default: {_shown(field.default)}]"
    is_flag = _plain_type(field.annotation) is bool
    metavar = None if is_flag else "|".join(_type_names(field.annotation))
    return Option(name=name, help=(field.description or "") + default, metavar=metavar)


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
    return ["true", "false"] if annotation is bool else [METAVARS[annotation.__name__]]


def _many(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_many(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)
