"""Encoders under analysis: their attention, and their vectors of queries and passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.analyse import space
from liebig.evaluate.model import ModelScorer
from liebig.evaluate.task import Task
from liebig.model.packed import Packed
from liebig.model.topk import topk
from liebig.records import Passage

DEEPER = 16


@torch.inference_mode()
def attentions(
    model: Path, texts: Sequence[str], max_length: int, device: str
) -> Iterator[NDArray[np.float32]]:
    """Attention probabilities of each text, layers × heads × tokens × tokens, a few texts at a time."""
    scorer = ModelScorer(model, device, depth=1)
    encoder = scorer.encoder
    encoder.max_length = min(encoder.max_length, max_length)
    for first in range(0, len(texts), DEEPER):
        packed = Packed.from_lists(encoder.tokenize(texts[first : first + DEEPER])).to(scorer.device)
        for attention in encoder.backbone.attentions(packed):
            yield attention.float().cpu().numpy()


def describe_space(
    model: Path, task: Task, passages: Sequence[Passage], k: int, device: str
) -> dict[str, float]:
    """The numbers of one encoder's space over some passages and, where there are any, the task's positive pairs."""
    scorer = ModelScorer(model, device, depth=k)
    vectors = scorer.embed(passages, "passage")
    queries, relevant = _positive_pairs(scorer, task)
    shares = space.spectrum(vectors)
    hubs = space.hubness(space.k_occurrence(_neighbours(vectors, k, scorer.device), len(vectors)))
    return ({"alignment": space.alignment(queries, relevant)} if len(queries) else {}) | {
        "uniformity": space.uniformity(vectors),
        "mean cosine": space.mean_cosine(vectors),
        "isotropy": space.isotropy(vectors),
        "participation ratio": space.participation_ratio(shares),
        "effective rank": space.effective_rank(shares),
        "hubness skewness": hubs.skewness,
        "share never found": hubs.never,
        "largest share of finds": hubs.largest,
    }


def _neighbours(vectors_ND: NDArray[np.float32], k: int, device: torch.device) -> NDArray[np.int64]:
    """The k nearest other vectors of each, by inner product."""
    _, found = topk(vectors_ND, vectors_ND, k + 1, device=device)
    others = found != np.arange(len(found))[:, None]
    others[others.all(axis=1), -1] = False
    return found[others].reshape(len(found), -1)


def _positive_pairs(scorer: ModelScorer, task: Task) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors of queries and of a relevant passage of each."""
    assert task.judgements is not None
    best = {name: _best(task.judgements.grades(name)) for name in task.queries}
    named = set(best.values())
    passages = {passage.id: passage for passage in task.passages() if passage.id in named}
    pairs = [(query, best[name]) for name, query in task.queries.items() if best[name] in passages]
    used = dict.fromkeys(name for _, name in pairs)
    vectors = dict(zip(used, scorer.embed([passages[name] for name in used], "passage")))
    asked = scorer.embed([query for query, _ in pairs], "query")
    return asked, np.stack([vectors[name] for _, name in pairs]) if pairs else asked


def _best(grades: dict[str, int]) -> str:
    return max((p for p, grade in grades.items() if grade > 0), key=lambda p: (grades[p], p), default="")
