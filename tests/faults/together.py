"""Commands that run at once on one retriever: two builds, two updates, and searches while an update switches."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from liebig.base.errors import LiebigError
from liebig.serve.label import JUDGEMENTS
from tests.faults import traffic
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import PATIENCE, liebig, running


def run(tally: Tally, out: Path, wanted: int) -> None:
    """Rounds of all three until there were as many as wanted."""
    home = out / "together"
    rng = random.Random(f"{tally.seed}-{tally['rounds']}")
    while tally["rounds"] < wanted:
        shutil.rmtree(home, ignore_errors=True)
        tally.add("rounds")
        faults.write_documents(home / "source", faults.TOPICS)
        faults.write_model(home / "model")
        build = ["build", "source", "--model", "model", "--minutes", "0", "--out", "out"]
        wrong = two_at_once(build, home, tally)
        if not wrong:
            old = faults.answers(home / "out")
            faults.write_documents(home / "source", [rng.choice(["quince", "marble", "tulip"])])
            wrong += search_while_updating(home, old, tally)
            faults.write_documents(home / "source", ["saffron"])
            wrong += two_at_once(["update", "out"], home, tally)
            wrong += two_labels(home, tally)
        tally.save(wrong)
    shutil.rmtree(home)


def two_at_once(words: list[str], home: Path, tally: Tally) -> list[str]:
    """The same command twice at once: one may be refused in a sentence, and the folder is that of a single run."""
    with running(words, home) as (first, error):
        second = liebig(words, home)
        first.join(PATIENCE)
        codes, said = (first.exitcode, second.returncode), error.read_text() + second.stderr
    tally.add(f"two of {words[0]}")
    tally.add("refused", codes.count(2))
    if 0 not in codes or not set(codes) <= {0, 2} or "Traceback" in said:
        return [f"two of {words[0]} at once: exit codes {codes}: {said[-300:]!r}"]
    again = liebig(words, home)
    left = [
        path.name for path in (home / "out").rglob("*") if path.name.endswith((".partial", ".liebig.old"))
    ]
    return [
        *([f"{words[0]} after two at once: {again.stderr[-300:]!r}"] if again.returncode else []),
        *(f"{words[0]}: {name} was left over" for name in left),
    ]


def two_labels(home: Path, tally: Tally) -> list[str]:
    """Two people judge at once, each with a server of their own: the file has what both were told is saved."""
    out = home / "out"
    with (
        traffic.server(out, home / "first", name="label") as (first, _),
        traffic.server(out, home / "second", name="label") as (second, _),
        ThreadPoolExecutor(2) as pool,
    ):
        done = [
            pool.submit(traffic.judge, port, faults.TOPICS, [f"{name} {n}" for n in range(50)])
            for name, port in (("a", first), ("b", second))
        ]
        acknowledged = done[0].result() | done[1].result()
    tally.add("judgements of two labels", len(acknowledged))
    return [f"two labels: {row} was lost" for row in acknowledged - traffic.judged(out / JUDGEMENTS)]


def search_while_updating(home: Path, old: list[list[tuple[str, float]]], tally: Tally) -> list[str]:
    """Searches from the first moment of an update to its last: the answers of one generation, never of two."""
    seen = []
    with running(["update", "out"], home) as (process, error):
        while process.exitcode is None:
            process.join(0.01)
            try:
                seen.append(faults.answers(home / "out"))
            except LiebigError as refused:
                return [f"a search during an update was refused: {refused}"]
        if process.exitcode:
            return [f"an update during searches ended with {process.exitcode}: {error.read_text()[-300:]!r}"]
    new = faults.answers(home / "out")
    tally.add("searches during an update", len(seen))
    mixed = sum(answer not in (old, new) for answer in seen)
    return [f"{mixed} of {len(seen)} searches during an update had a mixture"] if mixed else []
