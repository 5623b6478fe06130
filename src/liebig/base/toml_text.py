"""Values as TOML: read from a word of a command line, and written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def literal(text: str) -> Any:
    """A TOML value where it is one, else the text itself, so that quotes are not needed on a command line.

    A shell takes the quotes away from `names=['a', 'b']`: what is then no TOML but in brackets is a list of words.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        is_list = text.startswith("[") and text.endswith("]") and not set("[]{}'\"") & set(text[1:-1])
        return [word.strip() for word in text[1:-1].split(",")] if is_list else text


def as_literal(value: Any) -> str:
    """What `literal` reads as this value: plain text where possible, else TOML; None in tables is left out."""
    if isinstance(value, str) and literal(value) == value:
        return value
    return _value(_said(value))


def _said(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _said(part) for name, part in value.items() if part is not None}
    return [_said(part) for part in value] if isinstance(value, list | tuple) else value


def as_table(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: its values, then the tables in it."""
    if path and (not tree or any(not isinstance(value, Mapping) for value in tree.values())):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from as_table(value, (*path, name))


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
