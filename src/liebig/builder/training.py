"""The recipes by which a build trains an encoder on a corpus, and the numbers in them.

An encoder that is a retriever already learns how its own hybrid with BM25 ranks queries cut from the corpus
(`distill_recipe`, `listwise.py`), and goes half of the way there: a model and what a short training made of it lie in
one valley of the loss, so what lies between is a model too, and keeps more of both (Wortsman et al. 2022). That pays
where documents have several passages, and is skipped elsewhere (`listwise.py`, LABNOTES.md).

One that is none yet (a masked language model) learns by contrast on two kinds of pairs (`contrast_recipe`). Half of the
batches are a sentence and the block around it (inverse cloze), half are a title or heading with a passage under it,
where the corpus has them; questions that will be asked afterwards are never among them. Forty steps of 48 pairs took
the dense ranking of MedQuAD's development questions from useless to nearly BM25's.

With a teacher, a student learns the teacher's vectors and rankings instead (`teacher_recipe`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.builder.listwise import CANDIDATES, SPLIT
from liebig.builder.questions import PAIRS
from liebig.collection.collection import Collection
from liebig.model.encoder import Encoder
from liebig.store.pair_sources import ClozeSource
from liebig.store.store import TokenStore

FEWEST_TOKENS, FEWEST_EXAMPLES = 20_000, 32
BATCH_CPU, BATCH_CUDA = 64, 512
LR = 1e-4
LONGEST = 256  # tokens of a sequence in training

# Learning from a teacher (builder/lessons.py).
TEACHER_LR = 2e-4
TEACHER_BATCH_CPU, TEACHER_BATCH_CUDA = 64, 512
TEACHER_EPOCHS = 20  # passes over the texts at most, however many minutes there are
RANKING_WEIGHT = 1.0  # of the teacher's rankings of passages, beside the distance to its vectors
RANKING_TEMPERATURE = 0.05

# Listwise distillation of the hybrid's own rankings (builder/listwise.py).
DISTILL_LR = 2e-5
DISTILL_BATCH_CPU, DISTILL_BATCH_CUDA = 8, 48  # queries of a step
DISTILL_CANDIDATES_CPU = 7  # of a query, beside its passage: a CPU sees more queries in its minutes so
DISTILL_QUERIES = 7200  # seen in all, where there is time: twice as many were no better
DISTILL_TEMPERATURE = 0.05  # cosines are divided by it
DISTILL_TEACHER_TEMPERATURE = 0.125  # the hybrid's scores, from 0 to 1, are divided by it
DISTILL_QUERY = 64  # tokens of a query at most

SHARES = (0.5, 1.0)  # how far the student goes from its start to what training made of it: the check decides


@dataclass(frozen=True)
class Start:
    """The properties of the starting encoder that training depends on."""

    pooling: str
    max_length: int
    cuda: bool

    @property
    def length(self) -> int:
        """Tokens of a sequence in training."""
        return min(self.max_length, LONGEST)

    @classmethod
    def of(cls, model: Path) -> Start:
        """Read them from a model's folder."""
        encoder = Encoder.load(model)
        return cls(encoder.pooling, encoder.max_length, torch.cuda.is_available())


def why_not(start: Start, store: Path) -> str | None:
    """Why the encoder cannot be trained on this store; None if it can."""
    opened = TokenStore.open(store)
    if len(opened.tokens) < FEWEST_TOKENS or _blocks(opened, start) < FEWEST_EXAMPLES:
        return f"{len(opened):,} documents with {len(opened.tokens):,} tokens are too little to train on"
    return _pooled_otherwise(start)


def why_not_taught(start: Start, texts: int) -> str | None:
    """Why the encoder cannot learn a teacher's vectors of that many texts; None if it can."""
    if texts < FEWEST_EXAMPLES:
        return f"{texts:,} texts are too few to learn from"
    return _pooled_otherwise(start)


def _pooled_otherwise(start: Start) -> str | None:
    supported = start.pooling in ("mean", "cls")
    return None if supported else f"training an encoder with {start.pooling} pooling is not supported"


def batch_size(cuda: bool) -> int:
    """Pairs in a step, where the corpus has that many."""
    return BATCH_CUDA if cuda else BATCH_CPU


