"""Recipes: typed, frozen, validated; TOML files with dotted overrides from the command line.

A recipe is a pydantic model; a choice is a union told apart by `kind`. What is wrong with one is said with
the dotted path, the value and the nearest right name. Reading costs a few milliseconds.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from liebig.errors import RecipeError

C = TypeVar("C", bound="Config")
BUNDLED = "liebig:"


class Input:
    """Marks a path that a stage reads, so that its contents count in the manifest."""


def _bundled(value: Any) -> Any:
    """`liebig:NAME` stands for the folder of an encoder that comes with the package."""
    if not (isinstance(value, str) and value.startswith(BUNDLED)):
        return value
    home = Path(__file__).parent / "encoders"
    folder = home / value.removeprefix(BUNDLED)
    if not (folder / "config.json").is_file():
        there = ", ".join(BUNDLED + path.name for path in sorted(home.iterdir()))
        raise ValueError(f"no encoder of this name comes with the package; there is {there}")
    return folder


InputPath = Annotated[Path, Input(), BeforeValidator(_bundled)]


class Config(BaseModel):
    """A frozen part of a recipe. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


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
    return parse(model, tree, file=path)


def parse(model: type[C], tree: Mapping[str, Any], *, file: Path | None = None) -> C:
    """A validated recipe, or one sentence about the first thing that is wrong with it."""
    try:
        return model.model_validate(_with_default_kinds(model, tree))
    except ValidationError as error:
        raise RecipeError(_sentence(model, error), file=file, fix=_fix(model, error)) from None


def inputs(config: Config, prefix: str = "") -> dict[str, Path]:
    """Every path marked `Input` in the recipe, by its dotted name; in tables and lists of paths or tables too."""
    found: dict[str, Path] = {}
    for name, field in type(config).model_fields.items():
        marked = any(isinstance(mark, Input) for mark in field.metadata) or "Input" in str(field.annotation)
        for key, value in _leaves(prefix + name, getattr(config, name)):
            if isinstance(value, Config):
                found |= inputs(value, key + ".")
            elif marked and isinstance(value, Path):
                found[key] = value
    return found


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
        inner = _models(field.annotation)
        if "kind" not in value and isinstance(field.default, Config) and hasattr(field.default, "kind"):
            full[name] = value = {"kind": field.default.kind, **value}
        chosen = [m for m in inner if len(inner) == 1 or _tag(m) == value.get("kind")]
        if len(chosen) == 1 and get_origin(field.annotation) is not dict:
            full[name] = _with_default_kinds(chosen[0], value)
    return full


def read_toml(path: Path) -> dict[str, Any]:
    """The tree of a TOML file, with its errors as sentences."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError("there is no such recipe", file=path, fix="check the path") from None
    except IsADirectoryError:
        raise RecipeError("a folder is not a recipe", file=path, fix="name a .toml file") from None
    except UnicodeDecodeError:
        raise RecipeError("the recipe is not UTF-8 text", file=path, fix="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"the recipe is not valid TOML: {error}", file=path) from None


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
    for parent in parents:
        node = tree.setdefault(parent, {})
        if not isinstance(node, dict):
            raise RecipeError(f"{path}: {parent} is the value {node!r}, not a table")
        tree = node
    tree[name] = literal(text.strip())


def literal(text: str) -> Any:
    """A TOML value where it is one, else the text itself, so that quotes are not needed on a command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def dump(config: Config) -> str:
    """The recipe as TOML, so that load(dump(config)) == config. Fields that are None are left out."""
    lines = list(_table(config.model_dump(mode="json", exclude_none=True), ()))
    return "\n".join(lines).strip() + "\n"


def _table(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    if path and (not tree or any(not isinstance(value, Mapping) for value in tree.values())):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _table(value, (*path, name))


def _key(name: str) -> str:
    plain = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if plain else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".en") else text + ".0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise AssertionError(f"no TOML for {value!r}")


def _string(text: str) -> str:
    """A basic TOML string; JSON's escapes are a subset of TOML's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def schema(model: type[Config]) -> str:
    """The JSON schema of a recipe, for editors."""
    return json.dumps(model.model_json_schema(), indent=2) + "\n"


def _sentence(model: type[Config], error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(map(str, _walk(model, first["loc"])[1]))
    value = first.get("input")
    kind = first["type"]
    if kind == "extra_forbidden":
        return f"{path} is not a key of this recipe (value {value!r})"
    if kind == "missing":
        return f"{path} is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        found = first.get("ctx", {}).get("tag")
        wanted = first.get("ctx", {}).get("expected_tags", "")
        which = f"has kind {found!r}" if found else "has no kind"
        return f"{path} {which}" + (f"; it can be {wanted}" if wanted else "")
    message = first["msg"].removeprefix("Value error, ")
    return f"{path} = {value!r}: {message[0].lower() + message[1:]}" if path else message


def _fix(model: type[Config], error: ValidationError) -> str | None:
    """The nearest right name or choice."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    if first["type"] == "extra_forbidden":
        *parents, name = first["loc"]
        names = sorted({field for m in _walk(model, parents)[0] for field in m.model_fields})
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
        return f"write {near[0]}" if near else (f"use one of {', '.join(names)}" if names else None)
    choices = context.get("expected_tags") or context.get("expected")
    if choices and isinstance(choices, str):
        names = [part.strip(" '") for part in choices.replace(" or ", ",").split(",")]
        given = str(context.get("tag", first.get("input")))
        near = difflib.get_close_matches(given, names, n=1, cutoff=0.4)
        return f"write {near[0]!r}" if near else f"use one of {', '.join(names)}"
    return None


def _walk(
    model: type[BaseModel], location: Sequence[int | str]
) -> tuple[list[type[BaseModel]], list[int | str]]:
    """Follow an error's location through the models; the tags that pydantic puts into it are left out."""
    models: list[type[BaseModel]] = [model]
    path: list[int | str] = []
    for part in location:
        tagged = [m for m in models if _tag(m) == part and part not in m.model_fields]
        if tagged:
            models = tagged
            continue
        path.append(part)
        models = [
            found
            for m in models
            if part in m.model_fields
            for found in _models(m.model_fields[str(part)].annotation)
        ] or models
    return models, path


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    choices = (
        get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
    )
    return choices[0] if choices else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside an annotation: itself, members of a union, elements of a list or values of a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, Annotated, list, tuple, dict):
        return [found for part in get_args(annotation) for found in _models(part)]
    return []
