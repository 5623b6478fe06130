"""Parts: one stage's work by several processes that share nothing but a disk, and put together to the same bytes.

A stage that can be made in parts makes numbered pieces first, each whole or absent, and its folder of them at the end.
Part i of n makes the pieces whose number is i modulo n and stops there: its folder has the pieces, and a manifest that
says which part of what it is. `merge` puts the pieces of all parts where an interrupted run would have left them and
runs the stage, which finds them made. So the bytes are those of one run, and a lost process costs its part.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from liebig.base import workspace
from liebig.base.config import inputs, parse, recorded, resolved
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.hashes import hash_file
from liebig.base.pipeline import Stage
from liebig.base.workspace import WHOLE, Folder, StagePart

T = TypeVar("T")
PIECES = "pieces"
NAMED = 8  # missing parts that an error names


def in_pieces(
    folder: Folder,
    items: Iterable[T],
    size: int,
    make: Callable[[list[T]], Mapping[str, Iterable[str]]],
    advance: Callable[[int], None] = lambda count: None,
) -> bool:
    """Write lines that are made from items, `size` at a time, to files of a folder.

    `make` gives the lines for each file. False where this is a part, and the files are for the merge to write.
    """
    root, rest, number = folder.path / PIECES, iter(items), 0
    while block := list(islice(rest, size)):
        place = root / f"{number:06d}"
        if folder.part.takes(number) and not place.is_dir():
            writing = place.with_name(f".{place.name}.tmp")
            shutil.rmtree(writing, ignore_errors=True)
            for name, lines in make(block).items():
                (path := writing / name).parent.mkdir(parents=True, exist_ok=True)
                with path.open("w", encoding="utf-8") as file:
                    file.writelines(line + "\n" for line in lines)
            os.replace(writing, place)
        number += 1
        advance(len(block))
    if folder.part != WHOLE:
        return False
    names = dict.fromkeys(
        path.relative_to(place).as_posix()
        for place in sorted(root.glob("*"))
        for path in sorted(place.rglob("*"))
        if path.is_file()
    )
    for name in names:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder.path / name).open("wb") as whole:
            for place in sorted(root.glob("*")):
                if (place / name).is_file():
                    with (place / name).open("rb") as piece:
                        shutil.copyfileobj(piece, whole)
    return True


def read_pieces(folder: Folder, name: str) -> Iterator[str] | None:
    """The lines of a file in the pieces that were merged, in order; None where there are no pieces."""
    root = folder.path / PIECES
    if not root.is_dir():
        return None
    return (line for place in sorted(root.glob("*")) for line in (place / name).open(encoding="utf-8"))


def clear_pieces(folder: Folder) -> None:
    """Remove the pieces, when everything that is made of them is written."""
    shutil.rmtree(folder.path / PIECES, ignore_errors=True)


def merge(table: Mapping[str, Stage], folders: Sequence[Path], out: Path) -> None:
    """Put the parts of a stage together, as one run would have written them."""
    manifests = {folder: workspace.verify(folder) for folder in folders}
    parts: dict[StagePart, Path] = {}
    first = next(iter(manifests.values()))
    for folder, manifest in manifests.items():
        if not manifest.part:
            raise WorkspaceError(
                "is not a part: it was made whole", file=folder, fix="name folders of --part"
            )
        if (manifest.kind, manifest.recipe, manifest.inputs) != (first.kind, first.recipe, first.inputs):
            raise WorkspaceError(
                f"is a part of something else than {folders[0]}", file=folder, fix="name parts of one run"
            )
        part = StagePart.parse(manifest.part)
        if part.of != StagePart.parse(first.part).of:
            raise WorkspaceError(
                f"is part {part}, {folders[0]} is part {first.part}", file=folder, fix="name parts of one run"
            )
        if part in parts:
            raise WorkspaceError(
                f"is part {part}, as {parts[part]} is", file=folder, fix="name each part once"
            )
        parts[part] = folder
    of = StagePart.parse(first.part).of
    every = (StagePart(place, of) for place in range(of))
    if missing := list(islice((str(part) for part in every if part not in parts), NAMED)):
        more = of - len(parts) - len(missing)
        what = f"part {', '.join(missing)}" + (f" and {more:,} more are missing" if more else " is missing")
        raise WorkspaceError(what, fix="make it with --part, and name it too")
    if first.kind not in table:
        raise RecipeError(f"there is no stage {first.kind!r}", file=folders[0])
    stage = table[first.kind]
    config = parse(stage.config, dict(first.recipe), file=folders[0])
    known = resolved(config)
    for name, path in inputs(known).items():
        if workspace.digest(path) != first.inputs.get(name):
            raise WorkspaceError(
                f"{name} has changed since the parts were made", file=path, fix="make them again"
            )
    with workspace.stage(
        out,
        kind=stage.name,
        recipe=recorded(config),
        inputs=inputs(known),
        seed=first.seed,
        part_of=stage.part_of,
    ) as whole:
        for part in sorted(parts, key=lambda part: part.place):
            _place(parts[part], whole)
        stage.run(known, whole)


def _place(part: Path, folder: Folder) -> None:
    """Link a part's pieces into the folder; what several parts have must be the same."""
    for name, recorded_hash in workspace.read_manifest(part).outputs.items():
        target = folder.path / name
        if target.is_file():
            if hash_file(target) != recorded_hash:
                raise WorkspaceError(
                    f"has another {name} than the other parts", file=part, fix="make it again"
                )
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(part / name, target)
