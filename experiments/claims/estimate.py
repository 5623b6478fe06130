"""GPU minutes of what is left for claims, from counted work and rates seen on one H200; a plan, not a measurement.

A token of training takes six FLOP per parameter of the layers it passes, and as many at masked positions for the
vocabulary; a token that is only encoded takes a third. `USEFUL` is what the start reached alone (2.1 M tokens/s of 141
MFLOP). Rows of fine-tuning are smaller: 124 took 11 minutes, other work beside them, where
`USEFUL_TUNING` makes 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ladder import BM25, Row, Runs
from pretrained import ARMS, START, Places, before, chain, parts
from tuned import LONG, NEGATIVES, TEXTS, Job

LAYERS, WIDTH, VOCABULARY, MASKED = 12, 384, 30_528, 0.2
USEFUL, USEFUL_TUNING = 290e12, 120e12
BEGIN_PRETRAINING, BEGIN_TUNING = 20.0, 0.5  # seconds: imports, stores, compilation; resetting weights
QUESTION, PASSAGE = 18, 130  # tokens
PASSAGES = {"wiki": 52_067, "medquad": 15_809, "scifact": 5_183}
STEP = (
    0.045  # seconds of the host for a step of 12 layers, whatever its tokens; shared by processes beside it
)
TEXT_TOKENS = {"stsb": 30, "sections": 90}


def layer_flops(layers: float = LAYERS) -> float:
    """Of a token forward and back, layers alone."""
    return 6 * 12 * WIDTH**2 * layers


def pretraining(name: str, places: Places) -> float:
    """Seconds of a model's own rung."""
    arm_name, rung, _ = parts(name)
    arm, earlier = ARMS[arm_name], before(name, places.rungs)
    tokens = places.rungs[rung] - (0 if earlier == START else places.rungs[parts(earlier)[1]])
    kind = arm.objective["kind"]
    heads = {"condenser": 2, "cocondenser": 2 if arm.objective.get("mlm", True) else 0, "cotmae": 1}.get(
        kind, 0
    )
    passes = {"condenser": 2, "cocondenser": 2 if heads else 0, "cotmae": 1.5, "mlm": 1}.get(kind, 0)
    flops = layer_flops((arm.layers or LAYERS) + heads) + 6 * WIDTH * VOCABULARY * MASKED * passes
    return BEGIN_PRETRAINING + tokens * flops / USEFUL


def tuning(job: Job, processes: int = 8) -> float:
    """Seconds of a run's share of the GPU."""
    if job.set in TEXTS:
        steps = (4 if job.set == "stsb" or job.labels < 10_000 else 1) * job.labels / 16
        return BEGIN_TUNING + steps * max(
            STEP / processes, 16 * TEXT_TOKENS[job.set] * layer_flops() / USEFUL_TUNING
        )
    known = PASSAGES[job.set] * PASSAGE * layer_flops() / 3 / USEFUL
    if job.labels == 0:
        return BEGIN_TUNING + known
    negatives = 0 if job.method.startswith("inbatch") else NEGATIVES
    batches = max(1, job.labels // 64)
    epochs = LONG if job.method.startswith("inbatch") else max(3, min(20, -(-150 // batches)))
    tokens = 64 * (QUESTION + PASSAGE * (1 + negatives))
    if job.method in ("entropy", "neighbours"):
        return BEGIN_TUNING + known * (job.method == "neighbours") * 2
    steps = batches * epochs * max(STEP / processes, tokens * layer_flops() / USEFUL_TUNING)
    return BEGIN_TUNING + steps + known * (2 if job.method.startswith("mined") else 1) + 5 * 0.3


def lines(runs: Runs, places: Places, claims: Sequence[str], models: Sequence[str] = ()) -> Iterator[str]:
    """A line for each claim by itself, then all of them together; or what can be run with some models."""
    yield "| claim | models | minutes | runs | minutes |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    if models:
        made = dict.fromkeys(name for model in models for name in chain(model, places.rungs))
        rows = runs.ladder.rows(claims)
        yield line(
            "all, with these models",
            list(made),
            [j for j in assumed(runs, rows) if j.model in made],
            runs,
            places,
        )
        return
    for name, numbers in [*((number, [number]) for number in claims), ("together", list(claims))]:
        rows = runs.ladder.rows(numbers)
        yield line(name, runs.models(rows, places.rungs), list(assumed(runs, rows)), runs, places)


def line(name: str, models: Sequence[str], jobs: Sequence[Job], runs: Runs, places: Places) -> str:
    """What is left of models and runs."""
    missing = [model for model in models if not (places.model(model) / "config.json").exists()]
    left = [job for job in dict.fromkeys(jobs) if not runs.done(job)]
    made, tuned = sum(pretraining(model, places) for model in missing), sum(map(tuning, left))
    return f"| {name} | {len(missing)} | {made / 60:.1f} | {len(left)} | {tuned / 60:.1f} |"


def assumed(runs: Runs, rows: Sequence[Row]) -> Iterator[Job]:
    """All runs of rows, with a guess where dev has not chosen yet."""
    for row in rows:
        if row.arm == BM25:
            continue
        known = runs.jobs(row)
        if row.labels:
            yield from runs.trials(row)
        seeds = range(1, runs.ladder.seeds + 1)
        first = runs.trials(row)[0]
        guess = (
            Job(row.model, row.set, row.labels, row.method, first.pooling, first.lr, seed) for seed in seeds
        )
        yield from known or guess
