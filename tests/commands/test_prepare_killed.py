"""Killed at any moment and run again, `liebig prepare` gives the bytes of an uninterrupted run."""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from liebig.base import workspace
from liebig.base.config import inputs, parse, recorded
from liebig.formats.documents import document_row
from liebig.stages.prepare import PrepareConfig, run
from liebig.store import TokenStore, prepare
from tests.worlds.processes import SERVER
from tests.worlds.store import documents, tokenizer


def prepare_store(world: Path, out: Path, processes: int) -> None:
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the process ends with it
    prepare.PIECE = 1200
    values = {"collection": str(world / "collection"), "tokenizer": str(world / "tokenizer")}
    config = parse(PrepareConfig, {**values, "processes": processes})
    with workspace.stage(out, kind="prepare", recipe=recorded(config), inputs=inputs(config)) as folder:
        run(config, folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / "collection").mkdir()
    lines = [json.dumps(document_row(d)) + "\n" for d in documents()]
    (folder / "collection" / "documents.jsonl").write_text("".join(lines))
    tokenizer().save(folder / "tokenizer")
    assert ended(start(folder, folder / "whole", 1)) == 0
    return folder


def start(world: Path, out: Path, processes: int) -> BaseProcess:
    process = SERVER.Process(target=prepare_store, args=(world, out, processes))
    process.start()
    return process


def ended(process: BaseProcess) -> int | None:
    process.join()
    return process.exitcode


def contents(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    manifest = json.loads(found["manifest.json"])
    del manifest["started"], manifest["finished"]
    return found | {"manifest.json": json.dumps(manifest).encode()}


def kill_when(process: BaseProcess, reached) -> None:
    """Kill the process the moment a condition holds, or let it end."""
    while process.is_alive() and not reached():
        time.sleep(0.0005)
    process.kill()
    process.join()


def shards(partial: Path) -> int:
    return len(list(partial.glob("shards/*.npz")))


MOMENTS = {
    "before the first shard": lambda p: (p / "shards").is_dir(),
    "after one shard": lambda p: shards(p) >= 1,
    "among the shards": lambda p: shards(p) >= 8,
    "while joining": lambda p: (p / "tokens.npy").is_file(),
    "after joining": lambda p: (p / "store.json").is_file(),
    "while the manifest is made": lambda p: (p / "store.json").is_file() and not (p / "shards").is_dir(),
}


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_again_and_again_it_ends_with_the_same_bytes(world, tmp_path, processes):
    out, partial = tmp_path / "store", tmp_path / "store.partial"
    for moment in list(MOMENTS.values())[processes - 1 :: processes]:
        kill_when(start(world, out, processes), lambda moment=moment: moment(partial))
    assert ended(start(world, out, processes)) == 0
    assert contents(out) == contents(world / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store"]
    TokenStore.open(out)


def test_killed_once_it_goes_on_with_the_shards_it_has(world, tmp_path):
    out, partial = tmp_path / "store", tmp_path / "store.partial"
    kill_when(start(world, out, 1), lambda: shards(partial) >= 8)
    kept = {p.name: p.stat().st_mtime_ns for p in partial.glob("shards/*.npz")}
    assert len(kept) >= 8
    kill_when(start(world, out, 1), lambda: (partial / "store.json").is_file())
    again = {p.name: p.stat().st_mtime_ns for p in partial.glob("shards/*.npz")}
    assert all(again[name] == kept[name] for name in kept if name in again), "none is made twice"


def test_a_half_written_shard_and_stray_files_do_not_matter(world, tmp_path):
    out, partial = tmp_path / "store", tmp_path / "store.partial"
    kill_when(start(world, out, 1), lambda: shards(partial) >= 2)
    (partial / "shards" / ".000009.npz.123.tmp").write_bytes(b"half")
    (partial / ".store.json.123.tmp").write_bytes(b"half")
    (partial / "tokens.npy").write_bytes(b"half")
    assert ended(start(world, out, 1)) == 0
    assert contents(out) == contents(world / "whole")


def test_workers_end_with_the_process_that_was_killed(world, tmp_path):
    process = start(world, tmp_path / "store", 2)
    partial = tmp_path / "store.partial"
    workers: set[int] = set()

    def reached() -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers.update(int(p) for p in children.read_text().split() if children.exists())
        return shards(partial) >= 1

    if not Path("/proc/self/task").is_dir():
        pytest.skip("needs /proc")
    kill_when(process, reached)
    assert workers
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() and _is_alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
