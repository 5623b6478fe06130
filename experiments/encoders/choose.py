"""The best trial of contrast.toml or neighbours.toml by dev, as overrides for liebig-small's recipe.

    python experiments/encoders/choose.py runs/contrast/dev/results.json [--trials FILE] [--measure RR@10]

prints what `run.py --set` takes, a line each: source, temperature and neighbours of the trial with the highest value.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liebig.base.config import as_literal

HERE = Path(__file__).parent


def overrides(trial: dict[str, Any]) -> list[str]:
    """What of a trial goes into `stages.unsupervised`."""
    return [
        f"stages.unsupervised.source={as_literal(trial['source'])}",
        f"stages.unsupervised.objective.temperature={trial['objective']['temperature']}",
        f"stages.unsupervised.neighbours={trial.get('neighbours', 1)}",
    ]


def best(values: Mapping[str, float], trials: Mapping[str, Any]) -> str:
    """The name of the trial with the highest value; other rows (BM25, fused ones) are no trials."""
    return max((name for name in values if name in trials), key=values.__getitem__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--trials", type=Path, default=HERE / "contrast.toml")
    parser.add_argument("--measure", default="RR@10")
    parser.add_argument("--set", default="squad-wiki")
    asked = parser.parse_args()
    trials = tomllib.loads(asked.trials.read_text())["stages"]
    means = json.loads(asked.results.read_text())["means"]
    values = {name: by_set[asked.set][asked.measure] for name, by_set in means.items()}
    chosen = best(values, trials)
    print(f"{chosen}: {asked.measure} {values[chosen]:.3f}", file=sys.stderr)
    print("\n".join(overrides(trials[chosen])))


if __name__ == "__main__":
    main()
