"""`liebig demo`: a search engine for the documentation of your own Python, evaluated on questions that come with it.

BM25, the bundled encoder before training, the same after a minute of training on the corpus, and BM25 with each of
them. Everything is compared with the untrained hybrid: a table with intervals and tests, a page, and a folder that
`liebig serve` opens. Cost: about four minutes on two cores, in which the corpus is encoded twice and the encoder
trained for one minute; a second run does only what is missing.

The demo is a recipe of pipeline stages. Objective, learning rate and batch were chosen on the dev half of the
questions; docs/demo.md says what was tried and did not help. The corpus and its questions are in `liebig/demo`.
"""

from __future__ import annotations

import json
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from liebig import encoders
from liebig.base import pipeline
from liebig.base.json_output import without_text
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import Whole, announce, duration, is_verbose
from liebig.base.statistics import direction
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES

ENCODER = encoders.PREFIX + encoders.DEFAULT
MINUTES = 1.0
LENGTH = 64  # tokens of a passage
DEPTH = 100  # documents found for a question
BATCH = 64  # pairs that meet
LR = 1e-4  # for an encoder that is a retriever already; a start by masked words alone wants ten times as much
BM25, BEFORE, AFTER = "BM25", "untrained encoder", "trained encoder"
UNTRAINED, HYBRID = "untrained hybrid", "trained hybrid"

LINES = {
    "documents": "read the documentation of your Python",
    "collection": f"cut it into passages of {LENGTH} tokens, beside judged questions",
    "pairs": "pair every name, in words, with its text",
    "bm25": "index the words (BM25)",
    "vectors-before": "encode all passages with the bundled encoder",
    "model": "train the encoder on the corpus, without labels",
    "vectors": "encode all passages again",
    "index": "index the vectors",
    "found-before": "ask all questions: BM25, the encoder, both",
    "found": "ask all questions: BM25, the trained encoder, both",
    "judged-bm25": "judge BM25",
    "judged-before": "judge the untrained encoder",
    "judged-after": "judge the trained encoder",
    "judged-untrained": "judge BM25 and the untrained encoder together",
    "judged-hybrid": "judge BM25 and the trained encoder together",
    "training": "test what training adds to the hybrid",
    "against-untrained": "test the differences to the untrained hybrid",
    "errors": "find the questions that training helped and hurt",
    "report": "write the page",
}
ABOUT = (
    "The documentation of a Python standard library, searched by words (BM25), by vectors of the encoder that comes "
    "with Liebig, by the same encoder after a minute of training on the documentation itself, and by words and vectors "
    "together (hybrid). Evaluated on questions that nothing was tuned on. The baseline is the untrained hybrid, which "
    "anybody can put together."
)


def first_half(source: str = "stdlib:", minutes: float = MINUTES) -> dict[str, Any]:
    """Everything up to the rankings of both encoders, for the questions of both halves."""
    texts = {"documents": "@documents", "tokenizer": ENCODER, "length": LENGTH}
    return {
        "documents": {"kind": "init", "paths": [source]},
        "collection": {"kind": "demo collection", **texts},
        "pairs": {"kind": "demo pairs", **texts},
        "bm25": {"collection": "@collection"},
        "vectors-before": _encode(ENCODER),
        "model": _pretrain(minutes),
        "vectors": _encode("@model/model"),
        "index": {"vectors": "@vectors"},
        "found-before": _retrieve("@vectors-before"),
        "found": _retrieve("@index"),
    }


def second_half() -> dict[str, Any]:
    """Evaluation on the test half. What training is worth is the difference of the two hybrids."""
    judged = {
        "judged-bm25": _evaluate("@found-before/bm25.trec", BM25),
        "judged-before": _evaluate("@found-before/dense.trec", BEFORE),
        "judged-after": _evaluate("@found/dense.trec", AFTER),
        "judged-untrained": _evaluate("@found-before/hybrid.trec", UNTRAINED),
        "judged-hybrid": _evaluate("@found/hybrid.trec", HYBRID),
    }
    hybrids = {name: judged[name] for name in ("judged-untrained", "judged-hybrid")}
    compared = {"training": _compare(hybrids), "against-untrained": _compare(judged), "errors": _errors()}
    shown = [f"@{name}" for name in (*first_half(), *judged, *compared)]
    page = {"folders": shown, "title": "Liebig: the demo", "about": ABOUT, "words": LINES}
    return {**judged, **compared, "report": page}


