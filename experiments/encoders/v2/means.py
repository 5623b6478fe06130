"""The means in a results.json of `evaluate.py`, without intervals, as a table: `python means.py results.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from evaluate import HELD_OUT


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    means = results["means"]
    sets = list(next(iter(means.values())))
    held = [name for name in HELD_OUT if name in sets]
    print(f"| nDCG@10, {results['split']} | " + " | ".join([*sets, "mean of " + ", ".join(held)]) + " |")
    print("| --- |" + " ---: |" * (len(sets) + 1))
    for system, values in means.items():
        row = [values[name]["nDCG@10"] for name in sets]
        row.append(sum(values[name]["nDCG@10"] for name in held) / max(1, len(held)))
        print(f"| {system} | " + " | ".join(f"{value:.4f}" for value in row) + " |")


if __name__ == "__main__":
    main()
