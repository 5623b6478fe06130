"""Run smoke recipes, and read the curve a run logs; `python -m tests.worlds.smoke` writes the golden ones."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from itertools import islice
from pathlib import Path
from typing import Any

from liebig.base import pipeline
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes" / "smoke").glob("*.toml"))
GOLDEN = ROOT / "tests" / "methods" / "golden"


def pretrains(recipe: Path) -> bool:
    """Whether a recipe ends in a pre-training."""
    *_, last = tomllib.loads(recipe.read_text())["stages"].values()
    return bool(last.get("kind") == "pretrain")


NAMES = [recipe.stem for recipe in RECIPES if pretrains(recipe)]


def run(name: str, out: Path, *overrides: str) -> Path:
    """The folder of the recipe's last stage; what other recipes have made in `out` is not made again."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        stages = pipeline.plan(STAGES, ROOT / "recipes" / "smoke" / f"{name}.toml", overrides, out)
        pipeline.run(stages, lambda _: None)
    finally:
        os.chdir(before)
    return stages[-1].out


def shortened(name: str, home: Path) -> list[str]:
    """Overrides that leave a smoke recipe its stages, few texts (in `home`), and each training of it few steps."""
    stages = tomllib.loads((ROOT / "recipes" / "smoke" / f"{name}.toml").read_text())["stages"]
    few = [f"stages.collection.paths=['{_few_texts(home / 'texts')}']"]
    for stage, fields in stages.items():
        loop = fields.get("loop", {})
        few += [f"stages.{stage}.loop.{key}=4" for key in ("steps", "eval_every") if key in loop]
        few += [f"stages.{stage}.limit=48"] if "epochs" in loop else []
    return few


def _few_texts(folder: Path) -> Path:
    """A quarter of the passages, with their two queries each."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for file, lines in {"corpus.jsonl": 64, "queries.jsonl": 128, "qrels/generated.tsv": 129}.items():
        with (ROOT / "recipes" / "smoke" / "texts" / file).open(encoding="utf-8") as whole:
            (folder / file).write_text("".join(islice(whole, lines)), encoding="utf-8")
    return folder


def curve(folder: Path) -> list[dict[str, Any]]:
    """Step, losses and held-out values of every line of the log, events left out."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [
        {"step": line["step"], "losses": {k: v for k, v in line["losses"].items() if "accuracy" not in k}}
        for line in lines
        if "losses" in line
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or NAMES:
            text = json.dumps(curve(run(name, Path(folder))), indent=1)
            (GOLDEN / f"{name}.json").write_text(text + "\n")
