"""Similarity tasks: cosine regression on scored pairs, and the triplet loss on tuples of texts (Condenser 4.2, A.1).

Each example is judged alone, so a step is plain accumulation over chunks. Evaluation is Spearman's correlation on
pairs and accuracy on triplets. Cost: the encoder on two or three texts an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig import losses
from liebig.base import rng
from liebig.base.errors import DataError
from liebig.collection.collection import Collection
from liebig.formats.inputs import DiskSource
from liebig.formats.items import Where
from liebig.formats.rows import text_lines
from liebig.measures.similarity import cosine, spearman, triplet_accuracy
from liebig.methods.labelled import Sampler, Texts
from liebig.model.encoder import Encoder
from liebig.text.layout import RoleLayout
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective, Represented

Distance = Literal["euclidean", "cosine"]
SCORE = "score"
PAIR, TRIPLET = ("a", "b"), ("anchor", "positive", "negative")


class Similarity(Objective):
    """One encoder and a loss of the vectors of an example's texts."""

    def __init__(
        self,
        encoder: Encoder,
        name: str,
        sides: Sequence[str],
        loss: Callable[[Sequence[Tensor], Batch], Tensor],
    ) -> None:
        super().__init__()
        self.encoder, self.name, self.sides, self.loss = encoder, name, tuple(sides), loss

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: batch.n}

    def represent(self, chunk: Batch) -> Represented:
        vectors = [self.encoder(chunk.sides[side].packed) for side in self.sides]
        return Represented(None, {self.name: self.loss(vectors, chunk)})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.encoder.backbone.compile(*args, **kwargs)


def cosine_regression(encoder: Encoder) -> Similarity:
    """(cosine − score)², summed over a chunk."""

    def loss(vectors: Sequence[Tensor], chunk: Batch) -> Tensor:
        return losses.cosine_mse(vectors[0], vectors[1], chunk.extras[SCORE], total=1)

    return Similarity(encoder, "cosine_mse", PAIR, loss)


def triplets(encoder: Encoder, margin: float = 5.0, distance: Distance = "euclidean") -> Similarity:
    """max(0, distance to the positive − distance to the negative + margin), summed over a chunk."""

    def loss(vectors: Sequence[Tensor], chunk: Batch) -> Tensor:
        return losses.triplet(*vectors, margin=margin, distance=distance, total=1)

    return Similarity(encoder, "triplet", TRIPLET, loss)


@dataclass(frozen=True)
class Texted:
    """Examples of two or three texts each, side by side, and their scores where they have any."""

    sides: tuple[str, ...]
    texts: tuple[Texts, ...]
    scores: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.texts[0])


def read_pairs(
    collection: Collection, split: str, layout: RoleLayout, scale: float, limit: int | None, seed: int
) -> Texted:
    """The scored pairs of a split, scores divided by `scale`."""
    found = list(collection.pairs(split))
    _refuse_empty(collection, "pairs", split, [(pair.a, pair.b) for pair in found])
    kept = [found[i] for i in chosen(len(found), limit, seed)]
    texts = (Texts.of((p.a for p in kept), layout), Texts.of((p.b for p in kept), layout))
    return Texted(PAIR, texts, np.array([p.score / scale for p in kept], np.float32))


def read_triplets(
    collection: Collection, split: str, layout: RoleLayout, limit: int | None, seed: int
) -> Texted:
    """The tuples of a split, one triplet for each negative."""
    found = list(collection.tuples(split))
    _refuse_empty(collection, "tuples", split, [(t.anchor, t.positive, *t.negatives) for t in found])
    rows = [(t.anchor, t.positive, negative) for t in found for negative in t.negatives]
    if not rows:
        raise DataError("no tuple has a negative", file=collection.path / "tuples" / f"{split}.jsonl")
    kept = [rows[i] for i in chosen(len(rows), limit, seed)]
    return Texted(TRIPLET, tuple(Texts.of((row[i] for row in kept), layout) for i in range(3)), None)


def chosen(n: int, limit: int | None, seed: int) -> list[int]:
    """Numbers of the examples kept; a smaller draw lies in a larger one."""
    order = np.argsort(rng.uniform(rng.key(seed, 7), np.arange(n)), kind="stable")
    return list(range(n)) if limit is None else sorted(order[:limit].tolist())


def _refuse_empty(collection: Collection, kind: str, split: str, texts: Sequence[Sequence[str]]) -> None:
    path = collection.path / kind / f"{split}.jsonl"
    if not texts:
        raise DataError(f"the split {split!r} has no {kind}", file=collection.path)
    bad = next((i for i, row in enumerate(texts) if not all(text.strip() for text in row)), None)
    if bad is not None:
        line, _ = next(islice(text_lines(DiskSource(path)), bad, None))
        Where(str(path), line).refuse("a text is empty", "remove the line")


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step."""

    data: Texted
    sampler: Sampler
    world: World

    def __call__(self, step: int) -> Batch:
        numbers = self.sampler(step)
        first, last = self.world.share(len(numbers)) if self.world.size > 1 else (0, len(numbers))
        mine = numbers[first:last]
        own = torch.arange(len(mine))
        sides = {name: Side(texts.packed(mine), own) for name, texts in zip(self.data.sides, self.data.texts)}
        scores = self.data.scores
        return Batch(sides, len(mine), {} if scores is None else {SCORE: torch.from_numpy(scores[mine])})


def evaluator(data: Texted, distance: Distance = "cosine") -> Callable[[Objective], dict[str, float]]:
    """Spearman's correlation of cosines on pairs, accuracy on triplets."""

    def evaluate(objective: Objective) -> dict[str, float]:
        assert isinstance(objective, Similarity), "texts are compared by one encoder"
        vectors = [objective.encoder.encode_rows(t.rows()) for t in data.texts]
        if data.scores is not None:
            return {"Spearman": spearman(cosine(vectors[0], vectors[1]), data.scores)}
        far = _euclidean if distance == "euclidean" else _cosine_distance
        near = triplet_accuracy(far(vectors[0], vectors[1]), far(vectors[0], vectors[2]))
        return {"Accuracy": float(near.mean())}

    return evaluate


def _euclidean(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.linalg.norm(a.astype(np.float64) - b, axis=1)


def _cosine_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    return 1 - cosine(a, b)
