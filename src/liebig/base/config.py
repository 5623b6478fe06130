"""Recipes: typed, frozen, validated; TOML files with dotted overrides from the command line.

A recipe is a pydantic model; a choice is a union discriminated by `kind`. Each error message has the dotted path, the
value and the nearest valid name. Reading a recipe costs a few milliseconds.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from liebig import encoders
from liebig.base import hub, storage
from liebig.base.errors import RecipeError
from liebig.base.mistakes import explain, models_in, tag
from liebig.base.toml_text import as_table, literal

C = TypeVar("C", bound="Config")
NONE = "none"
RECIPES = "recipes"


def recipes_home() -> Path:
    """The folder of the recipes that come with the package; in a checkout they are next to `src`."""
    packaged = Path(str(resources.files("liebig"))) / RECIPES
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / RECIPES


def packaged(path: Path) -> Path:
    """What a path means: a file that is there, else the packaged one of that name: `smoke/mlm`, `recipes/mlm.toml`."""
    if path.exists() or path.is_absolute():
        return path
    parts = path.parts[1:] if path.parts[:1] == (RECIPES,) else path.parts
    file = recipes_home().joinpath(*parts)
    choices = (file, file.with_name(f"{file.name}.toml"))
    return next((choice for choice in choices if parts and choice.is_file()), path)


class Input:
    """Marks a path that a stage reads, so that its contents count in the manifest."""


class ModelInput(Input):
    """Marks a path that may also be the name of a model, as `hub.model_folder` takes it."""


class Unrecorded:
    """Marks a field that says how a stage runs and not what it writes: it is left out of the manifest."""


def _bundled(value: Any) -> Any:
    """`liebig:NAME` stands for an encoder that comes with the package, `recipes/…` for what its recipes read."""
    if isinstance(value, str | Path) and Path(value).parts[:1] == (RECIPES,) and not Path(value).exists():
        packaged_file = recipes_home().joinpath(*Path(value).parts[1:])
        return packaged_file if packaged_file.exists() else value
    if not (isinstance(value, str | Path) and str(value).startswith(encoders.PREFIX)):
        return value
    return encoders.folder(str(value))


InputPath = Annotated[Path, Input(), BeforeValidator(_bundled)]
ModelPath = Annotated[Path, ModelInput(), BeforeValidator(_bundled)]
"""A model: a folder, `liebig:NAME`, or `org/name` of the hub, which becomes a folder when a stage runs (`resolved`)."""


def one_or_several(value: Any) -> Any:
    """A single path stands for a list of one."""
    return (value,) if isinstance(value, str | Path) else value


class Config(BaseModel):
    """A frozen part of a recipe. Unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, coerce_numbers_to_str=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _none_in_words(cls, tree: Any) -> Any:
        """TOML cannot say None: the word `none` does, where it is not a value of the field's own."""
        if not isinstance(tree, Mapping):
            return tree
        silent = [name for name, value in tree.items() if value == NONE and _takes_none(cls, name)]
        return {**tree, **dict.fromkeys(silent)} if silent else tree


def _takes_none(model: type[BaseModel], name: str) -> bool:
    """Whether `none` means None for a field: always where None has to be said, else where it can be no text."""
    if _says_none(model, name):
        return True
    field = model.model_fields.get(name)
    kinds = get_args(field.annotation) if field is not None else ()
    return NoneType in kinds and set(kinds) <= {NoneType, int, float, bool}


def _says_none(model: type[BaseModel], name: str) -> bool:
    """Whether a field can be None but is something else, or has to be given, when a recipe is silent."""
    field = model.model_fields.get(name)
    if field is None or NoneType not in get_args(field.annotation):
        return False
    return field.is_required() or field.default is not None


