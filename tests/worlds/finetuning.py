"""A small collection, tokenizer and model, and examples by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from liebig.methods.labelled import Examples
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.text.tokenizer import Tokenizer

WORDS = [
    "stone",
    "river",
    "bread",
    "cloud",
    "lamp",
    "garden",
    "winter",
    "copper",
    "letter",
    "engine",
    "forest",
    "mirror",
    "salt",
    "wheel",
    "tower",
]
VOCAB = 61


def passage_text(i: int) -> str:
    return " ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(9)) + f" number {i}"


def write_collection(folder: Path, queries: int = 24, negatives: int = 4, scores: bool = False) -> Path:
    """Passage i answers query i; negatives are the passages after it."""
    (folder / "groups").mkdir(parents=True)
    (folder / "judgements").mkdir()
    rows = [
        {"id": f"p{i}", "title": f"Title {i}", "text": passage_text(i)} for i in range(queries + negatives)
    ]
    _lines(folder / "passages.jsonl", rows)
    asked = [{"id": f"q{i}", "text": " ".join(passage_text(i).split()[:4]) + f" {i}"} for i in range(queries)]
    _lines(folder / "queries.jsonl", asked)
    groups = [
        {
            "query": f"q{i}",
            "positives": [f"p{i}"],
            "negatives": [f"p{i + j}" for j in range(1, negatives + 1)],
        }
        | (
            {"positive_scores": [5.0], "negative_scores": [float(-j) for j in range(negatives)]}
            if scores
            else {}
        )
        for i in range(queries)
    ]
    _lines(folder / "groups" / "train.jsonl", groups)
    _lines(folder / "groups" / "dev.jsonl", groups[:8])
    for split, n in (("train", queries), ("dev", 8)):
        text = "".join(f"q{i}\tp{i}\t1\n" for i in range(n))
        (folder / "judgements" / f"{split}.tsv").write_text(text)
    return folder


def _lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_model(folder: Path) -> Path:
    """A model folder of one layer: what is tested of training is the same with any number."""
    tokenizer = Tokenizer.train([passage_text(i) for i in range(40)], "wordpiece", 300, True)
    backbone = Backbone.create(1, 32, 2, tokenizer.vocab_size, max_positions=64, dropout=0.0, seed=3)
    Encoder(backbone, tokenizer).save(folder)
    return folder


def double_encoder(pooling: str = "cls", seed: int = 0) -> Encoder:
    """A random model in float64 without dropout; the tokenizer is never asked."""
    backbone = Backbone.create(
        2, 16, 2, VOCAB, intermediate=24, max_positions=40, dropout=0.0, initializer_range=0.2, seed=seed
    )
    encoder = Encoder.__new__(Encoder)
    torch.nn.Module.__init__(encoder)
    encoder.backbone, encoder.pooling, encoder.tail = backbone.double().eval(), pooling, torch.nn.ModuleList()
    return encoder


def random_texts(n: int, seed: int = 0) -> Ragged:
    random = np.random.default_rng(seed)
    rows = [[2, *random.integers(5, VOCAB, length).tolist(), 3] for length in random.integers(3, 9, n)]
    return Ragged.from_lists(rows, np.int32)


def examples(
    positives: list[list[int]],
    negatives: list[list[int]],
    passages: int,
    *,
    relevant: list[list[int]] | None = None,
    content: list[int] | None = None,
    scores: list[float] | None = None,
) -> Examples:
    known = np.array(content if content is not None else range(passages), np.int64)
    told = relevant or positives
    return Examples(
        tuple(f"q{i}" for i in range(len(positives))),
        tuple(f"p{i}" for i in range(passages)),
        Ragged.from_lists(positives),
        Ragged.from_lists(negatives),
        Ragged.from_lists([sorted({int(known[p]) for p in row}) for row in told]),
        known,
        None if scores is None else np.array(scores, np.float32),
    )
