"""The finished stages below some folders, as the report reads them: manifest, JSON files, and the command behind each.

A file is read only if its hash is the one that its stage wrote.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from liebig.base.errors import DataError
from liebig.base.json_file import read_json, read_json_lines
from liebig.base.progress import duration
from liebig.base.toml_text import as_literal
from liebig.base.workspace import MANIFEST, Manifest, digest, read_manifest

SKIPPED = {"report"}
MAX_NESTING = 4  # folders between the root and a run


@dataclass(frozen=True)
class StageRun:
    """A finished stage: its folder and its manifest."""

    name: str
    path: Path
    manifest: Manifest

    @property
    def seconds(self) -> float:
        begin, end = (
            datetime.fromisoformat(text) for text in (self.manifest.started, self.manifest.finished)
        )
        return (end - begin).total_seconds()

    @property
    def took(self) -> str:
        return duration(self.seconds)

    @property
    def by(self) -> str:
        """The command that ran it: its own, or the one it is part of."""
        return f"liebig {self.manifest.part_of or self.manifest.kind}"

    @property
    def command(self) -> str | None:
        """The command that reproduces this folder, with every value; None for a part of another command."""
        if self.manifest.part_of:
            return None
        words = [f"{key}={as_literal(value)}" for key, value in _leaves(self.manifest.recipe)]
        return " ".join(
            ["liebig", self.manifest.kind, *map(shlex.quote, words), "--out", shlex.quote(self.name)]
        )

    def file(self, name: str) -> Path | None:
        """The path of a file in the folder, None if there is none; its hash is checked against the manifest."""
        path = self.path / name
        if not path.is_file():
            return None
        digest(path)
        return path

    def json(self, name: str) -> Any:
        """The content of a JSON file in the folder, None if there is none."""
        path = self.file(name)
        return read_json(path, object) if path else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of a JSON lines file, empty if there is none; an incomplete last line is dropped."""
        path = self.file(name)
        return [] if path is None else list(read_json_lines(path, dict[str, Any]))


def find_stages(folders: Iterable[Path]) -> list[StageRun]:
    """Every stage at or below the folders, by start time."""
    names = {path.resolve(): _name(path, root) for root in folders for path in _folders(root)}
    stages = [StageRun(name, path, read_manifest(path)) for path, name in names.items()]
    kept = [stage for stage in stages if stage.manifest.kind not in SKIPPED]
    if not kept:
        raise DataError(
            "no finished stage found here", file=next(iter(folders), None), fix="run a stage first"
        )
    return sorted(kept, key=lambda stage: (stage.manifest.started, stage.name))


def _folders(root: Path) -> Iterator[Path]:
    if (root / MANIFEST).is_file():
        yield root
        return
    for path in sorted(root.rglob(MANIFEST)):
        folder = path.parent
        deep = len(folder.relative_to(root).parts) > MAX_NESTING
        if not deep and not any(part.endswith((".partial", ".old")) for part in folder.parts):
            yield folder


def _name(path: Path, root: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif value is not None and value != [] and value != "":
            yield prefix + key, value
