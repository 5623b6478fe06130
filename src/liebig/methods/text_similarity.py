"""Similarity tasks: cosine regression on scored pairs, and the triplet loss on tuples of texts (Condenser 4.2, A.1).

Texts are of one kind, so there is one encoder and one prompt. Each example is judged alone, so a step is plain
accumulation over chunks. Evaluation is Spearman's correlation on pairs and accuracy on triplets. Cost: the encoder on
two or three texts per example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from liebig import losses
from liebig.base.errors import DataError
from liebig.collection import Collection
from liebig.formats.items import Where
from liebig.formats.on_disk import DiskSource
from liebig.formats.rows import text_lines
from liebig.losses.contrastive import Similarity
from liebig.measures.similarity import cosine, spearman, triplet_accuracy
from liebig.methods.dev_evaluation import too_small
from liebig.methods.finetune_base import FinetuneObjective, FinetuneRecipe, Run
from liebig.methods.labelled import draw
from liebig.methods.samplers import Sampler
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.loop import Epochs
from liebig.train.objective import Objective, Represented
from liebig.train.stage import MODEL, Data

Distance = Literal["euclidean", "cosine"]
SCORE = "score"
PAIR, TRIPLET = ("a", "b"), ("anchor", "positive", "negative")


@dataclass(frozen=True)
class TextTuples:
    """Examples of two or three texts each, side by side, and their scores where they have any."""

    sides: tuple[str, ...]
    texts: tuple[Ragged, ...]
    scores: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.texts[0])


@dataclass(frozen=True)
class TupleBatches:
    """This process's share of the batch of a step."""

    data: TextTuples
    sampler: Sampler
    world: World

    def __call__(self, step: int) -> Batch:
        numbers = self.sampler(step)
        first, last = self.world.share(len(numbers)) if self.world.size > 1 else (0, len(numbers))
        mine = numbers[first:last]
        own = torch.arange(len(mine))
        sides = {
            name: Side(Packed.from_ragged(texts.take(mine)), own)
            for name, texts in zip(self.data.sides, self.data.texts)
        }
        scores = self.data.scores
        return Batch(sides, len(mine), {} if scores is None else {SCORE: torch.from_numpy(scores[mine])})


