"""Teachers' vectors, learnt: the student's vector of a text comes near the teachers', and texts relate alike.

Several teachers' vectors, each of length 1 and scaled by the root of its weight, stand side by side: the cosine of two
such rows is the weighted mean of the teachers' cosines. The student's pooled states go through a projection to their
width and are scaled to length 1. The first
term is the squared distance to the teacher's vector, text by text. The second, where it has a weight, holds the
similarities of all texts of the batch to each other against the teacher's. The third, where it has a weight, is the
teacher's ranking: each text's similarities to the teacher's vectors of many passages, which only a student in the
teacher's space can learn. With `space = first` the student's vectors lie in the first teacher's space alone: the
first term is about its vectors, and the others take part in the similarities and rankings to learn. So questions can
search an index of one teacher's vectors, and order them as several teachers together do. Cost: the encoder on every
token; for the second term one more pass without gradient when the batch is cut into chunks, and the matrix of
similarities; for the third one matrix product for the student and one for the teachers.
Recipe: `recipes/smoke/vectors.toml`. Tests: `tests/methods/test_teacher.py`, `test_teacher_run.py`.

n texts of a batch, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.base.config import InputPath, one_or_several
from liebig.base.errors import DataError, RecipeError
from liebig.methods.base import (
    TEACHER,
    Method,
    MethodStart,
    Pooling,
    PretrainRecipe,
    Saved,
    Shape,
    SingleSource,
)
from liebig.methods.shapes import plain_text
from liebig.methods.sources.token_rows import ExampleSource, SpecialTokens, TokenRow, example_keys, packed
from liebig.model.backbone import Backbone
from liebig.model.folder import read_tail
from liebig.model.pooling import Dense, Normalize, pool
from liebig.ragged import Ragged
from liebig.store import TokenStore
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented
from liebig.vectors import Shard, Vectors, starts, vectors_at

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
TINY = 1e-12  # so that a vector of zeros stays one
TOGETHER = "a teacher's vectors are learnt from its texts: objective vectors and source texts"


class TeacherVectors(Method):
    """Distance to the teacher's vectors, KL of the texts' similarities, and KL of the teacher's rankings."""

    class Config(Method.Config):
        """The vectors of a teacher, which the source `texts` names, are learnt."""

        kind: Literal["vectors"] = "vectors"
        pooling: Pooling = Field(default="mean", description="How a text becomes a vector.")
        dense: bool | None = Field(
            default=None,
            description="Project to the teacher's width, saved with the model [default: where widths differ].",
        )
        space: Literal["joint", "first"] = Field(
            default="joint",
            description="Space of the student's vectors: that of all teachers side by side, or of the first alone; the "
            "others then take part in similarities and rankings only.",
        )
        similarity_weight: float = Field(
            default=0.0, ge=0, description="Weight of the loss on similarities between texts; 0 disables it."
        )
        temperature: float = Field(
            default=0.05, gt=0, description="Temperature of similarities and rankings."
        )
        ranking_weight: float = Field(
            default=0.0,
            ge=0,
            description="Weight of the loss on the teacher's rankings of candidates; 0 disables it.",
        )
        candidates: Annotated[tuple[InputPath, ...], BeforeValidator(one_or_several)] = Field(
            default=(),
            description="Vectors of the candidate passages that texts are ranked against: one folder per teacher.",
        )
        most_candidates: int = Field(
            default=16_384, ge=2, description="Maximum number of candidates, spread evenly over the folder."
        )
        pairs: ClassVar[bool] = False
        singles: ClassVar[bool] = True

        @property
        def negatives(self) -> Literal["none", "batch"]:
            """Texts meet only in the second term."""
            return "batch" if self.similarity_weight else "none"

        @property
        def extras(self) -> frozenset[str]:
            return frozenset({TEACHER})

        def check(self, recipe: PretrainRecipe) -> None:
            texts = [source for source in recipe.source.members if isinstance(source, TextSource.Config)]
            if len(texts) < len(recipe.source.members):
                raise ValueError(TOGETHER)
            if bool(self.ranking_weight) != bool(self.candidates):
                raise ValueError("rankings need both a ranking_weight and candidates")
            teachers = sum(len(source.vectors) for source in texts)
            if self.space == "first" and not (self.candidates or self.similarity_weight):
                raise ValueError(
                    "space = first: the other teachers take part in similarities and rankings only, and neither has a "
                    "weight"
                )
            if self.candidates and len(self.candidates) != teachers:
                raise ValueError(
                    f"{teachers} teachers and {len(self.candidates)} folders of candidates: give one folder each"
                )

        def shape(self, tokenizer: Tokenizer) -> Shape:
            return plain_text

    config: Config
    candidates: Tensor | None

    def __init__(
        self, config: Config, backbone: Backbone, dense: Dense | None, candidates: Tensor | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dense = dense
        # Moves with the model and is no part of its checkpoints: the folders are there.
        self.register_buffer("candidates", candidates, persistent=False)
        self.weights = {
            "distance": 1.0,
            "cosine": 0.0,
            "contrast": config.similarity_weight,
            "ranking": config.ranking_weight,
        }

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> TeacherVectors:
        """With a projection where widths differ: that of the starting folder if it fits, else a fresh one."""
        config = recipe.objective
        assert isinstance(config, TeacherVectors.Config)
        assert isinstance(recipe.source, TextSource.Config)
        source = recipe.source
        teachers = Teachers.open(source.vectors, source.teacher_weights, hashes=False)
        width = teachers.each[0].width if config.space == "first" else teachers.width
        candidates = (
            torch.from_numpy(teachers.others(config.candidates, config.most_candidates))
            if config.candidates
            else None
        )
        if config.dense is False and backbone.width != width:
            raise RecipeError(
                f"the teachers' vectors have width {width}, the student's {backbone.width}",
                fix="set objective.dense = true, which projects them",
            )
        if not config.dense and backbone.width == width:
            return cls(config, backbone, None, candidates)
        for entry in start.modules()[2:]:
            dense = read_tail(*entry)
            if isinstance(dense, Dense):
                shape = (dense.linear.in_features, dense.linear.out_features)
                if shape == (backbone.width, width):
                    return cls(config, backbone, dense, candidates)
        return cls(config, backbone, Dense(backbone.width, width), candidates)

    @property
    def contrastive(self) -> bool:
        return self.config.negatives == "batch"

    def counts(self, batch: Batch) -> dict[str, int]:
        texts = len(batch.sides["text"].packed)
        return dict.fromkeys(
            ("distance", "cosine", "ranking") if self.config.candidates else ("distance", "cosine"), texts
        )

    def represent(self, chunk: Batch) -> Represented:
        vectors_nD = self.vectors(chunk)
        teachers_nD = teacher_vectors(chunk, vectors_nD)
        cosine_n = (vectors_nD * self.in_space(teachers_nD)).sum(dim=1)
        terms = {"distance": (2 - 2 * cosine_n).sum(), "cosine": cosine_n.sum()}
        if self.candidates is not None:
            candidates_mD = self.candidates.to(vectors_nD.dtype)
            terms["ranking"] = losses.kl_rankings(
                vectors_nD,
                teachers_nD,
                candidates_mD,
                own=self.in_space(candidates_mD),
                temperature=self.config.temperature,
                total=1,
            )
        return Represented(vectors_nD, terms)

    def vectors(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["text"].packed
        x_nD = pool(self.backbone(packed).last, packed, self.config.pooling)
        with torch.autocast(x_nD.device.type, enabled=False):
            return normalize(x_nD if self.dense is None else self.dense(x_nD), dim=1)

    def in_space(self, rows_mD: Tensor) -> Tensor:
        """The teachers' rows in the student's space: all of them, or the first teacher's part, of length 1."""
        if self.config.space == "joint":
            return rows_mD
        width = self.backbone.width if self.dense is None else self.dense.linear.out_features
        return normalize(rows_mD[:, :width], dim=1)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        teacher = teacher_vectors(batch, vectors)
        everyone, teachers = world.gather(vectors), world.gather(teacher).rows
        places = torch.arange(everyone.start, everyone.start + len(vectors))
        loss = losses.kl_similarities(
            vectors, everyone.rows, teacher, teachers, places, temperature=self.config.temperature
        )
        with torch.no_grad():
            scored = losses.info_nce(vectors.detach(), self.in_space(teachers), places, total=len(teachers))
        return Contrast(loss, {"partner_accuracy": scored.accuracy})

    def saved(self) -> Saved:
        tail = [Normalize()] if self.dense is None else [self.dense, Normalize()]
        return Saved(self.config.pooling, "cosine", tail)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """The projection is one product on a row a text: the backbone is all there is to compile."""
        self.backbone.compile(*args, **kwargs)


def teacher_vectors(batch: Batch, like: Tensor) -> Tensor:
    """The teacher's vectors of a batch, of length 1."""
    return normalize(batch.extras[TEACHER].to(like.dtype).flatten(0, -2), dim=1)


@dataclass(frozen=True)
class TeacherFolder:
    """One teacher's vectors, shard after shard."""

    shards: tuple[Shard, ...]
    firsts: Ints  # number of each shard's first vector, and one past the last
    width: int

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> TeacherFolder:
        vectors = Vectors.open(path, hashes=hashes)
        if any(len(shard.deleted) for shard in vectors.shards):
            raise DataError(
                "vectors of which some were deleted cannot be used for training",
                file=path,
                fix="encode again, with type = fp16",
            )
        return cls(vectors.shards, np.array(starts(vectors.shards), np.int64), vectors.width)

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def rows(self, numbers: Ints) -> Floats:
        """The vectors of these numbers, in their order, of length 1."""
        out = vectors_at(self.shards, numbers, self.width)
        out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), TINY)
        return out

    def has_ids_of(self, other: TeacherFolder) -> bool:
        """Whether both have vectors of the same texts, in the same order."""
        mine, theirs = (
            Ragged.concatenate((shard.ids.strings.utf8 for shard in one.shards), np.uint8)
            for one in (self, other)
        )
        return np.array_equal(mine.offsets, theirs.offsets) and np.array_equal(mine.values, theirs.values)

    def check(self, store: TokenStore) -> None:
        """The ids of the vectors are those of the store."""
        offsets, values = store.ids.utf8.offsets, store.ids.utf8.values
        same = len(self) == len(store)
        for shard, first in zip(self.shards if same else (), self.firsts.tolist()):
            own = shard.ids.strings.utf8
            mine = offsets[first : first + len(shard) + 1]
            same &= np.array_equal(np.diff(mine), own.lengths)
            same = same and np.array_equal(values[mine[0] : mine[-1]], own.values)
        if not same:
            raise DataError(
                f"the teacher's vectors do not belong to the texts in {store.path}",
                file=self.shards[0].path.parents[1] if self.shards and self.shards[0].path else None,
                fix="encode the collection that the store was prepared from",
            )


