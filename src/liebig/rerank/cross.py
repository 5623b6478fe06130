"""The cross-encoder: query and passage in one sequence, and a linear score of its first token's state.

Sequences are packed like everything else; pairs are sorted by length and run up to a budget of tokens. A folder holds
the backbone as any model folder, and beside it `reranker.safetensors` and `reranker.json`. Cost: the backbone on the
tokens of every pair.

B pairs, T packed tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from liebig.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.encoder import TOKENS, TOKENS_CUDA, Encoder, by_budget
from liebig.model.loading import readable
from liebig.model.packed import Packed
from liebig.records import Title
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

HEAD, SETTINGS = "reranker.safetensors", "reranker.json"


class CrossEncoder(nn.Module):
    """Backbone, tokenizer and a linear head on the first token."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        *,
        query_length: int,
        length: int,
        title: Title = "space",
    ) -> None:
        super().__init__()
        if length > backbone.max_positions:
            raise ModelError(
                f"pairs of {length} tokens are longer than the model's {backbone.max_positions} positions",
                fix=f"set length = {backbone.max_positions}",
            )
        self.backbone, self.tokenizer = backbone, tokenizer
        self.head = nn.Linear(backbone.width, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.query_length, self.length, self.title = query_length, length, title
        self.around = len(tokenizer.wrap_pair([], [])[0])

    def layouts(self, title: Title | None = None) -> tuple[RoleLayout, RoleLayout]:
        """How queries and passages become the two halves of a pair, without special tokens around them."""
        return (
            RoleLayout(self.tokenizer, self.query_length, title="no", bare=True),
            RoleLayout(self.tokenizer, self.length, title=title or self.title, bare=True),
        )

    def forward(self, packed: Packed) -> Tensor:
        """The score of each sequence, B."""
        first_BD = self.backbone(packed).last.index_select(0, packed.firsts)
        scores: Tensor = self.head(first_BD)[:, 0]
        return scores if scores.dtype == torch.float64 else scores.float()

    def pack(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
        """Pairs of token ids without special tokens as one row; the passage gives way."""
        rows = [self._pair(query, passage) for query, passage in pairs]
        segments = (
            [row[1] for row in rows] if getattr(self.backbone.config, "type_vocab_size", 0) > 1 else None
        )
        return Packed.from_lists([row[0] for row in rows], segments)

    def _pair(self, query: Sequence[int], passage: Sequence[int]) -> tuple[list[int], list[int]]:
        cut = query[: self.query_length]
        return self.tokenizer.wrap_pair(cut, passage[: self.length - self.around - len(cut)])

    @torch.inference_mode()
    def scores(
        self, queries: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Scores of queries with passages, row by row; the mode of training is left as it was."""
        was_training = self.training
        self.eval()
        device = self.head.weight.device
        budget = TOKENS_CUDA if device.type == "cuda" else TOKENS
        lengths = np.array([len(q) + len(p) for q, p in zip(queries, passages)], np.int64) + self.around
        out = np.empty(len(lengths), np.float32)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for some in by_budget(np.minimum(lengths, self.length), budget):
                packed = self.pack([(queries[i], passages[i]) for i in some]).to(device)
                out[some] = self(packed).float().cpu().numpy()
        self.train(was_training)
        return out

    def save(self, folder: Path) -> None:
        """A model folder with the head beside the backbone."""
        Encoder(self.backbone, self.tokenizer, max_length=self.length).save(folder)
        head = {name: x.detach().cpu().contiguous() for name, x in self.head.state_dict().items()}
        save_file(head, folder / HEAD, metadata={"format": "pt"})
        settings = {"query_length": self.query_length, "length": self.length, "title": self.title}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> CrossEncoder:
        """What `save` wrote."""
        if not (folder / HEAD).is_file():
            raise ModelError("this is no reranker", file=folder, fix="train one with liebig rerank train")
        with readable(folder):
            settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            made = cls(
                Backbone.load(folder),
                Tokenizer.from_folder(folder),
                query_length=int(settings["query_length"]),
                length=int(settings["length"]),
                title=settings.get("title", "space"),
            )
            made.head.load_state_dict(load_file(folder / HEAD))
        return made.eval()
