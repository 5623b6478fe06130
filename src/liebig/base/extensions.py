"""What other packages add: tables of "module:Class" by name, extended by the entry points of a group.

Each folder that can be extended keeps a static table of its own parts. A package adds to it with one line of its
pyproject.toml, for example

    [project.entry-points."liebig.indexes"]
    annoy = "my_package.annoy:AnnoyIndex"

Listing names imports nothing; a class is imported when its name is used. Liebig's own names cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from typing import Any

from liebig.base.errors import RecipeError


@cache
def entry_points(group: str) -> metadata.EntryPoints:
    """Those of a group, for which the lists of all installed packages are read."""
    return metadata.entry_points(group=group)


def extended(built_in: Mapping[str, str], group: str) -> dict[str, str]:
    """The table of a folder, with what installed packages add to it."""
    added = {entry.name: entry.value for entry in sorted(entry_points(group=group), key=lambda e: e.name)}
    return {**built_in, **{name: value for name, value in added.items() if name not in built_in}}


def load(table: Mapping[str, str], name: str) -> Any:
    """Import what a table has under a name."""
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RecipeError(
            f"{name!r} cannot be loaded from {table[name]}: {error}",
            fix="repair or uninstall the package that adds it",
        ) from error
