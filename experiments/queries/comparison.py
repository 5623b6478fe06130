"""The paper's main comparison at equal tokens: pre-training on spans against passages with generated queries.

    python experiments/queries/comparison.py --data data --queries runs/queries/wiki --out runs/comparison

Every arm starts from `liebig:mini-v0` and sees the same number of tokens of the same articles: coCondenser and CoT-MAE
on two spans, on a passage and one of its five queries, on its one query, and on both kinds. Each is evaluated as it is
and after fine-tuning on the same labels (SQuAD and MedQuAD, those that the generator has seen), with several seeds;
`liebig compare` averages the seeds and tests all arms against spans, query by query. OUT/OBJECTIVE-*/ hold the
comparisons, OUT/arms.json steps, tokens and speed of each pre-training.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from liebig import config as recipes, encoders, pipeline
from liebig.data.store import TokenStore
from liebig.pretrain import presets, sources
from liebig.pretrain.config import PretrainConfig
from liebig.stages import STAGES
from liebig.text.tokenizer import Tokenizer

START = "liebig:mini-v0"
TASKS = ("labelled", "scifact")
Tree = dict[str, Any]


def arms(store: str, queries: str, batch: int) -> dict[str, Tree]:
    """What each arm changes; the first arm of an objective is what the others are held against."""
    spans: Tree = {"kind": "spans"}
    asked: Tree = {"kind": "queries", "collection": queries, "per_passage": 5}
    mixed = {"kind": "mixture", "parts": [{"weight": 0.5, "source": asked}, {"weight": 0.5, "source": spans}]}
    stored = {"stores": [{"path": store}]}
    cocondenser = {"objective": {"kind": "cocondenser", "skip_from": 2}, "batch": batch}
    cotmae = {"objective": {"kind": "cotmae"}, "batch": batch}
    return {
        "cocondenser-spans": {**cocondenser, **stored, "source": spans},
        "cocondenser-queries": {**cocondenser, "source": asked},
        "cocondenser-one-query": {**cocondenser, "source": {**asked, "per_passage": 1}},
        "cocondenser-mixed": {**cocondenser, **stored, "source": mixed, "mix": "batch"},
        "cotmae-spans": {**cotmae, **stored, "source": {**spans, "choice": "mixed"}},
        "cotmae-queries": {**cotmae, "source": asked},
    }


def data_stages(data: Path) -> dict[str, Tree]:
    """Articles as a store, and the labelled collections."""
    return {
        "articles": {"kind": "init", "paths": [str(data / "wiki" / "articles-0.jsonl.xz")]},
        "store": {"kind": "prepare", "collection": "@articles", "tokenizer": str(encoders.folder())},
        "labelled": {"kind": "init", "paths": [str(data / "squad"), str(data / "medquad")]},
        "scifact": {"kind": "init", "paths": [str(data / "scifact")]},
        "bm25": {"collection": "@labelled"},
        "bm25-run": {
            "kind": "retrieve",
            "collection": "@labelled",
            "split": "train",
            "bm25": "@bm25",
            "k": 100,
        },
        "negatives": {
            "kind": "mine",
            "collection": "@labelled",
            "sources": [{"run": "@bm25-run/bm25.trec", "depth": 100, "keep": 20}],
        },
    }


def pretraining(arm: Tree, seed: int, steps: int, lr: float) -> Tree:
    """A stage of pre-training."""
    rest = {name: value for name, value in arm.items() if name != "batch"}
    loop = {"steps": steps, "batch": arm["batch"], "seed": seed, "compile": True, "log_every": 20, "keep": 1}
    return {
        "kind": "pretrain",
        "model": {"kind": "folder", "path": START},
        "max_length": 128,
        "loop": {**loop, "checkpoint_every": 1_000_000},
        "optim": {"lr": lr},
        **rest,
    }


def steps_for(arm: Tree, tokens: float) -> tuple[int, float]:
    """In how many steps an arm sees so many tokens, and how many an example has."""
    tree = {name: value for name, value in pretraining(arm, 0, 1, 1e-4).items() if name != "kind"}
    config = presets.resolve(recipes.parse(PretrainConfig, tree))
    stores = [TokenStore.open(store.path) for store in config.stores]
    found = sources.build(config, stores, Tokenizer.from_folder(encoders.folder()))
    each = sources.tokens_per_example(found)
    return max(1, round(tokens / (each * arm["batch"]))), each


def arm_stages(
    name: str, arm: Tree, seed: int, steps: int, given: argparse.Namespace, out: Path
) -> dict[str, Tree]:
    """Pre-training, fine-tuning, and both evaluated on every task."""
    stem = f"{name}-{seed}"
    found: dict[str, Tree] = {stem: pretraining(arm, seed, steps, given.lr)}
    found[f"{stem}-tuned"] = {
        "kind": "finetune",
        "model": {"kind": "folder", "path": f"@{stem}/model"},
        "collection": str(out / "labelled"),
        "groups": [str(out / "negatives")],
        "negatives": 3,
        "optim": {"lr": given.tune_lr},
        "loop": {"steps": given.tune_steps, "batch": given.tune_batch, "seed": seed, "compile": True},
    }
    for model in (stem, f"{stem}-tuned"):
        for task in TASKS:
            found[f"{model}-on-{task}"] = {
                "kind": "evaluate",
                "system": f"@{model}/model",
                "collections": [str(out / task)],
                "split": "test",
                "name": name,
            }
    return found


def comparisons(names: list[str], seeds: list[int], out: Path) -> dict[str, Tree]:
    """All arms of an objective against its spans, zero-shot and fine-tuned, on each task."""
    found: dict[str, Tree] = {}
    for objective in dict.fromkeys(name.partition("-")[0] for name in names):
        mine = [name for name in names if name.startswith(objective) and f"{objective}-spans" in names]
        for tuned, word in (("", "zero-shot"), ("-tuned", "fine-tuned")):
            for task in TASKS if len(mine) > 1 else ():
                runs = [(name, out / f"{name}-{seed}{tuned}-on-{task}") for name in mine for seed in seeds]
                found[f"{objective}-{word}-{task}"] = {
                    "kind": "compare",
                    "runs": [str(path) for _, path in runs],
                    "names": [name for name, _ in runs],
                    "baseline": f"{objective}-spans",
                }
    return found


def run(stages: dict[str, Tree], out: Path) -> None:
    pipeline.run(
        pipeline.plan_stages(STAGES, stages, out), lambda said: print(said, file=sys.stderr, flush=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", help="some of the arms")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tokens", type=float, default=100e6)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--tune-steps", type=int, default=600)
    parser.add_argument("--tune-batch", type=int, default=64)
    parser.add_argument("--tune-lr", type=float, default=1e-4)
    given = parser.parse_args()
    run(data_stages(given.data), given.out)
    every = arms(str(given.out / "store"), str(given.queries), given.batch)
    chosen = {name: every[name] for name in given.arms or every}
    about: dict[str, Tree] = {}
    for name, arm in chosen.items():
        steps, each = steps_for(arm, given.tokens)
        about[name] = {
            "steps": steps,
            "tokens_an_example": round(each, 1),
            "tokens": round(steps * each * given.batch),
        }
        for seed in given.seeds:
            run(arm_stages(name, arm, seed, steps, given, given.out), given.out)
            timing = given.out / f"{name}-{seed}" / "timing.jsonl"
            lines = [json.loads(line) for line in timing.read_text(encoding="utf-8").splitlines()]
            about[name][f"timing-{seed}"] = lines[-1] if lines else {}
    (given.out / "arms.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    run(comparisons(list(chosen), given.seeds, given.out), given.out)


if __name__ == "__main__":
    main()
