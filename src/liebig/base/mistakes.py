"""What is wrong in a recipe: one sentence per mistake, with the dotted path, the value and the nearest valid name.

pydantic locates an error by fields, union tags and validator names. The messages keep only the parts of that path which
the recipe itself contains. Unknown keys are reported before missing ones: a misspelt key usually causes both.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

Part = int | str
MANY = 8
TABLE = "should be a table"
PLAIN = {
    "dict_type": TABLE,
    "model_type": TABLE,
    "model_attributes_type": TABLE,
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "path_type": "should be a path",
    "string_type": "should be text in quotes",
}


def explain(
    model: type[BaseModel], error: ValidationError, tree: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, str | None]]:
    """One sentence per mistake, with its fix; next to an unknown key, missing keys are not reported as well."""
    places: dict[tuple[Part, ...], list[Any]] = {}
    for one in error.errors():
        places.setdefault(tuple(walk(model, one["loc"], tree)[1]), []).append(one)
    unknown = [place for place, problems in places.items() if problems[0]["type"] == "extra_forbidden"]
    tables = {place[:-1] for place in unknown}
    outer = {place[:end] for place in places for end in range(len(place))}  # wrong because of what is in them
    rest = [
        place
        for place, problems in places.items()
        if place not in (*unknown, *outer) and not (problems[0]["type"] == "missing" and place[:-1] in tables)
    ]
    return [_explained(model, places[place], tree, prefix) for place in (*unknown, *rest)]


def _explained(
    model: type[BaseModel], alike: Sequence[Any], tree: Mapping[str, Any], prefix: str
) -> tuple[str, str | None]:
    """The sentence about what is wrong at one place, and its fix."""
    first = alike[0]
    models, path = walk(model, first["loc"], tree)
    where = ".".join(map(str, ([prefix] if prefix else []) + path))
    value = first.get("input")
    if first["type"] == "extra_forbidden":
        return f"{where} is not a key here (value {value!r})", _nearest_key(models, str(path[-1]))
    if first["type"] == "missing":
        owners, _ = walk(model, first["loc"][:-1], tree)
        return f"{where} is missing", _what_to_give(owners, str(path[-1]))
    kinds = [kind for m in models if (kind := tag(m))] if path else []
    choices = _choices(alike)
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        given = first.get("ctx", {}).get("tag")
        which = f"has kind {given!r}" if given else "has no kind"
        return f"{where} {which}; it can be {', '.join(map(repr, choices or kinds))}", nearest(
            given or "", choices or kinds
        )
    message = _message(alike, choices)
    if isinstance(value, str) and kinds and PLAIN.get(first["type"]) == TABLE:
        return f"{where} = {value!r}: {message}", f"give {where}.kind: {nearest(value, kinds)}"
    return f"{where} = {value!r}: {message}" if where else message, (
        nearest(str(value), choices) if choices else None
    )


def nearest(given: str, choices: Sequence[str]) -> str | None:
    """How to fix a wrong choice: the nearest valid one, or all of them."""
    near = difflib.get_close_matches(given, choices, n=1, cutoff=0.6)
    return f"write {near[0]!r}" if near else f"use one of {', '.join(choices)}"


def _nearest_key(models: Iterable[type[BaseModel]], name: str) -> str | None:
    names = sorted({field for model in models for field in model.model_fields})
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"write {near[0]}" if near else (f"use one of {', '.join(names)}" if names else None)


def _what_to_give(models: Iterable[type[BaseModel]], name: str) -> str | None:
    """What a key is for, by the description that `--help` shows."""
    said = next((m.model_fields[name].description for m in models if name in m.model_fields), None)
    if said is None:
        return None
    return f"give {said[0].lower() if said[1:2].islower() else said[0]}{said[1:].rstrip('.')}"


def _choices(errors: Iterable[Any]) -> list[str]:
    """The words that would have been right."""
    for error in errors:
        context = error.get("ctx", {})
        listed = context.get("expected_tags") or context.get("expected")
        if isinstance(listed, str):
            return [part.strip(" '") for part in listed.replace(" or ", ",").split(",")]
    return []


def _message(errors: Iterable[Any], choices: Sequence[str]) -> str:
    """What the members of a union say, once each; a long list of choices is left to the fix."""
    said = []
    for error in errors:
        message = PLAIN.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "literal_error" and len(choices) > MANY:
            message = "is none of the choices"
        said.append(message[0].lower() + message[1:])
    return ", or ".join(dict.fromkeys(said))


def walk(
    model: type[BaseModel], location: Sequence[Part], tree: Any
) -> tuple[list[type[BaseModel]], list[Part]]:
    """Follow an error's location; gives the models where the last part belongs and the path the recipe has."""
    models: list[type[BaseModel]] = [model]
    path: list[Part] = []
    for number, part in enumerate(location):
        tagged = [m for m in models if tag(m) == part and part not in m.model_fields]
        if tagged:
            models = tagged
            continue
        is_last = number == len(location) - 1
        if not _has(tree, part) and not (is_last and any(part in m.model_fields for m in models)):
            continue
        path.append(part)
        tree = tree[part] if _has(tree, part) else None
        models = [
            inner
            for m in models
            if part in m.model_fields
            for inner in models_in(m.model_fields[str(part)].annotation)
        ] or models
    return models, path


def _has(tree: Any, part: Part) -> bool:
    if isinstance(tree, Mapping):
        return part in tree
    return isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree)


def tag(model: type[BaseModel]) -> str | None:
    """The `kind` of a model that is one of a choice."""
    field = model.model_fields.get("kind")
    is_choice = field is not None and get_origin(field.annotation) is Literal
    return get_args(field.annotation)[0] if field is not None and is_choice else None


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models inside an annotation: itself, members of a union, elements of a list or values of a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, Annotated, list, tuple, dict):
        return [model for part in get_args(annotation) for model in models_in(part)]
    return []