def load(
    model: type[C],
    path: Path | None = None,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> C:
    """The recipe in the TOML file `path`, with `values` and then `a.b=value` overrides laid over it."""
    tree = read_toml(path) if path is not None else {}
    merge(tree, values or {})
    for override in overrides:
        assign(tree, override)
    check_values(tree)
    return parse(model, tree, file=path)


def parse(model: type[C], tree: Mapping[str, Any], *, file: Path | None = None, prefix: str = "") -> C:
    """A validated recipe, or an error that lists everything that is wrong; `prefix` is put before the paths."""
    full = _with_default_kinds(model, tree)
    mistakes = [RecipeError(what, file=file) for what in _booleans(model, full, prefix)]
    try:
        config = model.model_validate(full)
    except ValidationError as error:
        mistakes += [
            RecipeError(what, file=file, fix=fix) for what, fix in explain(model, error, full, prefix)
        ]
    if mistakes:
        raise together(mistakes) from None
    return config


def together(mistakes: Sequence[RecipeError]) -> RecipeError:
    """Several mistakes of one recipe as one error; a single one stays what it is."""
    if len(mistakes) == 1:
        return mistakes[0]
    said = [f"({n}) {one.what}" + (f" [{one.fix}]" if one.fix else "") for n, one in enumerate(mistakes, 1)]
    return RecipeError(f"{len(mistakes)} mistakes: {'; '.join(said)}", file=mistakes[0].file)


def recorded(config: Config) -> dict[str, Any]:
    """What a manifest keeps of a recipe: everything that decides what is written."""
    tree = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if any(isinstance(mark, Unrecorded) for mark in field.metadata):
            del tree[name]
        elif isinstance(value, Config):
            tree[name] = recorded(value)
    return tree


def inputs(config: Config, prefix: str = "") -> dict[str, Path]:
    """Every path marked `Input` in the recipe, by its dotted name; in tables and lists of paths or tables too."""
    paths: dict[str, Path] = {}
    for name, field in type(config).model_fields.items():
        marked = any(isinstance(mark, Input) for mark in field.metadata) or "Input" in str(field.annotation)
        for key, value in _leaves(prefix + name, getattr(config, name)):
            if isinstance(value, Config):
                paths |= inputs(value, key + ".")
            elif marked and isinstance(value, Path):
                paths[key] = value
    return paths


def resolved(config: C, fetch: bool = True) -> C:
    """The recipe with folders in the place of names on the hub and of addresses of shared storage.

    Without `fetch` only those of the hub that are there already.

    Parsing a recipe downloads nothing: the folder that it names may still be written by an earlier stage.
    """
    changed = {}
    for name, field in type(config).model_fields.items():
        marks = f"{field.metadata} {field.annotation}"
        value = getattr(config, name)
        new = _resolved(value, ModelInput.__name__ in marks, Input.__name__ in marks, fetch)
        if new != value:
            changed[name] = new
    return config.model_copy(update=changed) if changed else config


def _resolved(value: Any, is_model: bool, is_input: bool, fetch: bool) -> Any:
    if isinstance(value, Config):
        return resolved(value, fetch)
    if isinstance(value, list | tuple):
        return type(value)(_resolved(inner, is_model, is_input, fetch) for inner in value)
    if not (is_input and isinstance(value, Path)):
        return value
    if not (is_model and hub.is_name(value)):
        return storage.fetched(value)
    return hub.from_hub(str(value)) if fetch else hub.cached(str(value)) or value


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name}.{number}", inner)
    else:
        yield name, value