class TextObjective(FinetuneObjective):
    """One encoder, and a loss of the vectors of each example's texts."""

    class Config(FinetuneObjective.Config):
        """What recipes for texts without roles have in common."""

        roles: ClassVar[bool] = False

        @property
        def alone(self) -> str:
            return self.kind

        def check(self, recipe: FinetuneRecipe) -> None:
            if recipe.untied:
                raise ValueError(f"{self.kind} compares texts of one kind: leave untied out")

    term: ClassVar[str]
    """The name of the loss in the log."""
    sides: ClassVar[tuple[str, ...]]

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    @abstractmethod
    def loss(self, vectors: Sequence[Tensor], chunk: Batch) -> Tensor:
        """The loss of a chunk, summed over its examples; vectors come side by side."""

    @abstractmethod
    def read(
        self, collection: Collection, split: str, layout: RoleLayout, limit: int | None, seed: int
    ) -> TextTuples:
        """The examples of a split, `limit` of them drawn by seed."""

    @abstractmethod
    def measure(self, vectors: Sequence[NDArray[np.float32]], dev: TextTuples) -> dict[str, float]:
        """How good the vectors of the dev examples are."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.term: batch.n}

    def represent(self, chunk: Batch) -> Represented:
        vectors = [self.encoder(chunk.sides[side].packed) for side in self.sides]
        return Represented(None, {self.term: self.loss(vectors, chunk)})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.encoder.backbone.compile(*args, **kwargs)

    @property
    def encoders(self) -> Mapping[str, Encoder]:
        return {MODEL: self.encoder}

    def data(self, run: Run) -> Data:
        config = run.config
        layout = self.encoder.layout_for(None)
        data = self.read(Collection(config.collection), config.split, layout, config.limit, config.limit_seed)
        run.say(f"{len(data):,} examples")
        sampler = config.batching.sampler(len(data), config.loop, run.world, None)
        batches, epochs = TupleBatches(data, sampler, run.world), Epochs(sampler.steps, sampler.begin)
        if config.evaluation.split is None:
            return Data(batches, epochs)
        collection = Collection(config.evaluation.collection or config.collection)
        dev = self.read(collection, config.evaluation.split, layout, None, config.limit_seed)
        if (warning := too_small(len(dev))) is not None:
            run.say(warning)

        def evaluate(objective: Objective) -> dict[str, float]:
            return self.measure([self.encoder.encode_rows(texts) for texts in dev.texts], dev)

        return Data(batches, epochs, evaluate)


class CosineRegression(TextObjective):
    """(cosine − score)² on scored pairs."""

    class Config(TextObjective.Config):
        """(cosine − score)² on scored pairs (STS; Condenser 4.2)."""

        kind: Literal["cosine"] = Field(
            default="cosine", description="Regression of the cosine on scored pairs"
        )
        scale: float = Field(default=5.0, gt=0, description="Scores are divided by this; 5 for STS-b")

        def compared_by(self) -> Similarity:
            return "cosine"

    term, sides = "cosine_mse", PAIR

    def __init__(self, encoder: Encoder, scale: float) -> None:
        super().__init__(encoder)
        self.scale = scale

    @classmethod
    def build(cls, config: Config, query: Encoder, passage: Encoder | None) -> Self:
        return cls(query, config.scale)

    def loss(self, vectors: Sequence[Tensor], chunk: Batch) -> Tensor:
        return losses.cosine_mse(vectors[0], vectors[1], chunk.extras[SCORE], total=1)

    def read(
        self, collection: Collection, split: str, layout: RoleLayout, limit: int | None, seed: int
    ) -> TextTuples:
        pairs = list(collection.pairs(split))
        check_texts(collection, "pairs", split, [(pair.a, pair.b) for pair in pairs])
        kept = [pairs[i] for i in draw(len(pairs), limit, seed)]
        texts = (layout.all_ids(p.a for p in kept), layout.all_ids(p.b for p in kept))
        return TextTuples(PAIR, texts, np.array([p.score / self.scale for p in kept], np.float32))

    def measure(self, vectors: Sequence[NDArray[np.float32]], dev: TextTuples) -> dict[str, float]:
        assert dev.scores is not None, "pairs have scores"
        return {"Spearman": spearman(cosine(vectors[0], vectors[1]), dev.scores)}


class TripletMargin(TextObjective):
    """max(0, distance to the positive − distance to the negative + margin)."""

    class Config(TextObjective.Config):
        """Triplet loss on tuples of texts (section distinction; Condenser 4.2)."""

        kind: Literal["triplet"] = Field(
            default="triplet", description="Triplet loss: nearer to the positive than to the negative"
        )
        margin: float = Field(default=5.0, gt=0, description="Margin of the triplet loss")
        distance: Distance = Field(default="euclidean", description="Distance between vectors")

        def compared_by(self) -> Similarity:
            return "cosine" if self.distance == "cosine" else "dot"

    term, sides = "triplet", TRIPLET

    def __init__(self, encoder: Encoder, margin: float, distance: Distance) -> None:
        super().__init__(encoder)
        self.margin, self.distance = margin, distance

    @classmethod
    def build(cls, config: Config, query: Encoder, passage: Encoder | None) -> Self:
        return cls(query, config.margin, config.distance)

    def loss(self, vectors: Sequence[Tensor], chunk: Batch) -> Tensor:
        return losses.triplet(*vectors, margin=self.margin, distance=self.distance, total=1)

    def read(
        self, collection: Collection, split: str, layout: RoleLayout, limit: int | None, seed: int
    ) -> TextTuples:
        """One triplet for each negative of a tuple."""
        tuples = list(collection.tuples(split))
        check_texts(collection, "tuples", split, [(t.anchor, t.positive, *t.negatives) for t in tuples])
        rows = [(t.anchor, t.positive, negative) for t in tuples for negative in t.negatives]
        if not rows:
            raise DataError("no tuple has a negative", file=collection.path / "tuples" / f"{split}.jsonl")
        kept = [rows[i] for i in draw(len(rows), limit, seed)]
        return TextTuples(TRIPLET, tuple(layout.all_ids(row[i] for row in kept) for i in range(3)), None)

    def measure(self, vectors: Sequence[NDArray[np.float32]], dev: TextTuples) -> dict[str, float]:
        anchor, positive, negative = vectors
        near = triplet_accuracy(self._far(anchor, positive), self._far(anchor, negative))
        return {"Accuracy": float(near.mean())}

    def _far(self, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
        if self.distance == "cosine":
            return 1 - cosine(a, b)
        return np.linalg.norm(a.astype(np.float64) - b, axis=1)


def check_texts(collection: Collection, kind: str, split: str, texts: Sequence[Sequence[str]]) -> None:
    """Refuse a split without examples, and an example with an empty text."""
    path = collection.path / kind / f"{split}.jsonl"
    if not texts:
        raise DataError(f"the split {split!r} has no {kind}", file=collection.path)
    bad = next((i for i, row in enumerate(texts) if not all(text.strip() for text in row)), None)
    if bad is not None:
        line, _ = next(islice(text_lines(DiskSource(path)), bad, None))
        Where(str(path), line).refuse("a text is empty", "remove the line")