def contrast_recipe(
    model: Path, start: Start, store: Path, questions: Path, minutes: float
) -> dict[str, Any]:
    """The recipe of `liebig pretrain` for an encoder that is no retriever yet."""
    cloze = {"kind": "cloze"}
    pairs = {"kind": "queries", "collection": str(questions / PAIRS)}
    both = {"kind": "mixture", "parts": [{"source": cloze, "weight": 1.0}, {"source": pairs, "weight": 1.0}]}
    has_pairs = (questions / PAIRS).is_dir()
    examples = [_blocks(TokenStore.open(store, hashes=False), start)]
    examples += [Collection(questions / PAIRS).count("passages")] if has_pairs else []
    batch = min(batch_size(start.cuda), int(0.9 * min(examples)))
    contrast = {
        "kind": "simclr",
        "similarity": "cosine",
        "pooling": start.pooling,
    }
    return {
        "model": {"kind": "folder", "path": str(model)},
        "stores": [{"path": str(store)}],
        "source": both if has_pairs else cloze,
        "objective": contrast,
        "max_length": start.length,
        "optim": {"lr": LR},
        "loop": {"minutes": minutes, "batch": batch, "chunk_tokens": "auto" if start.cuda else "whole"},
    }


def teacher_recipe(
    student: Path, start: Start, store: Path, lessons: Path, candidates: Path, minutes: float
) -> dict[str, Any]:
    """The recipe of `liebig pretrain` for a student: a teacher's vectors of texts, and its rankings of passages."""
    texts = len(TokenStore.open(store, hashes=False))
    batch = min(TEACHER_BATCH_CUDA if start.cuda else TEACHER_BATCH_CPU, max(1, int(0.9 * texts)))
    return {
        "model": {"kind": "folder", "path": str(student)},
        "stores": [{"path": str(store)}],
        "source": {"kind": "texts", "vectors": str(lessons)},
        "objective": {
            "kind": "vectors",
            "pooling": start.pooling,
            "dense": True,
            "temperature": RANKING_TEMPERATURE,
            "ranking_weight": RANKING_WEIGHT,
            "candidates": str(candidates),
        },
        "max_length": start.length,
        "dropout": 0.0,
        "optim": {"lr": TEACHER_LR},
        "loop": {
            "minutes": minutes,
            "steps": max(1, TEACHER_EPOCHS * texts // batch),
            "batch": batch,
            "chunk_tokens": "auto" if start.cuda else "whole",
        },
    }


def distill_recipe(model: Path, start: Start, ranked: Path, minutes: float) -> dict[str, Any]:
    """The recipe of `liebig finetune` for groups that the hybrid has scored."""
    queries = len(Collection(ranked).query_ids(SPLIT))
    batch = min(DISTILL_BATCH_CUDA if start.cuda else DISTILL_BATCH_CPU, queries)
    return {
        "model": {"kind": "folder", "path": str(model)},
        "collection": str(ranked),
        "split": SPLIT,
        "objective": {
            "kind": "distill",
            "over": "group",
            "similarity": "cosine",
            "temperature": DISTILL_TEMPERATURE,
            "teacher_temperature": DISTILL_TEACHER_TEMPERATURE,
        },
        "negatives": CANDIDATES if start.cuda else DISTILL_CANDIDATES_CPU,
        "query_length": min(start.length, DISTILL_QUERY),
        "passage_length": start.length,
        "optim": {"lr": DISTILL_LR},
        "loop": {
            "minutes": minutes,
            "steps": max(1, DISTILL_QUERIES // batch),
            "batch": batch,
            "chunk_tokens": "auto" if start.cuda else "whole",
        },
    }


def _blocks(store: TokenStore, start: Start) -> int:
    """Blocks that a sentence can be taken from."""
    return len(ClozeSource(store, start.length - 4))


class MeanConfig(Config):
    """The weighted mean of an encoder's weights before and after training."""

    start: InputPath = Field(description="The model before.")
    trained: InputPath = Field(description="The same model after.")
    share: float = Field(0.5, ge=0, le=1, description="How far to go from the first to the second.")


def write_mean(config: MeanConfig, folder: Folder) -> None:
    """Write the weights between both to `model/`.

    `liebig average` takes folders of one form; a start may have any that loads, so both are loaded here.
    """
    start, encoder = Encoder.load(config.start), Encoder.load(config.trained)
    # Training may have seen shorter texts; lengths and titles stay those of use.
    encoder.max_length, encoder.layout = start.max_length, start.layout
    before = dict(start.named_parameters())
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.copy_(torch.lerp(before[name], value, config.share))
    encoder.save(folder.path / "model")


MEAN = Stage("mean", MeanConfig, write_mean, part_of="build")
