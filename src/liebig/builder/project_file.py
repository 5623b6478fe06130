"""`liebig.toml`: what a folder is built from and how, so that `liebig build` and `liebig update` need no arguments.

    sources = ["notes", "manual.pdf"]    # files and folders below this one; default: the folder itself
    out = ".liebig"                      # the retriever; default: .liebig
    exclude = ["drafts/", "*.bak"]
    language = "de"

Its keys are the options of `liebig build`. A folder may be somebody else's, so the file cannot name a command, nor a
path outside of its folder: what it says can read and write nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.base import workspace
from liebig.base.config import one_or_several, parse, read_toml
from liebig.base.errors import RecipeError
from liebig.builder.build_config import BuildConfig
from liebig.formats.convert import config_file

NAME = "liebig.toml"
OUT = workspace.OWN
MODELS = ("model", "teacher", "reranker")  # folders, or names


@dataclass(frozen=True)
class ProjectFile:
    """The settings of a folder: where its retriever is, and how it is built."""

    out: Path
    config: BuildConfig


def read_project(folder: Path, given: Mapping[str, Any] | None = None) -> ProjectFile:
    """The settings of a folder; options that are given count before those of the file."""
    path = folder / NAME
    if not path.is_file():
        raise RecipeError(
            f"no source is named, and there is no {NAME} here",
            file=path,
            fix=f"name a folder, or write a {NAME} (docs/build.md says how)",
        )
    tree = read_toml(path)
    if "convert" in tree:
        raise RecipeError(
            f"convert names commands, which a {NAME} cannot, because a folder may be somebody else's",
            file=path,
            fix=f"write them in {config_file()}, or give --convert",
        )
    fields = {name: value for name, value in tree.items() if name != "out"}
    fields["sources"] = [
        _below(folder, source, "sources") for source in one_or_several(fields.get("sources", "."))
    ]
    for name in ("questions", "texts"):
        if name in fields:
            fields[name] = _below(folder, fields[name], name)
    for name in MODELS:
        if isinstance(value := fields.get(name), str) and _is_path(folder, value):
            fields[name] = _below(folder, value, name)
    out = _below(folder, tree.get("out", OUT), "out", exists=False)
    config = parse(BuildConfig, {**fields, **(given or {})}, file=path)
    return ProjectFile(Path(out), config)


def _is_path(folder: Path, value: str) -> bool:
    return value.startswith(("/", "~", ".")) or (folder / value).exists()


def _below(folder: Path, value: Any, name: str, exists: bool = True) -> str:
    if not isinstance(value, str):
        raise RecipeError(
            f"{name} = {value!r} is not a path", file=folder / NAME, fix='write it as text: "notes"'
        )
    path = folder / value
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RecipeError(
            f"{name} = {value!r} is outside of the folder, and a {NAME} can only name what is in it",
            file=folder / NAME,
            fix="name it on the command line",
        )
    if exists and not path.exists():
        raise RecipeError(f"{name} = {value!r} does not exist", file=folder / NAME, fix="check the path")
    return str(path)