def _with_default_kinds(model: type[BaseModel], tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree, with the default's `kind` where a table of a choice names none: `optim.lr=3e-4` is enough."""
    full = dict(tree)
    for name, field in model.model_fields.items():
        value = full.get(name)
        if not isinstance(value, Mapping):
            continue
        inner = models_in(field.annotation)
        if "kind" not in value and isinstance(field.default, Config) and hasattr(field.default, "kind"):
            full[name] = value = {"kind": field.default.kind, **value}
        chosen = [m for m in inner if len(inner) == 1 or tag(m) == value.get("kind")]
        if len(chosen) == 1 and get_origin(field.annotation) is not dict:
            full[name] = _with_default_kinds(chosen[0], value)
    return full


def _booleans(model: type[BaseModel], tree: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """`true` is not a number, although Python treats it as 1."""
    for name, value in tree.items():
        annotation = model.model_fields[name].annotation if name in model.model_fields else bool
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, bool) and "bool" not in str(annotation):
            yield f"{path} = {str(value).lower()}: expected a value of another kind, got a boolean"
        inner = [m for m in models_in(annotation) if isinstance(value, Mapping)]
        for chosen in [m for m in inner if len(inner) == 1 or tag(m) == value.get("kind")]:
            if get_origin(annotation) is not dict:
                yield from _booleans(chosen, value, path)


DEEPEST = 32  # tables in tables
TOO_DEEP = "the recipe is nested too deeply to be read"


def read_toml(path: Path) -> dict[str, Any]:
    """The tree of a TOML file, with its errors as sentences."""
    try:
        tree = tomllib.loads(packaged(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        fix = f"check the path, or name one that comes with the package, of {recipes_home()}"
        raise RecipeError("there is no such recipe", file=path, fix=fix) from None
    except IsADirectoryError:
        raise RecipeError("a folder is not a recipe", file=path, fix="name a .toml file") from None
    except UnicodeDecodeError:
        raise RecipeError("the recipe is not UTF-8 text", file=path, fix="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"the recipe is not valid TOML: {error}", file=path) from None
    except RecursionError:
        raise RecipeError(TOO_DEEP, file=path) from None
    check_values(tree, path)
    return tree


def check_values(tree: Mapping[str, Any], path: Path | None = None) -> None:
    """Refuse values that no later step can handle: tables in tables without end, and text with a NUL in it."""
    values: list[tuple[str, Any, int]] = [("", tree, 0)]
    while values:  # without recursion, which is what they would break
        where, value, depth = values.pop()
        if depth > DEEPEST:
            raise RecipeError(TOO_DEEP, file=path)
        if isinstance(value, str) and "\0" in where + value:
            raise RecipeError(f"{where!r} contains a NUL character", file=path, fix="remove it")
        if isinstance(value, Mapping):
            values += [
                (f"{where}.{name}" if where else str(name), one, depth + 1) for name, one in value.items()
            ]
        elif isinstance(value, list):
            values += [(where, one, depth + 1) for one in value]


def merge(tree: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay `over` on `tree`, table by table; a value that is not a table replaces what was there."""
    for name, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), dict):
            merge(tree[name], value)
        else:
            tree[name] = dict(value) if isinstance(value, Mapping) else value


def assign(tree: dict[str, Any], override: str) -> None:
    """Carry out one dotted override, `optim.lr=3e-4`, on the tree."""
    path, sign, text = override.partition("=")
    if not sign or not path.strip():
        raise RecipeError(
            f"the override {override!r} has no value", fix="write it as name=value, e.g. optim.lr=3e-4"
        )
    *parents, name = path.strip().split(".")
    if len(parents) > DEEPEST:
        raise RecipeError(TOO_DEEP)
    for parent in parents:
        node = tree.setdefault(parent, {})
        if not isinstance(node, dict):
            raise RecipeError(f"{path}: {parent} is the value {node!r}, not a table")
        tree = node
    tree[name] = literal(text.lstrip())  # a blank at the end may be meant: prefix="ask: "


def dump(config: Config) -> str:
    """The recipe as TOML, so that load(dump(config)) == config. Fields that are None by default are left out."""
    lines = list(as_table(_tree(config), ()))
    return "\n".join(lines).strip() + "\n"


def _tree(config: Config) -> dict[str, Any]:
    """The values of a recipe with `none` where it has to be said."""
    tree = config.model_dump(mode="json", exclude_none=True)
    for name, value in config:
        if value is None and _says_none(type(config), name):
            tree[name] = NONE
        elif isinstance(value, Config):
            tree[name] = _tree(value)
        elif isinstance(value, tuple | list):
            tree[name] = [_tree(v) if isinstance(v, Config) else j for v, j in zip(value, tree[name])]
        elif isinstance(value, dict):
            tree[name] |= {k: _tree(v) for k, v in value.items() if isinstance(v, Config)}
    return tree


def schema(model: type[Config]) -> str:
    """The JSON schema of a recipe, for editors."""
    return json.dumps(model.model_json_schema(), indent=2) + "\n"
