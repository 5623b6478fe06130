"""Dev quality over the texts seen in both runs, from their log: `python experiments/encoders/v3/figure.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from liebig.evaluation.plots import Axes, Series, lines, write_svg

HERE = Path(__file__).parent


def main() -> None:
    rows = [json.loads(line) for line in (HERE / "log.jsonl").read_text().splitlines()]
    looks = [row for row in rows if "dev" in row]
    means = np.array([np.mean(list(row["dev"].values()), axis=0) for row in looks])
    first = max(row["texts"] for row in looks if "run" not in row)
    seen = [(row["texts"] + first * ("run" in row)) / 1e6 for row in looks]
    drawn = [Series("alone", seen, means[:, 0]), Series("with BM25", seen, means[:, 1])]
    axes = Axes("millions of texts seen", "nDCG@10, mean of five dev sets")
    write_svg(HERE / "dev.svg", lines("dev", drawn, axes))


if __name__ == "__main__":
    main()
