"""A disk that is full, again and again, until there is room; and one that can only be read. Needs the right to mount.

A build writes onto a small file system in memory. Where it runs out of space it must end with one sentence and exit
code 2; with a little more room the same command resumes, and the retriever it ends with gives the answers of a build
that had room at once. From a file system that can only be read, a retriever is searched, and not updated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from liebig.cli import reported
from tests.faults import kills
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import PATIENCE, SERVER, liebig


def mount(place: Path, options: str) -> bool:
    """Mount a file system in memory, or change one that is; False where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run_stages(tally: Tally, out: Path, sizes: int) -> None:
    """Every stage on disks of several sizes, each too small; then with room, where it resumes to the right bytes."""
    home = out / "disks"
    shutil.rmtree(home, ignore_errors=True)
    planned = kills.finished(home / "run", tally)
    small = home / "small"
    for number, item in enumerate(planned):
        if number < tally["stages"]:  # of a run that was stopped
            continue
        expected = kills.contents(item.out)
        size = sum(path.stat().st_size + 4096 for path in item.out.rglob("*") if path.is_file())
        whole = item.out.with_name(f"{item.name}.whole")
        item.out.rename(whole)
        wrong = list[str]()
        for part in range(1, sizes + 1):
            if not mount(small, f"size={size * part // (sizes + 1)}"):
                tally.save(["no file system may be mounted here"])
                return
            try:
                item.out.symlink_to(small / item.name)  # a stage follows links, so it works on the small disk
                wrong += _full_stage(tally, item.name, home, small, size * part // (sizes + 1))
                mount(small, f"remount,size={4 * size + (64 << 20)}")
                faults.finish("stage", kills.RECIPE, home / "run", Path(item.name))
                tally.add("resumed")
                if kills.contents(item.out) != expected:
                    wrong.append(f"{item.name} on a disk that was full: other bytes")
            except AssertionError as error:
                wrong.append(f"{item.name} on a disk that was full: {error}")
            finally:
                item.out.unlink()
                subprocess.run(["umount", "--lazy", str(small)], check=True)
        whole.rename(item.out)
        tally.add("stages")
        tally.save(wrong)
    shutil.rmtree(home)


def _full_stage(tally: Tally, name: str, home: Path, small: Path, room: int) -> list[str]:
    """A stage that runs out of room: a sentence, exit code 2, and no folder that looks finished."""
    log = home / "error.txt"
    process = SERVER.Process(target=_reported_stage, args=(home / "run", name, log), daemon=False)
    process.start()
    process.join(PATIENCE)
    process.kill()  # one that hangs
    process.join()
    said = log.read_text()
    if process.exitcode == 0:
        tally.add("stages that fitted")
        return []
    tally.add("stages on a full disk")
    fine = process.exitcode == 2 and "Traceback" not in said and "No space left" in said.splitlines()[-1]
    wrong = [] if fine else [f"{name}, {room} bytes: exit code {process.exitcode}: {said[-300:]!r}"]
    return [*wrong, *([f"{name} looks finished"] if (small / name).exists() else [])]


def _reported_stage(out: Path, name: str, log: Path) -> None:
    """One stage with its errors reported as the command line does."""
    import typer

    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faults.set_volume("quiet")
    try:
        with reported():
            faults.run_one(kills.RECIPE, out, Path(name))
    except typer.Exit as end:
        sys.stderr.flush()
        os._exit(end.exit_code)


def run(tally: Tally, out: Path, wanted: int) -> None:
    """Builds with too little room, in rounds with other steps."""
    home = out / "disk"
    shutil.rmtree(home, ignore_errors=True)
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "roomy")
    expected = faults.answers(home / "roomy")
    size = sum(path.stat().st_size + 4096 for path in (home / "roomy").rglob("*") if path.is_file())
    small = home / "small"
    while tally["full disks"] < wanted:
        tally.add("rounds")
        room = size * tally["rounds"] // 40
        if not mount(small, f"size={room}"):
            tally.save(["no file system may be mounted here"])
            return
        try:
            wrong = _fill(tally, home, small, room, size // 12, expected)
        finally:
            subprocess.run(["umount", "--lazy", str(small)], check=True)
        tally.save(wrong)
    shutil.rmtree(home)


def _fill(
    tally: Tally, home: Path, small: Path, room: int, step: int, expected: list[list[tuple[str, float]]]
) -> list[str]:
    """One build, with a little more room each time; then a file system that can only be read."""
    build = [
        "build",
        str(home / "source"),
        "--model",
        str(home / "model"),
        "--minutes",
        "0",
        "--out",
        str(small / "out"),
    ]
    wrong = list[str]()
    while (done := liebig(build, home)).returncode != 0:
        tally.add("full disks")
        said = done.stderr.strip().splitlines()
        if done.returncode != 2 or "Traceback" in done.stderr or "No space left on device" not in said[-1]:
            wrong.append(f"{room} bytes of room: exit code {done.returncode}: {done.stderr[-300:]!r}")
        room += step
        if len(wrong) > 3 or not mount(small, f"remount,size={room}"):
            return [*wrong, "a build does not end, however much room there is"]
    tally.add("resumed")
    if faults.answers(small / "out") != expected:
        wrong.append(f"{room} bytes of room: other answers than a build that had room at once")
    mount(small, "remount,ro")
    if faults.answers(small / "out") != expected:
        wrong.append("other answers from a file system that can only be read")
    (home / "source" / "quince.md").write_text("# Quince\n\nA fruit.\n", encoding="utf-8")
    refused = liebig(["update", str(small / "out")], home)
    (home / "source" / "quince.md").unlink()
    tally.add("read-only")
    if refused.returncode != 2 or "Traceback" in refused.stderr or "Read-only" not in refused.stderr:
        wrong.append(f"an update of what can only be read: {refused.returncode}: {refused.stderr[-300:]!r}")
    return wrong
