"""What the papers' runs take on one H200 before their data is there (`liebig reproduce --plan`).

Products of the layers over the share of the chip's matrix rate that steps and encoding were measured to reach
(bench/README.md: .42 to .58), from the sizes that the data sets state. CPU work is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from liebig.base import config as recipes
from liebig.base.pipeline import Planned
from liebig.evaluation.data_sets import known
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.sources.crops import CropSource
from liebig.planner import BERT_BASE, ModelSize, ResourcePlan

H200 = 788e12 * 0.45  # FLOP/s
GENERATED = (
    1684 / 3
)  # passages/s with five queries each: T5-base, from flan-t5-small's measured rate by their sizes
QUERY_TOKENS = 10.0
CUT = 512.0  # tokens of a text that any encoder of the papers reads
FORWARD, TRAINING, CACHED = (
    1,
    3,
    4,
)  # passes: encoding; forward and backward; the same after a pass without gradient


@dataclass(frozen=True)
class PaperCorpus:
    """What a folder holds, as far as sources state it: texts, their tokens, and queries by split."""

    texts: int = 0
    tokens: float = 0.0
    splits: Mapping[str, int] = field(default_factory=dict)
    exact: bool = True


def plan_papers(planned: Sequence[Planned], price: float) -> ResourcePlan:
    """GPU hours and money of each stage of the papers' runs, from stated sizes."""
    corpora: dict[Path, PaperCorpus] = {}
    rows, unknown, rough = [], [], False
    for item in planned:
        corpus = corpora[item.out] = _paper_corpus(item, corpora)
        if item.stage.name in GPU:
            seconds = GPU[item.stage.name](item.config, corpus)
            if seconds is None:
                unknown.append(item.name)
            elif seconds:
                rows.append((item.name, seconds / 3600))
                rough |= not corpus.exact
    total = sum(hours for _, hours in rows)
    width = max((len(name) for name, _ in rows), default=len("stage"))
    lines = [f"{'stage':<{width}}  {'GPU':>12}  {'cost':>12}"]
    lines += [f"{name:<{width}}  {hours:10,.2f} h  {hours * price:12,.2f}" for name, hours in rows]
    lines.append(
        f"{'all':<{width}}  {total:10,.2f} h  {total * price:12,.2f}  on one H200, at {price:g} an hour"
    )
    lines += [f"Not known before its data is there: {', '.join(unknown)}"] if unknown else []
    lines += ["Sizes of Wikipedia, books and CCNet are guesses: the papers state none."] if rough else []
    document = {"stages": dict(rows), "hours": total, "price": total * price, "unknown": unknown}
    return ResourcePlan(lines, document)


def _paper_corpus(item: Planned, corpora: Mapping[Path, PaperCorpus]) -> PaperCorpus:
    """The corpus of a stage's folder: of named sets, or of the largest that it reads."""
    named = recipes.inputs(item.config).items()
    paths = [
        path for name, path in named if not name.startswith(("model", "system"))
    ]  # data, not what learned from it
    if item.stage.name == "init":
        sets = [one for one in map(known, paths) if one is not None]
        splits = {split: count for one in sets for split, count in one.splits.items()}
        exact = not any(one.estimated for one in sets)
        tokens = max((one.tokens for one in sets), default=0.0)
        return PaperCorpus(sum(one.texts for one in sets), tokens, splits, exact)
    read = [corpora[place] for path in paths for place in (path, *path.parents) if place in corpora]
    corpus = max(read, key=lambda one: one.texts * one.tokens, default=PaperCorpus())
    if item.stage.name == "passages":
        length = item.config.length  # type: ignore[attr-defined]  # of PassagesConfig
        return replace(corpus, texts=round(corpus.texts * corpus.tokens / length), tokens=float(length))
    return corpus


def _flop(start: Any, tokens: float, passes: int) -> float:
    size = ModelSize.of_start(start) if start is not None else ModelSize(*BERT_BASE)
    return passes * tokens * 2 * size.layers * (4.0 * size.width**2 + 2.0 * size.width * size.intermediate)


def _gpu_pretrain(config: PretrainConfig, corpus: PaperCorpus) -> float | None:
    source = config.source
    pairs = source.kind != "blocks"
    length = 0.3 * source.window if isinstance(source, CropSource.Config) else float(config.max_length)
    examples: float | None = config.loop.steps and float(config.loop.steps * config.loop.batch)
    if examples is None:
        whole = corpus.texts * (1 if pairs else corpus.tokens / length)
        examples = (config.loop.epochs or 1.0) * whole
    tokens = examples * length * (2 if pairs else 1)
    return _flop(config.model, tokens, CACHED if pairs else TRAINING) / H200 if tokens else None


def _gpu_finetune(config: FinetuneConfig, corpus: PaperCorpus) -> float | None:
    queries = min(config.limit or 1 << 62, corpus.splits.get(config.split) or config.limit or 0)
    steps = config.loop.steps
    examples = steps * config.loop.batch if steps else (config.loop.epochs or 1.0) * queries
    passages = (config.positives + config.negatives) * min(config.passage_length, corpus.tokens)
    twice = 2 if config.optim.kind == "asam" else 1
    tokens = twice * examples * (QUERY_TOKENS + passages)
    return _flop(config.model, tokens, CACHED) / H200 if tokens else None


def _gpu_encode(config: Any, corpus: PaperCorpus) -> float | None:
    return _flop(None, corpus.texts * min(corpus.tokens, CUT), FORWARD) / H200 if corpus.texts else None


def _gpu_evaluate(config: Any, corpus: PaperCorpus) -> float | None:
    return 0.0 if config.system.suffix == ".trec" else _gpu_encode(config, corpus)  # a run is only read


def _gpu_rerank(config: Any, corpus: PaperCorpus) -> float | None:
    queries = corpus.splits.get("train", 0)
    loop = getattr(config, "loop", None)
    passages = (
        (1 + config.negatives) * (loop.epochs or 1.0) if loop is not None else 31
    )  # a positive, 30 mined
    tokens = queries * passages * min(corpus.tokens + QUERY_TOKENS, CUT)
    return _flop(None, tokens, FORWARD if loop is None else TRAINING) / H200 if tokens else None


def _gpu_generate(config: Any, corpus: PaperCorpus) -> float | None:
    return corpus.texts / GENERATED * config.count / 5 if corpus.texts else None


GPU: Mapping[str, Callable[[Any, PaperCorpus], float | None]] = {
    "pretrain": _gpu_pretrain,
    "finetune": _gpu_finetune,
    "encode": _gpu_encode,
    "evaluate": _gpu_evaluate,
    "rerank train": _gpu_rerank,
    "rerank score": _gpu_rerank,
    "queries generate": _gpu_generate,
}
