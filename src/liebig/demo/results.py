"""The results of the demo: a table, and a sentence for each difference that was tested."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from liebig.demo.recipe import AFTER, BEFORE, HYBRID, UNTRAINED
from liebig.search.retriever_folder import RetrieverDescription

MEASURES = ("nDCG@10", "RR@10", "R@10")
FIRST = MEASURES[0]
ALPHA = 0.05
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
    """The table and what it says."""
    against, training = (_read(out / name / "compare.json") for name in ("against-bm25", "training"))
    counts = _read(out / "collection" / "summary.json")["counts"]
    dev = counts_of(out, "dev")
    head = (
        f"{against['queries']} questions that nothing was tuned on, {counts['documents']:,} documents in "
        f"{counts['passages']:,} passages"
    )
    return [
        head,
        "",
        *table(against),
        "",
        *(f"- {sentence}" for sentence in sentences(against, training)),
        "",
        f"Kept in retriever.json, by the other {dev} questions: {kept(choice)}.",
    ]


def table(against: Mapping[str, Any]) -> list[str]:
    """Means, the interval of the first measure, and the difference to BM25."""
    rows = [["", FIRST, "95 %", *MEASURES[1:], "to BM25", "p (Holm)"]]
    pairs = {pair["a"]: pair for pair in against["pairs"] if pair["measure"] == FIRST}
    for name in against["systems"]:
        of = {measure: against["seeds"][name][measure]["interval"] for measure in MEASURES}
        row = [name, f"{of[FIRST]['mean']:.3f}", f"{of[FIRST]['low']:.3f} to {of[FIRST]['high']:.3f}"]
        row += [f"{of[measure]['mean']:.3f}" for measure in MEASURES[1:]]
        pair = pairs.get(name)
        row += (
            [f"{pair['comparison']['difference']['mean']:+.3f}", _p(pair["adjusted"])] if pair else ["", ""]
        )
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]


def sentences(against: Mapping[str, Any], training: Mapping[str, Any]) -> list[str]:
    """A sentence for each difference that was tested."""
    pairs = {pair["a"]: pair for pair in against["pairs"] if pair["measure"] == FIRST}
    change = next(pair for pair in training["pairs"] if pair["measure"] == FIRST)
    subjects = {
        BEFORE: "The encoder before training",
        AFTER: "The encoder after training",
        UNTRAINED: "The hybrid before training",
        HYBRID: "The hybrid after training",
    }
    verbs = "helped the hybrid", "hurt the hybrid", "made no measurable difference to the hybrid"
    told = [_sentence(change, "Training on the corpus", *verbs)]
    for name, who in subjects.items():
        told.append(
            _sentence(
                pairs[name], who, "beats BM25", "loses to BM25", "is not measurably different from BM25"
            )
        )
    return told


def _sentence(pair: Mapping[str, Any], who: str, better: str, worse: str, same: str) -> str:
    """A tested difference in words, with its numbers."""
    compared = pair["comparison"]
    mean = compared["difference"]["mean"]
    verb = same if pair["adjusted"] > ALPHA else better if mean > 0 else worse
    return f"{who} {verb}: {mean:+.3f} {FIRST}, {compared['wins']} questions better and {compared['losses']} worse."


def kept(choice: Choice) -> str:
    """The choice in words."""
    encoder = "the trained encoder" if choice.found == "found" else "the encoder before training"
    if choice.system == "bm25":
        return "BM25 alone"
    if choice.system == "dense":
        return f"{encoder} alone"
    return f"BM25 ({choice.weight:.2f}) and {encoder} ({1 - choice.weight:.2f}) together"


def counts_of(out: Path, split: str) -> int:
    """Questions of a split."""
    listed = (out / "collection" / "splits" / f"{split}.txt").read_text(encoding="utf-8")
    return len(listed.split())


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
