"""Which stages there are below some folders, in the order they were run, and what files each left."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from liebig.config import as_literal
from liebig.errors import DataError
from liebig.progress import duration
from liebig.workspace import MANIFEST, Manifest, digest, read_manifest

SKIPPED = {"report"}
DEPTH = 4


@dataclass(frozen=True)
class Ran:
    """A finished stage: where it lies and what its manifest says."""

    name: str
    path: Path
    manifest: Manifest

    @property
    def seconds(self) -> float:
        """How long it took."""
        begin, end = (
            datetime.fromisoformat(text) for text in (self.manifest.started, self.manifest.finished)
        )
        return (end - begin).total_seconds()

    @property
    def took(self) -> str:
        """The same for people."""
        return duration(self.seconds)

    @property
    def by(self) -> str:
        """The command that ran it: its own, or the one it is a part of."""
        return f"liebig {self.manifest.part_of or self.manifest.kind}"

    @property
    def command(self) -> str | None:
        """The command that makes this folder again, every value written out; None for a part of another command."""
        if self.manifest.part_of:
            return None
        words = [f"{key}={as_literal(value)}" for key, value in _leaves(self.manifest.recipe)]
        return " ".join(
            ["liebig", self.manifest.kind, *map(shlex.quote, words), "--out", shlex.quote(self.name)]
        )

    def file(self, name: str) -> Path | None:
        """A file of the folder, held against its manifest; none if it has no such file."""
        path = self.path / name
        if not path.is_file():
            return None
        digest(path)
        return path

    def json(self, name: str) -> Any:
        """A JSON file of the folder; none if it has no such file."""
        path = self.file(name)
        return json.loads(path.read_text(encoding="utf-8")) if path else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A file of JSON lines; empty if there is none. A last line cut off is left out."""
        path = self.file(name)
        if path is None:
            return []
        text = path.read_text(encoding="utf-8")
        return [
            json.loads(line)
            for line in text.splitlines(keepends=True)
            if line.endswith("\n") and line.strip()
        ]


def find_stages(folders: Iterable[Path]) -> list[Ran]:
    """Every stage at or below the folders, by the time it began."""
    found = {path.resolve(): _name(path, root) for root in folders for path in _folders(root)}
    stages = [Ran(name, path, read_manifest(path)) for path, name in found.items()]
    kept = [stage for stage in stages if stage.manifest.kind not in SKIPPED]
    if not kept:
        raise DataError(
            "no stage has left anything here", file=next(iter(folders), None), fix="run a stage first"
        )
    return sorted(kept, key=lambda stage: (stage.manifest.started, stage.name))


def _folders(root: Path) -> Iterator[Path]:
    if (root / MANIFEST).is_file():
        yield root
        return
    for path in sorted(root.rglob(MANIFEST)):
        folder = path.parent
        deep = len(folder.relative_to(root).parts) > DEPTH
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
