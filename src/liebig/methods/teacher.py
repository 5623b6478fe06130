"""A teacher's vectors, learnt: the student's vector of a text comes near the teacher's, and texts relate alike.

The student's pooled states go through a projection to the teacher's width and are scaled to length 1. The first
term is the squared distance to the teacher's vector, text by text. The second, where it has a weight, holds the
similarities of all texts of the batch to each other against the teacher's. Cost: the encoder on every token; for
the second term one more pass without gradient when the batch is cut into chunks, and the matrix of similarities.

n texts of a batch, D width of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.base.errors import DataError, RecipeError
from liebig.methods.held_out import Part
from liebig.model.backbone import Backbone
from liebig.model.encoder import Dense, pool
from liebig.store.pair_sources import Frame, Row, Source, example_keys, packed
from liebig.store.store import TokenStore
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented
from liebig.vectors.vector_folder import Shard, Vectors, starts

TEACHER = "teacher"


class TaughtVectors(Objective):
    """Distance to the teacher's vectors, and KL of the texts' similarities where `similarity_weight` is not 0."""

    def __init__(
        self,
        backbone: Backbone,
        dense: Dense | None,
        *,
        pooling: str = "mean",
        similarity_weight: float = 0.0,
        temperature: float = 0.05,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.dense = dense
        self.pooling = pooling
        self.temperature = temperature
        self.weights = {"distance": 1.0, "cosine": 0.0, "contrast": similarity_weight}

    @property
    def contrastive(self) -> bool:
        """Texts meet only in the second term."""
        return self.weights["contrast"] > 0

    def counts(self, batch: Batch) -> dict[str, int]:
        texts = len(batch.sides["text"].packed)
        return {"distance": texts, "cosine": texts}

    def represent(self, chunk: Batch) -> Represented:
        vectors_nD = self.vectors(chunk)
        cosine_n = (vectors_nD * taught(chunk, vectors_nD)).sum(dim=1)
        return Represented(vectors_nD, {"distance": (2 - 2 * cosine_n).sum(), "cosine": cosine_n.sum()})

    def vectors(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["text"].packed
        x_nD = pool(self.backbone(packed).last, packed, self.pooling)
        with torch.autocast(x_nD.device.type, enabled=False):
            return normalize(x_nD if self.dense is None else self.dense(x_nD), dim=1)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        teacher = taught(batch, vectors)
        everyone, teachers = world.gather(vectors), world.gather(teacher).rows
        places = torch.arange(everyone.start, everyone.start + len(vectors))
        loss = losses.kl_similarities(
            vectors, everyone.rows, teacher, teachers, places, temperature=self.temperature
        )
        with torch.no_grad():
            found = losses.info_nce(vectors.detach(), teachers, places, total=len(teachers))
        return Contrast(loss, {"partner_accuracy": found.accuracy})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """The projection is one product on a row a text: the backbone is all there is to compile."""
        self.backbone.compile(*args, **kwargs)


def taught(batch: Batch, like: Tensor) -> Tensor:
    """The teacher's vectors of a batch, of length 1."""
    return normalize(batch.extras[TEACHER].to(like.dtype).flatten(0, -2), dim=1)


# Texts with a teacher's vectors: every document of a store is a text, and a vector of the same id belongs
# to it.
#
# The vectors are those `liebig encode` wrote for the collection the store was made from; store and vectors
# must name the same ids in the same order. An example is one text or a few neighbouring ones, which are
# often related. Both folders are mapped, so a text costs its tokens and one read of its vector.

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Taught:
    """The teacher's vectors, shard after shard."""

    shards: tuple[Shard, ...]
    firsts: Ints  # number of each shard's first vector, and one past the last
    width: int

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> Taught:
        """Map a folder of vectors."""
        found = Vectors.open(path, hashes=hashes)
        if found.type == "binary" or any(len(shard.deleted) for shard in found.shards):
            raise DataError(
                "a student learns from whole vectors", file=path, fix="encode again, with type = fp16"
            )
        return cls(found.shards, np.array(starts(found.shards), np.int64), found.width)

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def rows(self, numbers: Ints) -> Floats:
        """The vectors of these numbers, in their order."""
        out = np.empty((len(numbers), self.width), np.float32)
        shard = np.searchsorted(self.firsts, numbers, side="right") - 1
        for one in np.unique(shard).tolist():
            here = shard == one
            out[here] = self.shards[one].vectors[numbers[here] - self.firsts[one]].decode()
        return out

    def check(self, store: TokenStore) -> None:
        """The ids of the vectors are those of the store."""
        offsets, values = store.ids.offsets, store.ids.values
        same = len(self) == len(store)
        for shard, first in zip(self.shards if same else (), self.firsts.tolist()):
            own = shard.ids.strings
            mine = offsets[first : first + len(shard) + 1]
            same &= np.array_equal(np.diff(mine), np.diff(own.offsets))
            same = same and np.array_equal(values[mine[0] : mine[-1]], own.values)
        if not same:
            raise DataError(
                f"the teacher's vectors are not those of the texts in {store.path}",
                file=self.shards[0].path.parents[1] if self.shards and self.shards[0].path else None,
                fix="encode the collection that the store was prepared from",
            )


@dataclass(frozen=True)
class TextSource:
    """`group` sequences an example: the first `limit` tokens of each of so many neighbouring texts."""

    texts: TokenStore
    taught: Taught
    limit: int
    group: int = 1

    def __len__(self) -> int:
        return len(self.texts) // self.group

    def numbers(self, examples: Ints) -> Ints:
        """The texts of each example, n x group."""
        return examples[:, None] * self.group + np.arange(self.group)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the texts of each example, the same in every epoch."""
        begins, ends = self.texts.token_ranges(self.numbers(examples).reshape(-1))
        spans = np.stack((begins, np.minimum(ends, begins + self.limit)), axis=1)[:, None]
        owner = np.repeat(np.arange(len(examples)), self.group)
        keys = example_keys(examples, epoch, seed)
        return packed(self.texts.tokens, spans, Frame.of(self.texts.tokenizer), owner, keys)

    def vectors(self, examples: Ints) -> Floats:
        """The teacher's vectors of each example's texts, n x group x D."""
        numbers = self.numbers(examples)
        return self.taught.rows(numbers.reshape(-1)).reshape(*numbers.shape, -1)


def vectors_of(source: Source, examples: Ints) -> Floats:
    """The teacher's vectors of these examples' texts, of a source or a part of one; n x group x D."""
    if isinstance(source, Part):
        return vectors_of(source.source, source.examples(examples))
    if isinstance(source, TextSource):
        return source.vectors(examples)
    raise RecipeError("this source has no teacher's vectors", fix="use source.kind = 'texts'")
