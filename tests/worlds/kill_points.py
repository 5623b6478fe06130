"""Builds that were killed before each change they make to the disk, one change after the other, and are run again.

Kills at random moments (`faults.kill`) rarely meet the short time between two changes. The builds have two
stages that write two files each.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from liebig.base import workspace
from liebig.base.config import Config, InputPath
from liebig.base.hashes import hash_file
from liebig.base.pipeline import Stage
from liebig.builder.runner import Builder
from liebig.search import retriever_folder
from liebig.search.retriever_folder import RetrieverDescription

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}
COUNTS = "counts.txt"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class CopyConfig(Config):
    """What a stage copies."""

    source: InputPath


def copy(config: CopyConfig, folder: workspace.Folder) -> None:
    """Write what came in twice, atomically and plainly."""
    text = "".join(path.read_text() for path in sorted(Path(config.source).rglob("*.txt")))
    folder.write_text("below/whole.txt", text)
    (folder.path / "plain.txt").write_text(text.upper())


READ, COLLECTION = (Stage(name, CopyConfig, copy) for name in ("read", "collection"))


def build(source: Path, out: Path) -> None:
    """As `liebig build` does it: stages into the work folder and into parts of a generation, then its description."""
    with retriever_folder.exclusive(out):
        builder = Builder(out, lambda line: None)
        read = builder.work("read", READ, CopyConfig(source=source))
        collection = builder.part("collection", COLLECTION, CopyConfig(source=read))
        now = RetrieverDescription(
            generation=builder.generation + 1, system="bm25", collection=collection.name, bm25=collection.name
        )
        retriever_folder.replace(out, builder.before, now)


def record(run: Callable[[], None], out: Path, states: Path) -> None:
    """Run in a process that copies `out` before each change it makes, as a kill at that moment would leave it."""
    child = os.fork()
    if child == 0:
        copying = False

        def keep(event: str, args: tuple[Any, ...]) -> None:
            nonlocal copying
            if copying or not (event in CHANGES or (event == "open" and bool(args[2] & WRITES))):
                return
            copying = True
            if out.exists():
                shutil.copytree(out, states / str(len(list(states.iterdir()))))
            copying = False

        sys.addaudithook(keep)
        try:
            run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def contents(folder: Path) -> dict[str, str]:
    """All files, of manifests without their times."""
    return {
        str(path.relative_to(folder)): workspace.read_manifest(path.parent).digest
        if path.name == workspace.MANIFEST
        else hash_file(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def take_up(source: Path, out: Path, states: Path) -> int:
    """A build, and the same from every state that a kill may leave; the number of states."""
    states.mkdir()
    record(lambda: build(source, out), out, states)
    expected, found = contents(out), list(states.iterdir())
    for state in found:
        shutil.rmtree(out)
        state.rename(out)
        build(source, out)
        assert contents(out) == expected, f"{state}: {contents(out).items() ^ expected.items()}"
    return len(found)


def run(home: Path) -> None:
    """A first build, and one of changed documents; the numbers of states go into COUNTS."""
    os.fsync = lambda fd: None  # no plug is pulled
    source, out = home / "source", home / "out"
    source.mkdir(parents=True)
    (source / "a.txt").write_text("first")
    first = take_up(source, out, home / "first")
    (source / "b.txt").write_text("second")
    second = take_up(source, out, home / "second")
    (home / COUNTS).write_text(f"{first} {second}")
