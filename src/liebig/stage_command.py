"""A stage as a command: plain fields of its config are options; words are a recipe, overrides and positional values.

`Form` is what the command line has to know of a stage. `make docs` stores the forms of all stages in
`commands/forms.json`, so neither `liebig pretrain --help` nor a mistake in the arguments waits for the module and for
torch; a test holds the file to the modules.
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
from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from liebig.base import config as recipes
from liebig.base.config import Config, Input, InputPath, ModelInput, ModelPath
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.json_output import print_json, without_text
from liebig.base.pipeline import Stage, run_as_rank
from liebig.base.storage import address, fetched
from liebig.base.toml_text import literal
from liebig.base.workspace import WHOLE, StagePart
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
    first: str | None
    many: bool  # whether several positional values are taken
    document: str
    in_parts: bool
    options: tuple[Option, ...]
    fields: dict[
        str, dict[str, Any]
    ]  # every key of the config with the JSON schema of its value, where that is plain

    @classmethod
    def of(cls, stage: Stage) -> Form:
        """The form of a stage whose module is loaded."""
        fields = stage.config.model_fields
        schemas = stage.config.model_json_schema()["properties"]
        return cls(
            name=stage.name,
            example=stage.example,
            positional=stage.positional,
            first=stage.first,
            many=stage.positional is not None and _many(fields[stage.positional].annotation),
            document=stage.document,
            in_parts=stage.in_parts,
            options=tuple(
                _option(name, field) for name, field in fields.items() if _is_plain(field.annotation)
            ),
            fields={name: _described(field, schemas[name]) for name, field in fields.items()},
        )

    def outline(self) -> type[Config]:
        """The config of the stage as far as its plain fields go; tables and lists are accepted as they are."""
        fields: dict[str, Any] = {
            name: (
                _annotation(about),
                Field(description=about[REQUIRED])
                if REQUIRED in about
                else Field(None, validate_default=False),
            )
            for name, about in self.fields.items()
        }
        return create_model(self.name, __base__=Config, **fields)

    def check_inputs(self, config: Config) -> None:
        """Refuse files and folders that do not exist, as the stage would."""
        for name, about in self.fields.items():
            path = getattr(config, name)
            if about.get(READS) == "file" and isinstance(path, Path) and not (path.exists() or address(path)):
                raise WorkspaceError("there is no such file or folder", file=path, fix="check the path")

    def signature(self) -> inspect.Signature:
        """Parameters as typer reads them."""
        metavar, words_help = "[RECIPE] [KEY=VALUE]...", "a recipe (.toml), KEY=VALUE overrides"
        if self.positional is not None:
            metavar = f"[{self.positional.upper()}]{'...' * self.many} {metavar}"
            words_help = f"{self.positional}, {words_help}, in any order"
        if self.first is not None:
            metavar, words_help = f"[{self.first.upper()}] {metavar}", f"{self.first}, then {words_help}"
        words = typer.Argument(help=words_help[0].upper() + words_help[1:], metavar=metavar)
        out = typer.Option("--out", help="The folder to write.", metavar="DIR")
        parameters = [_parameter("words", list[str], words, []), _parameter("out", Path | None, out, None)]
        if self.document:
            help_json = (
                f"Print {self.document} as one line of JSON instead of tables; docs/json.md has the fields."
            )
            parameters.append(_parameter("as_json", bool, typer.Option("--json", help=help_json), False))
        if self.in_parts:
            help_part = "Make this part only, such as 2/8; liebig merge puts the parts together."
            parameters.append(
                _parameter("part", str | None, typer.Option("--part", help=help_part, metavar="I/N"), None)
            )
            help_on = "Make it in parts on a Ray cluster: its address, or ray for this machine's cores."
            parameters.append(
                _parameter("on", str | None, typer.Option("--on", help=help_on, metavar="ADDRESS"), None)
            )
            help_parts = "With --on: the number of parts [default: four per core or GPU of the cluster]."
            parameters.append(
                _parameter("parts", int | None, typer.Option("--parts", help=help_parts, min=1), None)
            )
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


def stage_command(form: Form, load: Callable[[], Stage]) -> Callable[..., None]:
    """A typer command whose options are the plain fields of the stage's config; mistakes are found before it loads."""

    def command(
        words: list[str],
        out: Path | None,
        as_json: bool = False,
        part: str | None = None,
        on: str | None = None,
        parts: int | None = None,
        **flags: Any,
    ) -> None:
        outline = form.outline()
        made = WHOLE if part is None else StagePart.parse(part)
        if (part is not None and on is not None) or (parts is not None and on is None):
            raise RecipeError("--parts belongs to --on, and --part makes one part here", fix="leave one out")
        options = {
            name: _typed(flag, outline.model_fields[name]) for name, flag in flags.items() if flag is not None
        }
        recipe, overrides, values = split_words(form, words, options)
        if recipe is not None and "stages" in recipes.read_toml(recipe):
            raise RecipeError("this is a pipeline of stages", file=recipe, fix=f"liebig run {recipe}")
        try:
            known = recipes.load(outline, recipe, overrides, values)
        except RecipeError:
            if recipe is not None or any(_is_nested(override, form) for override in overrides):
                recipes.load(
                    load().config, recipe, overrides, values
                )  # names what is wrong inside tables too
            raise
        form.check_inputs(known)
        if out is None:
            raise RecipeError("there is no folder to write", fix="add --out DIR")
        stage = load()
        config = recipes.load(stage.config, recipe, overrides, values)
        with without_text(as_json):
            if on is None:
                run_as_rank(stage, config, out, made)
            else:
                from liebig.on_ray import run_on_ray

                run_on_ray(stage, config, out, on, parts)
        if as_json:
            print_json(json.loads((fetched(out) / stage.document).read_text(encoding="utf-8")))

    command.__signature__ = form.signature()  # type: ignore[attr-defined]  # typer reads it
    command.__name__ = form.name.replace(" ", "_")
    return command