@dataclass(frozen=True)
class Teachers:
    """Several teachers of the same texts: a row is their vectors side by side, of length 1."""

    each: tuple[TeacherFolder, ...]
    weights: tuple[float, ...]  # add up to 1

    @classmethod
    def open(cls, paths: Sequence[Path], weights: Sequence[float] = (), *, hashes: bool = True) -> Teachers:
        """Map each teacher's folder; without weights all count alike."""
        given = list(weights) or [1.0] * len(paths)
        each = tuple(TeacherFolder.open(path, hashes=hashes) for path in paths)
        return cls(each, tuple(weight / sum(given) for weight in given))

    @property
    def width(self) -> int:
        return sum(teacher.width for teacher in self.each)

    def rows(self, numbers: Ints) -> Floats:
        """The rows of these numbers, in their order."""
        scaled = [
            teacher.rows(numbers) * np.float32(weight**0.5)
            for teacher, weight in zip(self.each, self.weights)
        ]
        return np.concatenate(scaled, axis=1)

    def others(self, paths: Sequence[Path], most: int) -> Floats:
        """Rows of other texts by the same teachers: all, or `most` of them drawn evenly."""
        each = tuple(TeacherFolder.open(path, hashes=False) for path in paths)
        same = all(one.has_ids_of(each[0]) for one in each[1:])
        if not same or any(one.width != own.width for one, own in zip(each, self.each)):
            raise DataError("candidates are not vectors of the same passages by the teachers", file=paths[0])
        numbers = np.unique(np.linspace(0, len(each[0]) - 1, most).astype(np.int64))
        return Teachers(each, self.weights).rows(numbers)

    def check(self, store: TokenStore) -> None:
        """The ids of every teacher's vectors are those of the store."""
        for teacher in self.each:
            teacher.check(store)


