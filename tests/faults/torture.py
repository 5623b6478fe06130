"""`make torture`: the long form of the fault harness, which prints a table and exits with 1 if a case fails.

python -m tests.faults.torture --kills 100 --cuts 10 --flips 30
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.worlds import faults


def main() -> int:
    """Run all cases and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of builds, and as many of updates")
    parser.add_argument("--cuts", type=int, default=10, help="lengths that every file is cut to")
    parser.add_argument("--flips", type=int, default=30, help="bits flipped in every file, one at a time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        faults.write_documents(home / "source", faults.TOPICS)
        faults.write_model(home / "model")
        faults.build_retriever(home / "source", home / "model", home / "out")
        print("| what | cases | outcome |\n| --- | --- | --- |")
        wrong = damaged(home, given.cuts, given.flips, given.seed)
        wrong += killed_builds(home, given.kills, given.seed)
        wrong += killed_updates(home, given.kills, given.seed)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


def damaged(home: Path, cuts: int, flips: int, seed: int) -> list[str]:
    """Every file of a retriever, damaged."""
    found = faults.corrupt(home / "out", cuts, flips, seed)
    total = sum(map(len, found.values()))
    files = len(faults.described_files(home / "out"))
    counts = ", ".join(f"{len(cases):,} {how}" for how, cases in found.items())
    print(f"| damaged files ({files} files) | {total:,} | {counts} |", flush=True)
    return [
        f"{how}: {case}" for how, cases in found.items() if how not in ("refused", "same") for case in cases
    ]


def killed_builds(home: Path, kills: int, seed: int) -> list[str]:
    """Builds killed again and again until they finish; then held against one that was not."""
    rng, source, model = random.Random(seed), home / "source", home / "model"
    out = home / "built"  # the same place for all: paths are part of what is written
    seconds = faults.finish("build", source, model, out)
    expected, found, wrong, number = faults.contents(out), Counter[str](), list[str](), 0
    shutil.rmtree(out)
    while found["killed"] < kills:
        number += 1
        while found["killed"] < kills and faults.kill("build", rng.uniform(0, seconds), source, model, out):
            found["killed"] += 1
        faults.finish("build", source, model, out)
        same = faults.contents(out) == expected
        found["same bytes" if same else "other bytes"] += 1
        wrong += [] if same else [f"build {number} has other contents than one that was not killed"]
        shutil.rmtree(out)
    print(
        f"| killed builds | {found['killed']:,} | {found['same bytes']:,} of {number:,} resumed to the same bytes |"
    )
    return wrong


def killed_updates(home: Path, kills: int, seed: int) -> list[str]:
    """Updates killed at random moments: readers see the old answers or the new, and resuming gives the new."""
    rng = random.Random(seed)
    source = faults.write_documents(home / "changing", faults.TOPICS)
    faults.build_retriever(source, home / "model", home / "before")
    old = faults.answers(home / "before")
    (source / "comet.md").unlink()
    faults.write_documents(source, ["quince"])
    shutil.copytree(home / "before", home / "after")
    seconds = faults.finish("update", home / "after")
    new, found, wrong, number = faults.answers(home / "after"), Counter[str](), list[str](), 0
    while found["killed"] < kills:
        number += 1
        out = home / f"update-{number}"
        shutil.copytree(home / "before", out)
        while found["killed"] < kills and faults.kill("update", rng.uniform(0, seconds), out):
            found["killed"] += 1
            if faults.answers(out) != (old if faults.generation(out) == 1 else new):
                wrong.append(f"update {number} killed: the answers are neither the old nor the new ones")
        faults.finish("update", out)
        if faults.answers(out) != new:
            wrong.append(f"update {number} resumed: other answers than one that was not killed")
        shutil.rmtree(out)
    print(
        f"| killed updates | {found['killed']:,} | {number - len(wrong):,} of {number:,} resumed, nothing lost |"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
