"""The pre-trainings that are compared: what each learns from, and how far it has gone.

An arm is an objective over a source of examples. It climbs rungs of tokens beyond the start (30 M, 100 M, 300 M, 1
G), the same number for every arm. A rung is one `liebig pretrain` from the arm's rung before, with its heads and
with a linear schedule of its own, so every rung is a finished model. coCondenser and its ablation begin where
Condenser's first rung ends and count its tokens as theirs. A rung lies in OUT/models/ARM@RUNG-SEED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from liebig.base import pipeline
from liebig.methods.pretraining import PretrainConfig, resolve
from liebig.methods.sources import mixture as sources
from liebig.stages import STAGES
from liebig.store import TokenStore

Tree = dict[str, Any]
RUNGS = {"30M": 30e6, "100M": 100e6, "300M": 300e6, "1G": 1e9}
START = "start"
MASKED, CONTRAST = 3e-4, 1e-4
"""Rates: contrast from a masked language model was best at 1e-4 of three (experiments/encoders), coCondenser's own."""
BLOCKS: Tree = {"kind": "blocks"}
SPANS: Tree = {"kind": "spans"}
CROPS: Tree = {"kind": "crops", "shortest": 0.05, "longest": 0.5, "delete": 0.0}
SIMCLR: Tree = {"kind": "simclr", "similarity": "cosine", "temperature": 0.05}


@dataclass(frozen=True)
class Arm:
    """An objective, its source, its batch (tokens for single texts, else examples) and its rate."""

    objective: Tree
    source: Tree = field(default_factory=lambda: BLOCKS)
    batch: int | None = None
    lr: float = MASKED
    after: str = START
    stores: tuple[str, ...] = ("wiki_store",)
    coefficient: float = 1.0
    layers: int | None = None  # of the start that are kept
    tuned_as: str | None = (
        None  # the arm whose pooling and rate are taken, where that was chosen once for both
    )
    tuned_in: int = 1  # the pre-training whose models its settings are tried with


def crops(**changes: Any) -> Arm:
    """SimCLR on two pieces of a window."""
    return Arm(SIMCLR, {**CROPS, **changes}, 2048, CONTRAST, tuned_as="crops" if changes else None)


def moco(queue: int) -> Arm:
    """MoCo on the same pieces."""
    objective = {"kind": "moco", "queue": queue, "momentum": 0.999, "similarity": "cosine"}
    return Arm(objective, CROPS, 2048, CONTRAST, tuned_as=None if queue == 2048 else "moco-2k")


def condenser(**changes: Any) -> Arm:
    return Arm({"kind": "condenser", **changes}, tuned_as="condenser" if changes else None)


def mixed(coefficient: float) -> Arm:
    """Crops of Wikipedia, and of novels and manuals."""
    both = ("wiki_store", "other_store")
    return Arm(SIMCLR, CROPS, 2048, CONTRAST, stores=both, coefficient=coefficient, tuned_as="crops")


ARMS: Mapping[str, Arm] = {
    "mlm": Arm({"kind": "mlm", "mask_rate": 0.2}),
    "condenser": condenser(),
    "cocondenser": Arm({"kind": "cocondenser"}, SPANS, 1024, CONTRAST, after="condenser"),
    "cotmae": Arm({"kind": "cotmae"}, {"kind": "spans", "choice": "mixed"}, 512, tuned_in=3),
    "bow": Arm({"kind": "bow"}, tuned_in=3),
    "crops": crops(),
    "cloze": Arm(SIMCLR, {"kind": "cloze", "keep": 0.1}, 2048, CONTRAST),
    "contrast": Arm({"kind": "cocondenser", "mlm": False}, SPANS, 1024, CONTRAST, after="condenser"),
    "crops-delete": crops(delete=0.1),
    "crops-replace": crops(replace=0.1),
    "moco-2k": moco(2048),
    "moco-16k": moco(16384),
    "moco-64k": moco(65536),
    "mixed-uniform": mixed(1.0),
    "mixed-half": mixed(0.0),
    "condenser-no-late": condenser(late_mlm=False),
    "condenser-skip-3": condenser(skip_from=3),
    "condenser-skip-9": condenser(skip_from=9),
    "condenser-head-1": condenser(n_head_layers=1),
    "student": Arm({"kind": "mlm", "mask_rate": 0.2}, layers=4),
}


@dataclass(frozen=True)
class Places:
    """Where things lie, and how small a trial is."""

    out: Path
    rungs: Mapping[str, float] = field(default_factory=lambda: RUNGS)
    batch: float = 1.0  # share of the batches above
    length: int = 128

    @property
    def start(self) -> Path:
        return self.out / START / "model"

    def model(self, name: str) -> Path:
        """The model of ARM@RUNG-SEED, or the start."""
        return self.start if name.partition("-")[0] == START else self.out / "models" / name / "model"


