"""The demo as a recipe of pipeline stages: each is skipped when it is up to date and resumed when it was interrupted.

The corpus is encoded twice, once by the encoder before training and once after it was trained on the corpus; everything
else takes seconds. Objective, learning rate and batch were chosen on the questions of the dev half; docs/demo.md says
what was tried and did not help.
"""

from __future__ import annotations

from typing import Any

from liebig import encoders
from liebig.base.pipeline import Stage
from liebig.demo.corpus import DemoConfig, write_collection, write_pairs

ENCODER = encoders.PREFIX + encoders.DEFAULT
MINUTES = 1.0
LENGTH = 64  # tokens of a passage
DEPTH = 100  # documents found for a question
BATCH = 64  # pairs that meet
LR = 1e-4  # for an encoder that is a retriever already; a start by masked words alone wants ten times as much
BM25, BEFORE, AFTER = "BM25", "encoder before training", "encoder after training"
UNTRAINED, HYBRID = "hybrid before training", "hybrid after training"

OWN = {
    stage.name: stage
    for stage in (
        Stage("demo collection", DemoConfig, write_collection, part_of="demo"),
        Stage("demo pairs", DemoConfig, write_pairs, part_of="demo"),
    )
}
LINES = {
    "documents": "read the documentation of your Python",
    "collection": f"cut it into passages of {LENGTH} tokens, with 300 judged questions",
    "pairs": "pair every name, in words, with its text",
    "bm25": "index the words (BM25)",
    "vectors-before": "encode all passages with the bundled encoder",
    "model": "train the encoder on the corpus, without labels",
    "vectors": "encode all passages again",
    "index": "index the vectors",
    "found-before": "ask all questions: BM25, the encoder, both",
    "found": "ask all questions: BM25, the trained encoder, both",
    "judged-bm25": "judge BM25",
    "judged-before": "judge the encoder before training",
    "judged-after": "judge the trained encoder",
    "judged-untrained": "judge BM25 and the encoder before training together",
    "judged-hybrid": "judge BM25 and the trained encoder together",
    "against-bm25": "test the differences to BM25",
    "training": "test what training changed",
    "errors": "find the questions that one of both answers better",
    "report": "write the page",
}
ABOUT = (
    "The documentation of a Python standard library, searched by words (BM25), by vectors of the encoder that comes "
    "with Liebig, by the same encoder after a minute of training on the documentation itself, and by words and vectors "
    "together. Evaluated on questions that nothing was tuned on."
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


def second_half(chosen: str) -> dict[str, Any]:
    """Evaluation on the test half; errors are those of the hybrid in the `found` folder chosen on the dev half.

    What training is worth is the difference of the two hybrids: anybody can put the untrained one together.
    """
    judged = {
        "judged-bm25": _evaluate(f"@{chosen}/bm25.trec", BM25),
        "judged-before": _evaluate("@found-before/dense.trec", BEFORE),
        "judged-after": _evaluate("@found/dense.trec", AFTER),
        "judged-untrained": _evaluate("@found-before/hybrid.trec", UNTRAINED),
        "judged-hybrid": _evaluate("@found/hybrid.trec", HYBRID),
    }
    hybrids = {name: judged[name] for name in ("judged-untrained", "judged-hybrid")}
    compared = {"against-bm25": _compare(judged, BM25), "training": _compare(hybrids, UNTRAINED)}
    compared["errors"] = _errors(f"@{chosen}/hybrid.trec", f"@{chosen}/bm25.trec")
    shown = [f"@{name}" for name in (*first_half(), *judged, *compared)]
    page = {"folders": shown, "title": "Liebig: the demo", "about": ABOUT}
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


def _compare(judged: dict[str, Any], baseline: str) -> dict[str, Any]:
    names = [fields["name"] for fields in judged.values()]
    return {"kind": "compare", "runs": [f"@{name}" for name in judged], "names": names, "baseline": baseline}


def _errors(hybrid: str, bm25: str) -> dict[str, Any]:
    runs = {"runs": [hybrid, bm25], "names": [HYBRID, BM25]}
    return {"kind": "analyse errors", "collection": "@collection", "split": "test", "examples": 30, **runs}
