"""`make torture`: the long form of the fault harness. Prints a table; exits with 1 if a case fails.

python -m tests.faults.torture damage crafted kills --out runs/torture --cases 1000

Counts are kept in `--out`, so a run that was stopped goes on where it was; another `--seed` begins anew. The sizes here
are those of one quiet evening; `docs/reliability.md` has what larger ones found. A part that breaks does not end the
others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from liebig.base.durable import atomic_write

PARTS = (
    "damage",
    "crafted",
    "kills",
    "together",
    "disk",
    "disks",
    "extremes",
    "bombs",
    "fuzz",
    "requests",
    "load",
    "blocks",
)


class Tally:
    """What was tried so far and what went wrong, kept in a file after every step."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path.is_file() else {}
        self.counts: dict[str, Any] = kept.get("counts", {}) if kept.get("seed") == seed else {}
        self.wrong: list[str] = kept.get("wrong", []) if kept.get("seed") == seed else []
        self.seed = seed

    def __getitem__(self, name: str) -> int:
        return int(self.counts.get(name, 0))

    def add(self, name: str, count: int = 1) -> None:
        """Count cases."""
        self.counts[name] = self[name] + count

    def save(self, wrong: list[str]) -> None:
        """Keep the counts, and what went wrong since the last time."""
        self.wrong += wrong
        for line in wrong:
            print(line, file=sys.stderr, flush=True)
        found = {"seed": self.seed, "counts": self.counts, "wrong": self.wrong}
        atomic_write(self._path, json.dumps(found, indent=1).encode())


def main() -> int:
    """Run the parts and print their counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("runs/torture"), help="where counts are kept")
    parser.add_argument("--cases", type=int, default=500, help="damaged files")
    parser.add_argument("--crafted", type=int, default=500, help="files changed with their manifest")
    parser.add_argument("--together", type=int, default=5, help="rounds of commands that run at once")
    parser.add_argument(
        "--sizes", type=int, default=3, help="sizes of a disk that is too small, for every stage"
    )
    parser.add_argument("--documents", type=int, default=100_000, help="with one and the same text")
    parser.add_argument("--megabytes", type=int, default=200, help="of one line")
    parser.add_argument("--kills", type=int, default=60, help="SIGKILLs over all stages, builds and updates")
    parser.add_argument("--disks", type=int, default=10, help="builds that run out of disk")
    parser.add_argument("--inputs", type=int, default=50_000, help="fuzzed inputs over all readers")
    parser.add_argument("--requests", type=int, default=10_000, help="to a server, most of them malformed")
    parser.add_argument(
        "--minutes", type=float, default=3, help="of mixed traffic with slow clients and reloads"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of expensive requests at once")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"{sorted(unknown)[0]} is not one of {', '.join(PARTS)}")
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    tallies = {part: Tally(out / f"{part}.json", given.seed) for part in PARTS}
    for part in given.parts or PARTS:
        try:
            _run(part)(tallies[part], out, given)
        except Exception as error:  # the other parts have something to say too
            tallies[part].save([f"{part} broke: {type(error).__name__}: {error}"])
            traceback.print_exc()
    print("| part | counts | wrong |\n| --- | --- | --- |")
    for part, tally in tallies.items():
        counts = ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
            for name, value in tally.counts.items()
        )
        print(f"| {part} | {counts} | {len(tally.wrong)} |")
    return int(any(tallies[part].wrong for part in given.parts or PARTS))


def _run(part: str) -> Callable[[Tally, Path, argparse.Namespace], None]:
    """The function of a part; a part imports what it needs, and not what the others do."""
    parts = (damage, crafted, kills, together, disk, disks, extremes, bombs, fuzz, requests, load, blocks)
    return {function.__name__: function for function in parts}[part]


def fuzz(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Rounds over all targets, a batch each."""
    from tests.faults.fuzz import BATCH, run_batch, targets

    scratch = Path("/dev/shm") if Path("/dev/shm").is_dir() else out
    home = scratch / f"torture-fuzz-{os.getuid()}-{given.seed}"
    home.mkdir(exist_ok=True)
    everything = targets()
    while tally["inputs"] < given.inputs:
        for target in everything[tally["targets of this round"] :]:
            tally.add("targets of this round")
            if tally["round"] % target.every == 0:
                wrong = run_batch(target, tally["round"], given.seed, home, out / "failures")
                tally.add("inputs", BATCH)
                tally.save(wrong)
        tally.counts["targets of this round"] = 0
        tally.add("round")
        tally.save([])
    home.rmdir()


def damage(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Every file of every kind of artifact, damaged."""
    from tests.faults.damage import run

    run(tally, out, given.cases)


def crafted(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Every file of a retriever, changed by someone who rewrites the manifest too."""
    from tests.faults.crafted import run

    run(tally, out, given.crafted)


def together(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Builds, updates and searches of one folder at once."""
    from tests.faults.together import run

    run(tally, out, given.together)


def disks(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Every stage on disks that are too small for it."""
    from tests.faults.disk import run_stages

    run_stages(tally, out, given.sizes)


def extremes(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Inputs at the edge of size, and a clock that jumps."""
    from tests.faults.extremes import run

    run(tally, out, given.documents, given.megabytes)


def bombs(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """PDF files that cost much, and the growth of CPU time of every reader."""
    from tests.faults.bombs import run

    run(tally, out)


def kills(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Every stage, builds and updates, killed and resumed."""
    from tests.faults.kills import run

    run(tally, out, given.kills)


def disk(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Builds on a disk that is full, and on one that can only be read."""
    from tests.faults.disk import run

    run(tally, out, given.disks)


def requests(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Requests made from the server's own description, most of them malformed."""
    from tests.faults.traffic import run_requests

    run_requests(tally, out, given.requests)


def load(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Mixed traffic with slow clients, disconnects and reloads."""
    from tests.faults.traffic import run_load

    run_load(tally, out, given.minutes)


def blocks(tally: Tally, out: Path, given: argparse.Namespace) -> None:
    """Requests that are made to be expensive, and the longest callback of the server's event loop."""
    from tests.faults.blocks import run

    run(tally, out, given.rounds)


if __name__ == "__main__":
    sys.exit(main())