def _is_nested(override: str, form: Form) -> bool:
    """Whether an override sets a value inside a table, which the outline knows nothing of."""
    first, dot, _ = override.partition("=")[0].partition(".")
    return bool(dot) and first in form.fields


REQUIRED, READS = "required", "reads"
LIMITS = {"minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt"}
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


def _described(field: FieldInfo, schema: dict[str, Any]) -> dict[str, Any]:
    """What a mistake in a field is recognised by: its schema, whether it is a path read, and what it is for where it is
    required."""
    about: dict[str, Any] = {REQUIRED: field.description} if field.is_required() else {}
    if not _is_plain(field.annotation):
        return about
    marks = f"{field.annotation} {field.metadata}"
    if ModelInput.__name__ in marks:
        about[READS] = "model"
    elif Input.__name__ in marks:
        about[READS] = "file"
    return about | _plain_schema(schema)


def _plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: schema[name] for name in ("type", "format", "enum", "const", *LIMITS) if name in schema}
    return kept | ({"anyOf": [_plain_schema(part) for part in schema["anyOf"]]} if "anyOf" in schema else {})


def _annotation(about: dict[str, Any], reads: str = "") -> Any:
    """The type that a schema was made from."""
    reads = about.get(READS, reads)
    if "anyOf" in about:
        return Union[tuple(_annotation(part, reads) for part in about["anyOf"])]  # noqa: UP007, made at run time
    if "enum" in about or "const" in about:
        return Literal[tuple(about.get("enum", [about.get("const")]))]
    if about.get("format") == "path":
        return {"file": InputPath, "model": ModelPath}.get(reads, Path)
    kind = SCALARS.get(about.get("type", ""), Any)
    limits = {LIMITS[name]: about[name] for name in LIMITS if name in about}
    return Annotated[kind, Field(**limits)] if limits else kind


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
    return literal(flag)


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_text(part) for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    return annotation in (str, Path) or get_origin(annotation) is Literal


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def split_words(
    form: Form, words: list[str], options: dict[str, Any]
) -> tuple[Path | None, list[str], dict[str, Any]]:
    """The recipe, the overrides, and the values that positional words and options set."""
    recipe, overrides, values = None, [], []
    for word in words:
        if OVERRIDE.match(word) and not Path(word).exists():
            overrides.append(word)
        elif word.endswith(".toml") and recipe is None:
            recipe = Path(word)
        else:
            values.append(word)
    if values and form.positional is None:
        raise RecipeError(
            f"{values[0]!r} is neither a .toml recipe nor KEY=VALUE", fix=f"see liebig {form.name} --help"
        )
    settings: dict[str, Any] = {}
    if values and form.first is not None:
        elsewhere = {*options, *(override.partition("=")[0] for override in overrides)}
        if recipe is not None:
            elsewhere |= set(recipes.read_toml(recipe))
        if form.first not in elsewhere:
            settings[form.first] = values.pop(0)
    if not form.many and len(values) > 1:
        raise RecipeError(f"{values[1]!r} is one {form.positional} too many", fix="give one")
    if values and form.positional is not None:
        settings[form.positional] = values if form.many else values[0]
    return recipe, overrides, settings | options


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
