"""The front matter of Markdown: fields on top, as YAML between lines of --- or as TOML between lines of +++.

What does not parse as fields is text: a line of --- is also a rule. The fields are bounded, because an alias of YAML
can stand for a long value many times, and so is their length: at most LONGEST characters are looked at.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

FRONT = re.compile(r"(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
LONGEST, MOST_VALUES, LONGEST_VALUE = 1 << 14, 100, 1_000
ZONE = re.compile(r" +(?=[+-]\d\d:?\d\d$)")
NAMES = {"title": ("title",), "author": ("author", "authors"), "date": ("date",), "tags": ("tags",)}


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Title, author, date and tags, where they are there, and the text with empty lines in the place of the fields."""
    front = FRONT.match(text, 0, LONGEST)
    fields = None if front is None else _fields(front[1], front[2])
    if front is None or fields is None:
        return {}, text
    known = {name.casefold(): value for name, value in fields.items() if isinstance(name, str)}
    said = {
        name: next(filter(None, (_said(known.get(key)) for key in keys)), "") for name, keys in NAMES.items()
    }
    said["date"] = ZONE.sub("", said["date"])
    return {name: value for name, value in said.items() if value}, "\n" * front[0].count("\n") + text[
        front.end() :
    ]


def _fields(mark: str, front: str) -> dict[Any, Any] | None:
    """Every value as text, so no date that does not exist. A loader in C overflows its stack on deep brackets."""
    try:
        fields = tomllib.loads(front) if mark == "+++" else yaml.BaseLoader(front).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None if front.strip() else {}


def _said(value: Any) -> str:
    """A value, or the values of a list; of an author with an address, the name."""
    values = value[:MOST_VALUES] if isinstance(value, list) else [value]
    named = (one.get("name") if isinstance(one, dict) else one for one in values)
    texts = ("" if one is None or isinstance(one, dict | list) else str(one)[:LONGEST_VALUE] for one in named)
    return ", ".join(" ".join(one.split()) for one in texts if one.strip())
