"""Each recipe without labels from one masked language model, then the same fine-tuning: what differs is the recipe.

    python experiments/encoders/each.py --start runs/small/start/model --store runs/small/wiki_store --out runs/each

Condenser, coCondenser (from that Condenser), cloze and crops see about as many tokens each (50 M); every one of them,
and the start itself, is fine-tuned on SQuAD's and NQ's training questions like liebig-small's first round. Two rows of
stages run side by side; what is up to date is skipped. `--size` is the share of those steps, for a small trial.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import beside

from liebig.base import pipeline
from liebig.stages import STAGES

ROWS = (
    ("condenser", "cocondenser", "tuned-condenser", "tuned-cocondenser"),
    ("cloze", "crops", "tuned-mlm", "tuned-cloze", "tuned-crops"),
)
OPTIM = {"beta2": 0.98, "eps": 1e-6, "weight_decay": 0.01}
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "condenser": {
        "objective": {"kind": "condenser"},
        "source": {"kind": "blocks"},
        "batch_tokens": 131072,
        "loop": {"steps": 380},
    },
    "cocondenser": {
        "objective": {"kind": "cocondenser"},
        "source": {"kind": "spans"},
        "loop": {"steps": 240, "batch": 1024},
    },
    "cloze": {
        "objective": {"kind": "simclr", "similarity": "cosine", "temperature": 0.05},
        "source": {"kind": "cloze", "keep": 0.1},
        "loop": {"steps": 220, "batch": 2048},
    },
    "crops": {
        "objective": {"kind": "simclr", "similarity": "cosine", "temperature": 0.05},
        "source": {"kind": "crops", "window": 252, "shortest": 0.05, "longest": 0.5, "delete": 0.1},
        "loop": {"steps": 200, "batch": 2048},
    },
}


def trained(name: str, start: str, store: str, size: float) -> dict[str, Any]:
    """The stage of a recipe without labels."""
    recipe = RECIPES[name]
    loop = {
        "seed": 1,
        "compile": True,
        "chunk_tokens": 131072,
        "workers": 4,
        "log_every": 20,
        "checkpoint_every": 100000,
        **recipe["loop"],
    }
    return {
        **recipe,
        "kind": "pretrain",
        "model": {"kind": "folder", "path": "@condenser/model" if name == "cocondenser" else start},
        "stores": [{"path": store}],
        "max_length": 128,
        "dropout": 0.0,
        "optim": {"lr": 3e-4, **OPTIM},
        "schedule": {"kind": "linear", "warmup_ratio": 0.05},
        "loop": {**loop, "steps": max(1, round(loop["steps"] * size))},
    }


def tuned(model: str, pooling: str, labelled: Path, size: float) -> dict[str, Any]:
    """Fine-tuning as in the first round of liebig-small's recipe."""
    return {
        "kind": "finetune",
        "model": {"kind": "folder", "path": model},
        "pooling": pooling,
        "collection": str(labelled / "open"),
        "groups": [str(labelled / "bm25-negatives")],
        "objective": {"kind": "contrastive", "similarity": "cosine", "temperature": 0.05},
        "negatives": 1,
        "query_length": 48,
        "passage_length": 160,
        "optim": {"lr": 5e-5},
        "loop": {
            "epochs": 6 * size,
            "batch": 256,
            "seed": 1,
            "compile": True,
            "chunk_tokens": 131072,
            "log_every": 20,
            "checkpoint_every": 100000,
        },
    }


def stages(start: str, store: str, labelled: Path, size: float) -> dict[str, Any]:
    """All of them."""
    made = {name: trained(name, start, store, size) for name in RECIPES}
    for name in ("mlm", *RECIPES):
        pooling = "cls" if "condenser" in name else "mean"
        model = start if name == "mlm" else f"@{name}/model"
        made[f"tuned-{name}"] = tuned(model, pooling, labelled, size)
    return made


def row(names: Sequence[str], tree: Mapping[str, Any], out: Path) -> None:
    """Run stages one after the other."""
    planned = {item.name: item for item in pipeline.plan_stages(STAGES, dict(tree), out)}
    for name in names:
        pipeline.run([planned[name]], lambda said: print(said, flush=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", default="runs/small/start/model")
    parser.add_argument("--store", default="runs/small/wiki_store")
    parser.add_argument("--labelled", type=Path, default=Path("runs/small"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=float, default=1.0)
    asked = parser.parse_args()
    tree = stages(asked.start, asked.store, asked.labelled, asked.size)
    beside.run_and_exit(row, [(names, tree, asked.out) for names in ROWS])


if __name__ == "__main__":
    main()
