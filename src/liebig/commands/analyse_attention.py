"""The recipes of `liebig analyse attention`, `neighbours`, `space`, `errors` and `leakage`."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.workspace import Folder
from liebig.evaluation import analyses as attention
from liebig.evaluation.analyses import _origins, _root, _write_table, draw, section_texts, system_names
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.evaluation.tables import show


class AttentionConfig(Config):
    """`liebig analyse attention MODEL…`: entropy of CLS attention per layer, several models in one plot."""

    models: tuple[ModelPath, ...] = Field(description="Model folders.")
    texts: InputPath = Field(description="Collection whose sections (or passages) are read.")
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    origins: tuple[str, ...] = Field(
        (),
        description=(
            "For each model, the name of the model it was fine-tuned from, or - for none. Both get the same "
            "colour, the fine-tuned one dashed, and the table shows how far its attention moved."
        ),
    )
    count: int = Field(1000, ge=1, description="Number of texts, drawn at random.")
    max_length: int = Field(128, ge=4, description="Maximum length of a text in tokens.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, ge=0, description="Seed of the random sample.")


def run(config: AttentionConfig, folder: Folder) -> None:
    """Entropy of CLS attention per layer (Condenser, Fig. 2)."""
    from liebig.evaluation.analyses import attentions

    names = system_names(config.models, config.names)
    origins = _origins(names, config.origins)
    texts = draw(section_texts(config.texts), config.count, config.seed)
    if not texts:
        raise DataError(
            "the collection contains no text",
            file=config.texts,
            fix="use a collection with documents or passages",
        )
    curves: dict[str, attention.Curve] = {}
    for name, path in zip(names, config.models):
        found = attentions(path, texts, config.max_length, config.device)
        curves[name] = attention.average(track(found, f"attention of {name}", len(texts), "texts"))
    moved = {name: _movement(curves, origin, name) for name, origin in origins.items()}
    svg = lines(
        "attention", _attention_series(curves, origins), Axes("layer", "entropy of CLS attention (nats)")
    )
    write_svg(folder.path / "attention.svg", svg)
    rows = [[name, *(f"{value:.2f}" for value in curve.mean)] for name, curve in curves.items()]
    header = ["model", *(str(i + 1) for i in range(max(len(curve.mean) for curve in curves.values())))]
    folder.write_json("attention.json", {"texts": len(texts), "curves": _curves_json(curves), "moved": moved})
    _write_table(
        folder, "attention.md", header, [row + [""] * (len(header) - len(row)) for row in rows], left=1
    )
    for name, value in moved.items():
        show(f"{name}: attention moved by {value:.3f} nats a layer from {origins[name]}.")


def _movement(curves: dict[str, attention.Curve], origin: str, name: str) -> float:
    layers = [len(curves[one].mean) for one in (origin, name)]
    if layers[0] != layers[1]:
        raise RecipeError(
            f"{name} has {layers[1]} layers and its origin {origin} has {layers[0]}",
            fix="give the model that it was fine-tuned from",
        )
    return attention.movement(curves[origin], curves[name])


def _attention_series(curves: dict[str, attention.Curve], origins: dict[str, str]) -> list[Series]:
    roots = [name for name in curves if name not in origins]
    found = []
    for name, curve in curves.items():
        band = 1.96 * curve.error
        found.append(
            Series(
                name, np.arange(1, len(curve.mean) + 1), curve.mean, curve.mean - band, curve.mean + band,
                dashed=name in origins, colour=roots.index(_root(name, origins)),
            )
        )  # fmt: skip
    return found


def _curves_json(curves: dict[str, attention.Curve]) -> dict[str, dict[str, list[float]]]:
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