def parts(name: str) -> tuple[str, str, int]:
    """Arm, rung and seed of a model's name."""
    arm, _, rest = name.partition("@")
    rung, _, seed = rest.rpartition("-")
    if arm not in ARMS or not seed.isdecimal():
        raise SystemExit(f"{name!r} is not ARM@RUNG-SEED; the arms are {', '.join(ARMS)}")
    return arm, rung, int(seed)


def before(name: str, rungs: Mapping[str, float] = RUNGS) -> str:
    """What a model is trained from."""
    arm, rung, seed = parts(name)
    order = list(rungs)
    if rung not in order:
        raise SystemExit(f"{name!r}: the rungs are {', '.join(order)}")
    after, place = ARMS[arm].after, order.index(rung)
    if not has(arm, rung, rungs):
        raise SystemExit(f"{name!r}: {arm} begins after {after}'s {order[0]}; its first rung is {order[1]}")
    if place == 0:
        return START
    own = place > 1 or after == START
    return f"{arm if own else after}@{order[place - 1]}-{seed}"


def has(arm: str, rung: str, rungs: Mapping[str, float] = RUNGS) -> bool:
    """Whether an arm has a rung: one that begins after another arm's first has none there."""
    return arm not in ARMS or ARMS[arm].after == START or rung != next(iter(rungs))


def chain(name: str, rungs: Mapping[str, float] = RUNGS) -> list[str]:
    """The models that have to be there, the first one first, the start left out."""
    earlier = before(name, rungs)
    return [*([] if earlier == START else chain(earlier, rungs)), name]


def stage(name: str, places: Places) -> Tree:
    """The `liebig pretrain` that makes a model; steps follow from tokens."""
    arm_name, rung, seed = parts(name)
    arm, earlier = ARMS[arm_name], before(name, places.rungs)
    tokens = places.rungs[rung] - (0 if earlier == START else places.rungs[parts(earlier)[1]])
    cut = arm.layers if earlier == START else None
    tree = recipe(arm, places.model(earlier) if cut is None else shortened(places, cut), seed, places)
    tree["loop"]["steps"] = max(1, round(tokens / tokens_a_step(tree, places)))
    return tree


def recipe(arm: Arm, begin: Path, seed: int, places: Places) -> Tree:
    """An arm as a recipe of `liebig pretrain`, without its length."""
    batch = {"batch_tokens": round(131072 * places.batch)}
    if arm.batch is not None:
        batch = {}
    # The longest crop, half of a window, just fits beside two special tokens.
    window = {"window": 2 * (places.length - 2)} if arm.source["kind"] == "crops" else {}
    return {
        "kind": "pretrain",
        "model": {"kind": "folder", "path": str(begin)},
        "stores": [{"path": str(places.out / store)} for store in arm.stores],
        "objective": dict(arm.objective),
        "source": {**arm.source, **window},
        "coefficient": arm.coefficient,
        "max_length": places.length,
        "dropout": 0.0,
        "optim": {"lr": arm.lr, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup_ratio": 0.05},
        "evaluation": {"share": 0.005},
        **batch,
        "loop": {
            "seed": seed, "compile": True, "chunk_tokens": 262144, "workers": 6, "log_every": 20, "keep": 1,
            "checkpoint_every": 100_000,
            **({} if arm.batch is None else {"batch": max(2, round(arm.batch * places.batch))}),
        },
    }  # fmt: skip


def tokens_a_step(tree: Tree, places: Places) -> float:
    """Of the batches that a stage draws, by a sample of them."""
    planned = pipeline.plan_stages(
        STAGES, {"one": {**tree, "loop": {**tree["loop"], "steps": 1}}}, places.out
    )
    config = planned[0].config
    assert isinstance(config, PretrainConfig), "a pre-training"
    stores = [TokenStore.open(store.path, hashes=False) for store in config.stores]
    opened = sources.build(resolve(config), stores, stores[0].tokenizer)
    each = sources.tokens_per_example(opened)
    if config.batch_tokens is None:
        return each * config.loop.batch
    return each * max(1, round(config.batch_tokens / each))


def train(name: str, places: Places) -> None:
    """Make one model, from what is before it."""
    planned = pipeline.plan_stages(STAGES, {name: stage(name, places)}, places.out / "models")
    pipeline.run(planned, lambda said: print(said, flush=True))


def shortened(places: Places, layers: int) -> Path:
    """The start with its first layers alone."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    out = places.out / f"start-{layers}"
    if not (out / "config.json").exists():
        model = AutoModelForMaskedLM.from_pretrained(places.start)
        model.base_model.encoder.layer = model.base_model.encoder.layer[:layers]
        model.config.num_hidden_layers = len(model.base_model.encoder.layer)
        model.save_pretrained(out)
        AutoTokenizer.from_pretrained(places.start).save_pretrained(out)
    return out
