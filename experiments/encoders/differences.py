"""Two systems of a table, question by question: difference, interval and p on every set, from the kept values alone.

    python experiments/encoders/differences.py RESULTS "mini + bm25 (scores)=bm25" mini=mlm

reads `queries.jsonl.xz`, which `evaluate.py` writes. Intervals are bootstrap intervals over questions, p is that of a
paired randomisation test, corrected after Holm over all differences asked for.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base.statistics import compare, holm

Values = Mapping[str, NDArray[np.float64]]


def read(path: Path, measure: str) -> dict[str, Values]:
    """Values of every question, by system and set, the questions in one order."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if measure not in row["measures"]:
                continue
            at = row["measures"].index(measure)
            values = [row["queries"][query][at] for query in sorted(row["queries"])]
            found.setdefault(row["system"], {})[row["set"]] = np.array(values)
    return found


def rows(found: Mapping[str, Values], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A line of a table for each pair and set."""
    asked = [(a, b, name) for a, b in pairs for name in found[a]]
    made = [compare(found[a][name], found[b][name]) for a, b, name in asked]
    corrected = holm([one.p_randomisation for one in made])
    lines = ["| | set | difference | 95 % | p (Holm) |", "| --- | --- | ---: | --- | ---: |"]
    for (a, b, name), one, p in zip(asked, made, corrected):
        at = one.difference
        p_said = f"{p:.3f}" if p >= 0.001 else "< .001"
        lines.append(
            f"| {a} against {b} | {name} | {at.mean:+.3f} | {at.low:+.3f} to {at.high:+.3f} | {p_said} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="A=B")
    parser.add_argument("--measure", default="nDCG@10")
    asked = parser.parse_args()
    found = read(asked.results / "queries.jsonl.xz", asked.measure)
    pairs = [(a, b) for a, _, b in (pair.partition("=") for pair in asked.pairs)]
    for name in (name for pair in pairs for name in pair if name not in found):
        parser.error(f"there is no {name!r} in {asked.results}; there are {', '.join(sorted(found))}")
    print("\n".join(rows(found, pairs)))


if __name__ == "__main__":
    main()
