"""A model folder in MTEB, the benchmark of text embeddings: `MtebModel` is an encoder as `mteb.evaluate` takes it.

    import mteb
    from liebig.integrations.mteb import MtebModel

    results = mteb.evaluate(MtebModel("runs/articles/model-1"), mteb.get_tasks(tasks=["SciFact"]))

Texts are read as in `liebig encode`: with the model's prompts for queries and passages, its lengths, and its rule for
titles. MTEB keeps results by a model's name and revision; the revision is a hash of the folder, so a model that was
trained again is measured again. mteb itself is imported when it asks for the model's description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import MissingDependency
from liebig.base.hub import model_folder, name_of
from liebig.base.records import Passage
from liebig.search.embed import Embedder
from liebig.text.layout import Record, Role

__all__ = ["MtebModel"]

ROLES: Mapping[str, Role] = {"query": "query", "document": "passage"}  # mteb's words for our roles


class MtebModel:
    """A model folder, or `org/name` of the hub, with the methods of mteb's `EncoderProtocol`."""

    def __init__(
        self, model_name: str | Path, revision: str | None = None, *, device: str | None = None, **more: Any
    ) -> None:
        """The parameters are those that mteb calls an encoder with; `revision` stands for the folder's hash."""
        self.folder = model_folder(model_name)
        self.revision = revision or workspace.digest(self.folder)[:40]
        self.embedder = Embedder.load(self.folder, device)

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type: str | None = None, **more: Any
    ) -> NDArray[np.float32]:
        """Vectors of batches of texts; `more` (the task, its split, the size of batches) changes nothing."""
        role = None if prompt_type is None else ROLES[str(getattr(prompt_type, "value", prompt_type))]
        texts = [text for batch in inputs for text in _records(batch, role)]
        if not texts:
            return np.empty((0, self.embedder.encoder.width), np.float32)
        return self.embedder.vectors(texts, role)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Every vector of the one with every vector of the other; vectors have length 1 where the model says cosine."""
        import torch

        a, b = torch.atleast_2d(torch.as_tensor(embeddings1)), torch.atleast_2d(torch.as_tensor(embeddings2))
        return a.float() @ b.float().T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """The first with the first, the second with the second, and so on."""
        import torch

        return (torch.as_tensor(embeddings1).float() * torch.as_tensor(embeddings2).float()).sum(-1)

    @property
    def mteb_model_meta(self) -> Any:
        """The model's description, as mteb keeps it with results."""
        try:
            from mteb.models.model_meta import ModelMeta, ScoringFunction
        except ImportError:
            raise MissingDependency("mteb", "mteb", "an evaluation by MTEB") from None
        name, encoder = name_of(self.folder), self.embedder.encoder
        scoring = ScoringFunction.COSINE if self.embedder.unit else ScoringFunction.DOT_PRODUCT
        return ModelMeta.create_empty(
            {
                "name": name if "/" in name else f"liebig/{name}",
                "revision": self.revision,
                "n_parameters": sum(p.numel() for p in encoder.parameters()),
                "max_tokens": encoder.max_length,
                "embed_dim": encoder.width,
                "similarity_fn_name": scoring,
                "framework": ["PyTorch"],
            }
        )


def _records(batch: Mapping[str, Sequence[str]], role: Role | None) -> Sequence[Record]:
    """The texts of a batch; mteb joins title and body of a document, which the model's own rule does better."""
    if role == "passage" and "title" in batch and "body" in batch:
        return [Passage("", body, title or "") for title, body in zip(batch["title"], batch["body"])]
    return batch["text"]
