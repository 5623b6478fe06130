"""`liebig analyse attention`: entropy of CLS attention by layer (Condenser, Section 5 and Fig. 2; Clark et al. 2019).

The entropy of the attention from position 0 to all positions, averaged over heads and texts. High is broad, low is
focused. A model whose curve hardly moves in fine-tuning was structurally ready.

Shapes: L layers, H heads, T tokens of one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.records import Document, Passage
from liebig.base.rng import draw
from liebig.base.workspace import Folder
from liebig.evaluation.drawn_tasks import records
from liebig.evaluation.encoders import ModelScorer
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.evaluation.scoring import system_names
from liebig.evaluation.tables import show, write_table
from liebig.model.packed import Packed

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Curve:
    """Entropy per layer in nats: mean over texts, its standard error, and the share of the largest possible."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    relative: NDArray[np.float64]
    texts: int


def cls_entropy(attention_LHTT: Floats) -> NDArray[np.float64]:
    """Per layer: -sum p log p of the first row, mean over heads."""
    rows = np.asarray(attention_LHTT[:, :, 0, :], dtype=np.float64)
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return -(rows * logs).sum(axis=-1).mean(axis=1)


def average(attentions: Iterable[Floats]) -> Curve:
    """The curve of a model from the attention of each text."""
    entropies, relative = [], []
    for attention_LHTT in attentions:
        entropy = cls_entropy(attention_LHTT)
        entropies.append(entropy)
        relative.append(entropy / max(np.log(attention_LHTT.shape[-1]), 1e-12))
    values = np.stack(entropies)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Curve(
        values.mean(axis=0), spread / np.sqrt(len(values)), np.stack(relative).mean(axis=0), len(values)
    )


def movement(before: Curve, after: Curve) -> float:
    """Mean over layers of how far the entropy moved, in nats: what fine-tuning had to change."""
    assert before.mean.shape == after.mean.shape
    return float(np.abs(after.mean - before.mean).mean())


def section_texts(path: Path) -> Iterator[str]:
    """The sections of a source's documents, or its passages where it has no documents."""
    for record in records(path):
        if isinstance(record, Document):
            for section in record.sections:
                text = " ".join(section.paragraphs).strip()
                if text:
                    yield text
        elif isinstance(record, Passage) and record.text.strip():
            yield record.text


def _origins(names: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The model each was fine-tuned from, for those that have one."""
    if given and len(given) != len(names):
        raise RecipeError(
            f"{len(given)} origins for {len(names)} models", fix=("give one origin per model, - for none")
        )
    origins = {name: origin for name, origin in zip(names, given) if origin != "-"}
    for origin in origins.values():
        if origin not in names:
            raise RecipeError(f"no model is called {origin!r}", fix="use one of " + ", ".join(names))
    for name in origins:
        _root(name, origins)
    return origins


def _root(name: str, origins: dict[str, str]) -> str:
    """The model that a chain of fine-tuning began with."""
    seen = [name]
    while seen[-1] in origins:
        seen.append(origins[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise RecipeError(f"the origins form a cycle: {', '.join(seen)}", fix="give - to the first model")
    return seen[-1]


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


class AttentionConfig(Config):
    """`liebig analyse attention MODEL…`: entropy of CLS attention per layer, several models in one plot."""

    models: tuple[ModelPath, ...] = Field(description="Model folders.")
    texts: InputPath = Field(description="Collection whose sections (or passages) are read.")
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    origins: tuple[str, ...] = Field(
        (),
        description="For each model, the name of the model it was fine-tuned from, or - for none. Both get the same "
        "colour, the fine-tuned one dashed, and the table shows how far its attention moved.",
    )
    count: int = Field(1000, ge=1, description="Number of texts, drawn at random.")
    max_length: int = Field(128, ge=4, description="Maximum length of a text in tokens.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, ge=0, description="Seed of the random sample.")


def run(config: AttentionConfig, folder: Folder) -> None:
    """Entropy of CLS attention per layer (Condenser, Fig. 2)."""

    names = system_names(config.models, config.names)
    origins = _origins(names, config.origins)
    texts = draw(section_texts(config.texts), config.count, config.seed)
    if not texts:
        raise DataError(
            "the collection contains no text",
            file=config.texts,
            fix="use a collection with documents or passages",
        )
    curves: dict[str, Curve] = {}
    for name, path in zip(names, config.models):
        maps = attentions(path, texts, config.max_length, config.device)
        curves[name] = average(track(maps, f"attention of {name}", len(texts), "texts"))
    moved = {name: _movement(curves, origin, name) for name, origin in origins.items()}
    svg = lines(
        "attention", _attention_series(curves, origins), Axes("layer", "entropy of CLS attention (nats)")
    )
    write_svg(folder.path / "attention.svg", svg)
    rows = [[name, *(f"{value:.2f}" for value in curve.mean)] for name, curve in curves.items()]
    header = ["model", *(str(i + 1) for i in range(max(len(curve.mean) for curve in curves.values())))]
    folder.write_json("attention.json", {"texts": len(texts), "curves": _curves_json(curves), "moved": moved})
    write_table(
        folder, "attention.md", header, [row + [""] * (len(header) - len(row)) for row in rows], left=1
    )
    for name, value in moved.items():
        show(f"{name}: attention moved by {value:.3f} nats a layer from {origins[name]}.")


def _movement(curves: dict[str, Curve], origin: str, name: str) -> float:
    layers = [len(curves[one].mean) for one in (origin, name)]
    if layers[0] != layers[1]:
        raise RecipeError(
            f"{name} has {layers[1]} layers and its origin {origin} has {layers[0]}",
            fix="give the model that it was fine-tuned from",
        )
    return movement(curves[origin], curves[name])


def _attention_series(curves: dict[str, Curve], origins: dict[str, str]) -> list[Series]:
    roots = [name for name in curves if name not in origins]
    series = []
    for name, curve in curves.items():
        band = 1.96 * curve.error
        series.append(
            Series(
                name, np.arange(1, len(curve.mean) + 1), curve.mean, curve.mean - band, curve.mean + band,
                dashed=name in origins, colour=roots.index(_root(name, origins)),
            )
        )  # fmt: skip
    return series


def _curves_json(curves: dict[str, Curve]) -> dict[str, dict[str, list[float]]]:
    return {
        name: {
            "mean": curve.mean.tolist(),
            "error": curve.error.tolist(),
            "relative": curve.relative.tolist(),
        }
        for name, curve in curves.items()
    }


STAGE = Stage(
    "analyse attention",
    AttentionConfig,
    run,
    "liebig analyse attention runs/mlm/model runs/condenser/model --texts runs/collection --out runs/attention",
    positional="models",
)