@dataclass(frozen=True)
class TextSource:
    """`group` sequences per example: the first `limit` tokens of each of that many neighbouring texts.

    Every document of a store is a text, and the teacher's vector of the same id belongs to it. The vectors are those
    `liebig encode` wrote for the collection the store was made from; store and vectors must name the same ids in the
    same order. Both folders are mapped, so a text costs its tokens and one read of its vector.
    """

    class Config(SingleSource):
        """Whole texts of a store, each with the vectors that one or more teachers gave it."""

        kind: Literal["texts"] = "texts"
        vectors: Annotated[tuple[InputPath, ...], BeforeValidator(one_or_several)] = Field(
            min_length=1,
            description="Vectors of the store's collection written by liebig encode: one folder per teacher.",
        )
        teacher_weights: tuple[float, ...] = Field(
            default=(), description="Weight of each teacher in the similarity of two texts [default: equal]."
        )
        group: int = Field(
            default=1,
            ge=1,
            description="Number of neighbouring texts per example, so that related texts are in the same batch.",
        )
        reads_store: ClassVar[bool] = True
        symmetric: ClassVar[bool] = False

        @model_validator(mode="after")
        def _one_weight_each(self) -> TextSource.Config:
            if self.teacher_weights and len(self.teacher_weights) != len(self.vectors):
                raise ValueError(
                    f"{len(self.vectors)} teachers and {len(self.teacher_weights)} weights: give one weight each"
                )
            if any(weight <= 0 for weight in self.teacher_weights):
                raise ValueError("a teacher's weight must be more than 0: leave out a teacher without weight")
            return self

        def check(self, recipe: PretrainRecipe) -> None:
            if TEACHER not in recipe.objective.extras:
                raise ValueError(TOGETHER)
            if len(recipe.source.members) > 1 or len(recipe.stores) > 1:
                raise ValueError(
                    "the texts source needs exactly one store and cannot be mixed with other sources"
                )

        def open(
            self, recipe: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer
        ) -> list[tuple[str, ExampleSource]]:
            (store,) = stores
            teachers = Teachers.open(self.vectors, self.teacher_weights)
            teachers.check(store)
            return [(store.path.name, TextSource(store, teachers, recipe.room(tokenizer), self.group))]

    texts: TokenStore
    teachers: Teachers
    limit: int
    group: int = 1

    def __len__(self) -> int:
        return len(self.texts) // self.group

    def numbers(self, examples: Ints) -> Ints:
        """The texts of each example, n x group."""
        return examples[:, None] * self.group + np.arange(self.group)

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row with the texts of each example, the same in every epoch."""
        begins, ends = self.texts.token_ranges(self.numbers(examples).reshape(-1))
        spans = np.stack((begins, np.minimum(ends, begins + self.limit)), axis=1)[:, None]
        owner = np.repeat(np.arange(len(examples)), self.group)
        keys = example_keys(examples, epoch, seed)
        return packed(self.texts.tokens, spans, SpecialTokens.of(self.texts.tokenizer), owner, keys)

    def vectors(self, examples: Ints) -> Floats:
        """The teachers' vectors of each example's texts, n x group x D."""
        numbers = self.numbers(examples)
        return self.teachers.rows(numbers.reshape(-1)).reshape(*numbers.shape, -1)
