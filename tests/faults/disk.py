"""A disk that is full, again and again, until there is room; and one that can only be read. Needs the right to mount.

A build writes onto a small file system in memory. Where it runs out of space it must end with one sentence and exit
code 2; with a little more room the same command resumes, and the retriever it ends with gives the answers of a build
that had room at once. From a file system that can only be read, a retriever is searched, and not updated.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import liebig


def mount(place: Path, options: str) -> bool:
    """Mount a file system in memory, or change one that is; False where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


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
            subprocess.run(["umount", str(small)], check=True)
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
