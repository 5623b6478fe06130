"""The shells of the analyses: each reads files and writes a folder with numbers, a table, and a plot where useful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from liebig.analyse import attention, neighbours
from liebig.analyse.config import AttentionConfig, ErrorsConfig, LeakageConfig, NeighboursConfig, SpaceConfig
from liebig.analyse.leakage import Checker
from liebig.analyse.sample import draw, named_texts, section_texts
from liebig.errors import DataError, RecipeError
from liebig.evaluate.plots import Axes, Series, lines, write_svg
from liebig.evaluate.questions import ranked_in
from liebig.evaluate.runfile import needed_run
from liebig.evaluate.scoring import system_name
from liebig.evaluate.table import markdown, rich_table, show
from liebig.evaluate.task import read_task
from liebig.progress import Progress, track
from liebig.workspace import Folder


def run_attention(config: AttentionConfig, folder: Folder) -> None:
    """Entropy of CLS attention per layer (Condenser, Fig. 2)."""
    from liebig.analyse.encoders import attentions

    names = system_names(config.models, config.names)
    origins = _origins(names, config.origins)
    texts = draw(section_texts(config.texts), config.count, config.seed)
    if not texts:
        raise DataError(
            "there is no text to read", file=config.texts, fix="use a collection with documents or passages"
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


def run_neighbours(config: NeighboursConfig, folder: Folder) -> None:
    """nb-recall^n@k (coCondenser, Eq. 17)."""
    if len(config.first) != len(config.second):
        raise RecipeError(
            "the two stages have different numbers of runs", fix="give one run of each stage a system"
        )
    names = system_names(config.second, config.names)
    ks = sorted(set(config.k))
    found: list[dict[str, Any]] = []
    for name, first, second in zip(names, config.first, config.second):
        later = _ranked(second, max(config.n))
        earlier = _ranked(first, max(config.k))
        if not later.keys() & earlier.keys():
            raise DataError(
                f"it has no query in common with {second}", file=first, fix="search the same queries"
            )
        for n in config.n:
            values = neighbours.curve(earlier, later, n, ks)
            found.append({"system": name, "n": n, "k": ks, "queries": len(values)})
            found[-1]["recall"] = values.mean(axis=0).tolist()
    series = [
        Series(
            f"{one['system']}, n = {one['n']}",
            one["k"],
            one["recall"],
            dashed=i % len(config.n) > 0,
            colour=i // len(config.n),
        )
        for i, one in enumerate(found)
    ]
    write_svg(folder.path / "neighbours.svg", lines("neighbours", series, Axes("k", "nb-recall", log_x=True)))
    folder.write_json("neighbours.json", found)
    rows = [[one["system"], str(one["n"]), *(f"{value:.3f}" for value in one["recall"])] for one in found]
    _write_table(folder, "neighbours.md", ["system", "n", *(f"k = {k}" for k in ks)], rows)


def run_space(config: SpaceConfig, folder: Folder) -> None:
    """Alignment, uniformity, isotropy, hubness, effective dimension."""
    from liebig.analyse.encoders import describe_space

    names = system_names(config.models, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    passages = draw(task.passages(), config.count, config.seed)
    if len(passages) < 2:
        raise DataError(
            "a space needs two passages or more", file=config.collection, fix="use a collection with more"
        )
    found = [describe_space(path, task, passages, config.k, config.device) for path in config.models]
    folder.write_json("space.json", {"passages": len(passages), "models": dict(zip(names, found))})
    header = ["measure", *names]
    rows = [[key, *(f"{one[key]:.4f}" for one in found)] for key in found[0]]
    _write_table(folder, "space.md", header, rows, left=1)


def run_errors(config: ErrorsConfig, folder: Folder) -> None:
    """Wins and losses of A against B."""
    from liebig.analyse.wins import compare_runs

    names = system_names(config.runs, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    groups, wins, losses = compare_runs(task, config.runs, config.measure, config.examples)
    tree = {
        "names": names,
        "measure": config.measure,
        "groups": [asdict(group) for group in groups],
        "wins": [asdict(example) for example in wins],
        "losses": [asdict(example) for example in losses],
    }
    folder.write_json("errors.json", tree)
    rows = [
        [group.by, group.name, str(group.queries), f"{group.mean_a:.4f}", f"{group.mean_b:.4f}",
         f"{group.difference:+.4f}", f"{group.wins} / {group.losses}"]
        for group in groups
    ]  # fmt: skip
    header = ["by", "queries that are", "n", *names, "difference", "wins / losses"]
    _write_table(folder, "errors.md", header, rows)


def run_leakage(config: LeakageConfig, folder: Folder) -> None:
    """Evaluation texts inside pre-training texts."""
    task = read_task(config.evaluation, split=config.split)
    checker = Checker(
        {name: query.text for name, query in task.queries.items()}, config.length, config.shortest
    )
    with Progress("reading the corpus", unit="texts") as bar:
        for path in config.corpus:
            for name, text in named_texts(path):
                checker.read(name, text)
                bar.advance()
    leaks = checker.leaks()
    tree = {"checked": len(checker.names), "too_short": checker.skipped, "leaked": len(leaks)}
    folder.write_json("leakage.json", tree | {"leaks": [asdict(leak) for leak in leaks]})
    rows = [[leak.name, leak.run, leak.document, f"{leak.share:.0%}"] for leak in leaks[: config.examples]]
    _write_table(
        folder, "leakage.md", ["query", "run of words", "found in", "share of its runs"], rows, left=3
    )
    show(
        f"{len(leaks)} of {len(checker.names)} texts have a run of {config.length} words (or all of their words) in "
        f"the corpus; {checker.skipped} were shorter than {config.shortest} words and not checked."
    )


def system_names(paths: Sequence[Path], given: Sequence[str]) -> list[str]:
    """The names given, else those of the files; they must differ."""
    names = list(given) or [system_name(path) for path in paths]
    if len(names) != len(paths) or len(set(names)) != len(names):
        raise RecipeError(
            f"{len(paths)} systems need as many different names, not {names}", fix="give names=[...]"
        )
    return names


def _ranked(path: Path, depth: int) -> dict[str, list[str]]:
    return ranked_in(needed_run(path), depth)


def _origins(names: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The model each was fine-tuned from, for those that have one."""
    if given and len(given) != len(names):
        raise RecipeError(f"{len(given)} origins for {len(names)} models", fix="give one a model, - for none")
    found = {name: origin for name, origin in zip(names, given) if origin != "-"}
    for origin in found.values():
        if origin not in names:
            raise RecipeError(f"no model is called {origin!r}", fix="use one of " + ", ".join(names))
    for name in found:
        _root(name, found)
    return found


def _root(name: str, origins: dict[str, str]) -> str:
    """The model that a chain of fine-tuning began with."""
    seen = [name]
    while seen[-1] in origins:
        seen.append(origins[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise RecipeError(
                f"the origins lead in a circle: {', '.join(seen)}", fix="give - to the first model"
            )
    return seen[-1]


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


def _write_table(folder: Folder, name: str, header: list[str], rows: list[list[str]], left: int = 2) -> None:
    folder.write_text(name, markdown(header, rows, left=left))
    show(rich_table("", header, rows, left=left))