def _encode(model: str) -> dict[str, Any]:
    return {"kind": "encode", "source": "@collection", "model": model, "max_length": LENGTH}


def _pretrain(minutes: float) -> dict[str, Any]:
    return {
        "kind": "pretrain",
        "model": {"kind": "folder", "path": ENCODER},
        "source": {"kind": "queries", "collection": "@pairs"},
        "objective": {"kind": "simclr", "similarity": "cosine", "distinct_documents": True},
        "max_length": LENGTH,
        "loop": {"minutes": minutes, "batch": BATCH, "chunk_tokens": "whole"},
        "optim": {"kind": "adamw", "lr": LR},
    }


def _retrieve(vectors: str) -> dict[str, Any]:
    found = {"kind": "retrieve", "collection": "@collection", "bm25": "@bm25", "dense": vectors}
    return {**found, "k": DEPTH, "fold": "max", "fusion": {"kind": "weighted"}}


def _evaluate(run: str, name: str) -> dict[str, Any]:
    return {
        "kind": "evaluate", "system": run, "collections": ["@collection"], "split": "test", "name": name
    }  # fmt: skip


def _compare(judged: dict[str, Any]) -> dict[str, Any]:
    names = [fields["name"] for fields in judged.values()]
    return {"kind": "compare", "runs": [f"@{name}" for name in judged], "names": names, "baseline": UNTRAINED}


def _errors() -> dict[str, Any]:
    runs = {"runs": ["@found/hybrid.trec", "@found-before/hybrid.trec"], "names": [HYBRID, UNTRAINED]}
    return {"kind": "analyse errors", "collection": "@collection", "split": "test", "examples": 30, **runs}


# The results of the demo: a table, and a sentence for each difference that was tested.

MEASURES = ("nDCG@10", "RR@10", "R@10")
FIRST = MEASURES[0]
FOUND = ("found", "found-before")

System = Literal["hybrid", "dense", "bm25"]


@dataclass(frozen=True)
class Choice:
    """What did best on the dev half: whose vectors, which system, and the weight of BM25 in it."""

    found: str
    system: System
    weight: float
    value: float

    def description(self) -> RetrieverDescription:
        """The demo's folder as a retriever."""
        trained = self.found == "found"
        return RetrieverDescription(
            generation=1,
            system=self.system,
            collection="collection",
            bm25="bm25",
            index="index" if trained else "vectors-before",
            model="model/model" if trained else None,
            weight=self.weight,
        )


def choose(out: Path) -> Choice:
    """The better of both encoders with BM25 beside it, by the questions that chose the weight; a tie is the trained."""
    tuned = {name: _read(out / name / "search.json")["tuned"] for name in FOUND}
    best = max(FOUND, key=lambda name: tuned[name]["value"])
    weight = tuned[best]["weight"]
    system: System = "dense" if weight == 0 else "bm25" if weight == 1 else "hybrid"
    return Choice(best, system, weight, tuned[best]["value"])


def lines(out: Path, choice: Choice) -> list[str]:
    """What training added, and the table behind it."""
    against, training = (_read(out / name / "compare.json") for name in ("against-untrained", "training"))
    counts = _read(out / "collection" / "summary.json")["counts"]
    dev = counts_of(out, "dev")
    head = (
        f"{against['queries']} questions that nothing was tuned on, {counts['documents']:,} documents in "
        f"{counts['passages']:,} passages"
    )
    return [
        gain(training),
        "",
        head,
        "",
        *table(against),
        "",
        f"Kept in retriever.json, by the other {dev} questions: {kept(choice)}.",
    ]


def gain(training: Mapping[str, Any]) -> str:
    """What training on the corpus adds to the untrained hybrid, as a sentence; it says so if that may be nothing."""
    pair = next(pair for pair in training["pairs"] if pair["measure"] == FIRST)
    compared = pair["comparison"]
    change = compared["difference"]
    verbs = "made no measurable difference to", "improved", "hurt"
    verb = verbs[direction(change["low"], change["high"])]
    return (
        f"Training on the corpus {verb} the {UNTRAINED}: {FIRST} {change['mean']:+.3f} "
        f"({change['low']:+.3f} to {change['high']:+.3f}), {compared['wins']} questions better and "
        f"{compared['losses']} worse."
    )


