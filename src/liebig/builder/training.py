"""What a short training on a corpus without labels looks like: a contrast on two kinds of pairs.

Half of the batches are a sentence and the block around it (inverse cloze), half are a title or heading with a passage
under it, where the corpus has them; questions that will be asked afterwards are never among them. The encoder keeps its
pooling, vectors are compared by cosine. Forty steps of 48 pairs took the dense ranking of MedQuAD's development
questions from useless to nearly BM25's, and the fusion past it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.builder.questions import PAIRS
from liebig.collection.collection import Collection
from liebig.model.encoder import Encoder
from liebig.store.pair_sources import ClozeSource
from liebig.store.store import TokenStore

FEWEST_TOKENS, FEWEST_EXAMPLES = 20_000, 32
BATCH_CPU, BATCH_CUDA = 64, 512
LR = 1e-4  # the bundled encoder is a retriever already: it is moved little (docs/demo.md has what was tried)
LONGEST = 256  # tokens of a sequence in training


@dataclass(frozen=True)
class Start:
    """What has to be known of an encoder before it is trained."""

    pooling: str
    max_length: int
    cuda: bool

    @property
    def length(self) -> int:
        """Tokens of a sequence in training."""
        return min(self.max_length, LONGEST)

    @classmethod
    def of(cls, model: Path) -> Start:
        """Look at a model's folder."""
        import torch

        encoder = Encoder.load(model)
        return cls(encoder.pooling, encoder.max_length, torch.cuda.is_available())


def why_not(start: Start, store: Path) -> str | None:
    """Why there is nothing to train, where there is not."""
    opened = TokenStore.open(store)
    if len(opened.tokens) < FEWEST_TOKENS or _blocks(opened, start) < FEWEST_EXAMPLES:
        return f"{len(opened):,} documents with {len(opened.tokens):,} tokens are too little to train on"
    if start.pooling not in ("mean", "cls"):
        return f"an encoder with {start.pooling} pooling is not trained further"
    return None


def batch_size(cuda: bool) -> int:
    """Pairs of a step, where the corpus has that many."""
    return BATCH_CUDA if cuda else BATCH_CPU


def recipe(model: Path, start: Start, store: Path, questions: Path, minutes: float) -> dict[str, Any]:
    """The recipe of `liebig pretrain`."""
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


def _blocks(store: TokenStore, start: Start) -> int:
    """Blocks that a sentence can be taken from."""
    return len(ClozeSource(store, start.length - 4))
