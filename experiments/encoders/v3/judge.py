"""Evaluation sets, nDCG@10 of vectors alone and with BM25, and the STS benchmark."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from texts import PASSAGE, QUERY, joined

DEV = ("medquad", "scifact", "cranfield", "squad", "cosqa")
TEST = (*DEV, "vaswani", "trec-dl21", "semeval-cqa")


@dataclass
class Split:
    """The questions of a split of a set."""

    queries: list[str]
    grades: list[dict[int, int]]
    bm25: list[tuple[Any, Any]]  # numbers and scores


@dataclass
class Set:
    """An evaluation set."""

    name: str
    passages: list[str]
    splits: dict[str, Split]


def read_set(home: Path, name: str, only: str, few: int = 0) -> Set:
    with lzma.open(io.BytesIO(joined(home, f"sets/{name}.jsonl.xz")), "rt", encoding="utf-8") as file:
        passages, *splits = map(json.loads, file)
    found = {}
    for one in splits:
        if one["split"] == only:
            count = few or len(one["queries"])
            found[only] = Split(
                one["queries"][:count],
                [{int(n): g for n, g in row} for row in one["grades"][:count]],
                [
                    (np.array([n for n, _ in row], np.int64), np.array([s for _, s in row]))
                    for row in one["bm25"][:count]
                ],
            )
    return Set(name, passages[: few * 2] if few else passages, found)


def minmax(scores: Any) -> Any:
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.ones(len(scores))


def fused(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """Numbers of the hybrid, best first: halves of min-max scores; what a list has not gets 0."""
    numbers = list(dict.fromkeys([*one[0].tolist(), *other[0].tolist()]))
    total = dict.fromkeys(numbers, 0.0)
    for found, scores in (one, other):
        if len(found):
            for number, score in zip(found.tolist(), minmax(np.asarray(scores, np.float64)).tolist()):
                total[number] += 0.5 * score
    return sorted(numbers, key=lambda number: -total[number])


def ndcg(ranked: Sequence[int], grades: dict[int, int], depth: int = 10) -> float:
    gains = [grades.get(int(number), 0) for number in ranked[:depth]]
    best = sorted(grades.values(), reverse=True)[:depth]
    ideal = sum(gain / np.log2(rank + 2) for rank, gain in enumerate(best))
    return sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)) / ideal if ideal else 0.0


def judged(one: Set, split: str, queries: Any, passages: Any) -> tuple[float, float]:
    """nDCG@10 of unit vectors, alone and fused with BM25."""
    asked = one.splits[split]
    dense, hybrid = [], []
    torch.set_float32_matmul_precision("highest")
    depth = min(100, len(passages))
    for begin in range(0, len(queries), 1024):
        scores, numbers = (queries[begin : begin + 1024].float() @ passages.float().T).topk(depth)
        scores, numbers = scores.cpu().numpy(), numbers.cpu().numpy()
        for row in range(len(scores)):
            place = begin + row
            grades = asked.grades[place]
            dense.append(ndcg(numbers[row], grades))
            hybrid.append(ndcg(fused(asked.bm25[place], (numbers[row], scores[row])), grades))
    torch.set_float32_matmul_precision("high")
    return float(np.mean(dense)), float(np.mean(hybrid))


Encode = Callable[[Sequence[str], int], Any]  # texts and role -> unit vectors


def unit(x: Any) -> Any:
    return F.normalize(x.float(), dim=1)


def evaluate_encoder(encode: Encode, sets: Sequence[Set], split: str) -> dict[str, tuple[float, float]]:
    return {
        one.name: judged(one, split, encode(one.splits[split].queries, QUERY), encode(one.passages, PASSAGE))
        for one in sets
    }


def spearman(one: Any, other: Any) -> float:
    def ranks(values: Any) -> Any:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return (ends - (counts - 1) / 2)[places]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def sts_rows(home: Path, split: str, few: int = 0) -> tuple[list[str], list[str], Any]:
    """Both sentences of each pair, and people's scores."""
    with lzma.open(io.BytesIO(joined(home, f"sets/stsb-{split}.csv.xz")), "rt", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) == 3][: few or None]
    return [row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])


def sts(rows: tuple[list[str], list[str], Any], encode: Encode) -> float:
    first, second, scores = rows
    return spearman((encode(first, PASSAGE) * encode(second, PASSAGE)).sum(1).cpu().numpy(), scores)


def table(
    rows: dict[str, dict[str, tuple[float, float]]], sets: Sequence[str], more: dict[str, str] | None = None
) -> str:
    lines = [
        "| nDCG@10: dense / hybrid | " + " | ".join([*sets, "mean"]) + " |" + (" stsb |" if more else "")
    ]
    lines.append("| --- |" + " --- |" * (len(sets) + 1 + bool(more)))
    for name, values in rows.items():
        mean = np.mean([values[one] for one in sets], axis=0)
        cells = [f"{values[one][0]:.3f} / {values[one][1]:.3f}" for one in sets]
        lines.append(
            f"| {name} | "
            + " | ".join([*cells, f"**{mean[0]:.4f} / {mean[1]:.4f}**"])
            + " |"
            + (f" {more[name]} |" if more else "")
        )
    return "\n".join(lines)