def table(against: Mapping[str, Any]) -> list[str]:
    """Means, and the difference of the first measure to the untrained hybrid, with their intervals."""
    rows = [["", FIRST, "95 %", *MEASURES[1:], f"to the {UNTRAINED}", "95 %"]]
    pairs = {pair["a"]: pair for pair in against["pairs"] if pair["measure"] == FIRST}
    for name in against["systems"]:
        of = {measure: against["seeds"][name][measure]["interval"] for measure in MEASURES}
        row = [name, f"{of[FIRST]['mean']:.3f}", f"{of[FIRST]['low']:.3f} to {of[FIRST]['high']:.3f}"]
        row += [f"{of[measure]['mean']:.3f}" for measure in MEASURES[1:]]
        change = pairs[name]["comparison"]["difference"] if name in pairs else None
        row += (
            [f"{change['mean']:+.3f}", f"{change['low']:+.3f} to {change['high']:+.3f}"]
            if change
            else ["baseline", ""]
        )
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def kept(choice: Choice) -> str:
    """The choice in words."""
    encoder = f"the {AFTER if choice.found == 'found' else BEFORE}"
    if choice.system == "bm25":
        return "BM25 alone"
    if choice.system == "dense":
        return f"{encoder} alone"
    return f"BM25 ({choice.weight:.2f}) and {encoder} ({1 - choice.weight:.2f}) together"


def counts_of(out: Path, split: str) -> int:
    """Questions of a split."""
    listed = (out / "collection" / "splits" / f"{split}.txt").read_text(encoding="utf-8")
    return len(listed.split())


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


Say = Callable[[str], None]


def run(
    table: Mapping[str, Stage],
    out: Path,
    say: Say,
    *,
    tell: Say = print,
    show: bool = False,
    source: str = "stdlib:",
    minutes: float = MINUTES,
) -> None:
    """Run the stages with a line for each, print the results, and write a retriever and a page."""
    from liebig.demo import STAGES as own
    from liebig.train.log import warnings_of

    began, stages = time.monotonic(), {**table, **{stage.name: stage for stage in own}}
    first = first_half(source, minutes)
    seconds = _seconds(pipeline.plan_stages(stages, first, out))
    with Whole(LINES, say, seconds, ["model"], one_bar=True) as whole:
        run_stages(whole, pipeline.plan_stages(stages, first, out))
        choice = choose(out)
        second = second_half()
        planned = pipeline.plan_stages(stages, {**first, **second}, out)
        run_stages(whole, planned[len(first) :])
    write(out, choice.description())
    page = out / "report" / "report.html"
    short = warnings_of(out / "model")
    for line in ["", *lines(out, choice), *short, *closing(out, page, time.monotonic() - began)]:
        tell(line)
    if show:
        webbrowser.open(page.resolve().as_uri())


def run_stages(whole: Whole, planned: Sequence[Planned]) -> None:
    """Run stages without what they print as commands."""
    with without_text(not is_verbose()):
        pipeline.run_within(whole, planned)


def _seconds(planned: Sequence[Planned]) -> Callable[[str], float | None]:
    """How long the stages up to the rankings take; those after them take seconds."""
    from liebig.planner import known_seconds

    by_name = {item.name: item for item in planned}
    short = {"found", "found-before"}
    return lambda name: known_seconds(by_name[name]) if name in by_name and name not in short else 0.0


def closing(out: Path, page: Path, seconds: float) -> list[str]:
    """Where things are, and the next three commands."""
    return [
        "",
        f"{duration(seconds)} in all. Questions won and lost, with their texts: {page}",
        "",
        "Next:",
        f'  liebig search {out} "merge two sorted lists"',
        f"  liebig serve {out}",
        "  liebig build YOUR_FOLDER --out runs/mine",
        "",
        encoders.ADVICE,
    ]


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
) -> None:
    """Build a search engine for your Python's documentation and evaluate it on 309 questions, in about five minutes.

    BM25, the bundled encoder before and after a minute of training on the corpus, and BM25 with each of them. It says
    what training adds to the untrained hybrid, and leaves a page and a folder for `liebig serve`. If interrupted, run
    it again to resume.

    Example:

        liebig demo --open
    """
    run(STAGES, out, announce, show=show)
