"""What a short training on a corpus without labels looks like: Contriever's contrast on two kinds of pairs.

Half of the batches are pairs of random crops of a window (Contriever), half are a title or heading with a passage
under it, where the corpus has them; questions that will be asked afterwards are never among them. The encoder keeps its
pooling, vectors are compared by cosine, and the learning rate is that of a model that already knows its language.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.data.batches import CropSource
from liebig.data.collection import Collection
from liebig.data.store import TokenStore
from liebig.model.encoder import Dense, Encoder
from liebig.retriever.questions import PAIRS

FEWEST_TOKENS, FEWEST_EXAMPLES = 20_000, 32
BATCH_CPU, BATCH_CUDA = 64, 512
LR = 1e-4
CROPS = 256  # tokens of the window both crops come from


@dataclass(frozen=True)
class Start:
    """What has to be known of an encoder before it is trained."""

    pooling: str
    max_length: int
    has_projection: bool
    cuda: bool

    @property
    def length(self) -> int:
        """Tokens of a sequence in training."""
        return min(self.max_length, CROPS)

    @property
    def window(self) -> int:
        """Tokens of the window of two crops, each of which has half of it at most."""
        return min(CROPS, 2 * (self.length - 4))

    @classmethod
    def of(cls, model: Path) -> Start:
        """Look at a model's folder."""
        import torch

        encoder = Encoder.load(model)
        projection = any(isinstance(part, Dense) for part in encoder.tail)
        return cls(encoder.pooling, encoder.max_length, projection, torch.cuda.is_available())


def why_not(start: Start, store: Path) -> str | None:
    """Why there is nothing to train, where there is not."""
    opened = TokenStore.open(store)
    if len(opened.tokens) < FEWEST_TOKENS or _crops(opened, start) < FEWEST_EXAMPLES:
        return f"{len(opened):,} documents with {len(opened.tokens):,} tokens are too little to train on"
    if start.pooling not in ("mean", "cls"):
        return f"an encoder with {start.pooling} pooling is not trained further"
    if start.has_projection:
        return "an encoder with a projection behind its pooling is not trained further"
    return None


def recipe(model: Path, start: Start, store: Path, questions: Path, minutes: float) -> dict[str, Any]:
    """The recipe of `liebig pretrain`."""
    crops = {"kind": "crops", "window": start.window}
    pairs = {"kind": "queries", "collection": str(questions / PAIRS)}
    both = {"kind": "mixture", "parts": [{"source": crops, "weight": 1.0}, {"source": pairs, "weight": 1.0}]}
    has_pairs = (questions / PAIRS).is_dir()
    examples = [_crops(TokenStore.open(store, hashes=False), start)]
    examples += [Collection(questions / PAIRS).count("passages")] if has_pairs else []
    batch = min(BATCH_CUDA if start.cuda else BATCH_CPU, int(0.9 * min(examples)))
    return {
        "model": {"kind": "folder", "path": str(model)},
        "stores": [{"path": str(store)}],
        "source": both if has_pairs else crops,
        "objective": {"kind": "simclr", "similarity": "cosine", "pooling": start.pooling},
        "max_length": start.length,
        "optim": {"lr": LR},
        "loop": {"minutes": minutes, "batch": batch},
    }


def _crops(store: TokenStore, start: Start) -> int:
    """Windows that crops can be drawn from."""
    return len(CropSource(store, start.window))
