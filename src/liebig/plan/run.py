"""`liebig plan`: a recipe stage by stage, or the table of three corpora, on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liebig import config as recipes, pipeline
from liebig.errors import RecipeError
from liebig.pipeline import Planned, Stage
from liebig.plan.estimates import BYTES, ESTIMATORS, Corpus, Estimate, Shape, encoding, lexical
from liebig.plan.machines import Machine
from liebig.progress import duration

CORPORA = {
    "MS MARCO passages": Corpus(8_841_823, 80),
    "Wikipedia, 100 words": Corpus(21_015_324, 140),
    "web pages": Corpus(1_000_000_000, 140),
}


def plan_recipe(
    table: Mapping[str, Stage], recipe: Path, overrides: Sequence[str], machine: Machine, corpus: Corpus
) -> list[str]:
    """What each stage of a recipe takes, and all of them."""
    estimates = list(_estimates(_stages(table, recipe, overrides), machine, corpus))
    if not estimates:
        return ["No stage of this recipe takes more than seconds."]
    return lines(estimates, machine)


def _stages(table: Mapping[str, Stage], recipe: Path, overrides: Sequence[str]) -> list[Planned]:
    """The stages of a pipeline, or the one stage that a plain recipe fits."""
    if "stages" in recipes.read_toml(recipe):
        return pipeline.plan(table, recipe, overrides, Path("runs") / recipe.stem)
    for kind in ESTIMATORS:
        try:
            config = recipes.load(table[kind].config, recipe, overrides)
        except RecipeError:
            continue
        return [Planned(kind, table[kind], config, Path("runs") / kind)]
    fix = f"a pipeline, or a recipe of {', '.join(ESTIMATORS)}"
    raise RecipeError("is no recipe that can be planned", file=recipe, fix=fix)


def _estimates(stages: Sequence[Planned], machine: Machine, corpus: Corpus) -> Iterator[Estimate]:
    for item in stages:
        if item.stage.name in ESTIMATORS:
            yield ESTIMATORS[item.stage.name](item.name, item.config, machine, corpus)


def lines(estimates: Sequence[Estimate], machine: Machine) -> list[str]:
    """The table of stages, and what does not fit."""
    width = max(len(e.stage) for e in estimates)
    rows = [f"On {machine.name}; {_priced(machine)}", ""]
    rows.append(f"{'stage':<{width}}  {'time':>13}  {'memory':>9}  {'disk':>9}  {'cost':>9}  rests on")
    for e in estimates:
        rows.append(
            f"{e.stage:<{width}}  {_time(e.seconds):>13}  {size(e.memory):>9}  {size(e.disk):>9}  "
            f"{_cost(e.seconds, machine):>9}  {e.basis}"
        )
    known = sum(e.seconds for e in estimates if e.seconds is not None)
    largest, disk = max(e.memory for e in estimates), sum(e.disk for e in estimates)
    rows.append(
        f"{'all':<{width}}  {_time(known):>13}  {size(largest):>9}  {size(disk):>9}  {_cost(known, machine):>9}"
    )
    if largest > machine.memory:
        rows.append(f"WARNING: {size(largest)} of memory do not fit the {size(machine.memory)} there are.")
    return rows


def plan_table(model: Path | None, machine: Machine, kind: str = "fp16") -> list[str]:
    """Encoding, vectors and BM25 of three corpora."""
    shape = Shape.of(model)
    name = model.name if model is not None else "BERT-base"
    lines = [f"On {machine.name}, {name} ({shape.layers} x {shape.width}); {_priced(machine)}", ""]
    lines.append(f"{'corpus':<22} {'passages':>14}  {'encode':>13}  {'cost':>9}  {kind + ' vectors':>14}  "
                 f"{'int8':>9}  {'BM25, 1 core':>13}  {'on disk':>9}")  # fmt: skip
    for title, corpus in CORPORA.items():
        dense = encoding(title, shape, corpus, kind, machine, "")
        words = lexical(title, corpus, machine, "")
        small = corpus.passages * (shape.width * BYTES["int8"] + 28)
        lines.append(
            f"{title:<22} {corpus.passages:>14,}  {_time(dense.seconds):>13}  {_cost(dense.seconds, machine):>9}  "
            f"{size(dense.disk):>14}  {size(small):>9}  {_time(words.seconds):>13}  {size(words.disk):>9}"
        )
    return lines


def _priced(machine: Machine) -> str:
    return (
        f"an hour at ${machine.price:g}, as assumed (--price)"
        if machine.price
        else "no price given (--price)"
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds / 86_400:,.1f} days" if seconds > 3 * 86_400 else duration(seconds)


def _cost(seconds: float | None, machine: Machine) -> str:
    return "" if seconds is None or not machine.price else f"${seconds / 3600 * machine.price:,.2f}"


def size(bytes: float) -> str:
    """`1.5 TB`, `13.6 GB`, `20 MB`: what disks are sold in; memory is close enough."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if bytes >= unit:
            return f"{bytes / unit:.3g} {name}"
    return f"{bytes / 1e3:.3g} kB"
