"""The analyses as commands: files in, a folder with numbers, a table and a plot out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from liebig.base.config import Config, inputs, load
from liebig.base.errors import DataError, LiebigError, RecipeError
from liebig.base.workspace import Folder, stage
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.stages import (
    analyse_attention,
    analyse_neighbours,
    analyse_space,
)
from liebig.stages.analyse_attention import AttentionConfig
from liebig.stages.analyse_neighbours import NeighboursConfig
from liebig.stages.analyse_space import SpaceConfig
from liebig.text.tokenizer import Tokenizer

PASSAGES = {
    f"p{i}": text
    for i, text in enumerate(["Berlin is a city.", "Paris lies on the Seine.", "Bananas are fruit."])
}
PASSAGES |= {f"x{i}": f"Filler number {i} about barley and soil." for i in range(12)}
QUERIES = {"q1": "Which city is Berlin?", "q2": "what lies on the Seine", "q3": "yellow fruit"}
GRADES = {"q1": "p0", "q2": "p1", "q3": "p2"}


def call(shell: Callable[[Any, Folder], None], config: type[Config], out: Path, **values: Any) -> Path:
    recipe = load(config, values=values)
    with stage(out, kind="test", recipe=recipe.model_dump(mode="json"), inputs=inputs(recipe)) as folder:
        shell(recipe, folder)
    return out


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder, two runs, and two random encoders."""
    root = tmp_path_factory.mktemp("world")
    (root / "data" / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": "", "text": text} for name, text in PASSAGES.items()]
    (root / "data" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    (root / "data" / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"{query}\t{passage}\t1\n" for query, passage in GRADES.items())
    (root / "data" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    write_run(root / "a.trec", {"q1": ["p0", "p1"], "q2": ["p1", "p0"], "q3": ["x1", "x2"]})
    write_run(root / "b.trec", {"q1": ["x1", "p0"], "q2": ["p1", "x3"], "q3": ["p2", "x2"]})
    tokenizer = Tokenizer.train(list(PASSAGES.values()) * 3, vocab_size=150, max_length=32)
    for seed in (1, 2, 3):
        backbone = Backbone.create(
            layers=2 if seed == 3 else 3,
            width=16,
            heads=2,
            vocab_size=tokenizer.vocab_size,
            max_positions=32,
            initializer_range=0.5,
            seed=seed,
        )
        Encoder(backbone, tokenizer, pooling="cls").save(root / f"model{seed}")
    return root


def write_run(path: Path, run: dict[str, list[str]]) -> Path:
    lines = [f"{q} Q0 {p} {i} {1 / i} t\n" for q, hits in run.items() for i, p in enumerate(hits, 1)]
    path.write_text("".join(lines))
    return path


def check_svg(path: Path) -> str:
    """The file is SVG and needs nothing from outside."""
    text = path.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "<image" not in text
    return text


def test_attention_has_a_curve_a_model_and_a_plot(world: Path, tmp_path: Path) -> None:
    models = [world / "model1", world / "model2"]
    common = {"models": models, "texts": world / "data", "count": 5}
    out = call(analyse_attention.run, AttentionConfig, tmp_path / "out", **common, origins=["-", "model1"])
    found = read(out / "attention.json")
    curves = {name: np.array(curve["mean"]) for name, curve in found["curves"].items()}
    assert found["texts"] == 5
    assert {len(curve) for curve in curves.values()} == {3}
    assert found["moved"] == {"model2": pytest.approx(np.abs(curves["model1"] - curves["model2"]).mean())}
    assert "model2" in check_svg(out / "attention.svg")


def test_attention_of_a_model_with_itself_does_not_move(world: Path, tmp_path: Path) -> None:
    values = {"models": [world / "model1"] * 2, "names": ["before", "after"], "origins": ["-", "before"]}
    out = call(
        analyse_attention.run, AttentionConfig, tmp_path / "out", texts=world / "data", count=3, **values
    )
    assert read(out / "attention.json")["moved"] == {"after": 0.0}


def test_neighbours_of_a_run_with_itself_are_all_found(world: Path, tmp_path: Path) -> None:
    runs = {"first": [world / "a.trec", world / "a.trec"], "second": [world / "a.trec", world / "b.trec"]}
    out = call(analyse_neighbours.run, NeighboursConfig, tmp_path / "out", **runs, n=[2], k=[1, 2])
    same, other = read(out / "neighbours.json")
    assert same["recall"] == [0.5, 1.0]
    assert other["recall"] == [pytest.approx(1 / 3), pytest.approx(0.5)]
    check_svg(out / "neighbours.svg")


def test_space_describes_every_model(world: Path, tmp_path: Path) -> None:
    models = [world / "model1", world / "model2"]
    out = call(
        analyse_space.run, SpaceConfig, tmp_path / "out", models=models, collection=world / "data", k=3
    )
    found = read(out / "space.json")["models"]
    assert set(found) == {"model1", "model2"}
    for numbers in found.values():
        assert 0 <= numbers["alignment"] <= 4
        assert 1 <= numbers["effective rank"] <= 16
        assert 0 < numbers["isotropy"] <= 1


def test_a_model_tuned_from_a_tuned_one_has_the_colour_of_the_first(world: Path, tmp_path: Path) -> None:
    models, names = [world / "model1", world / "model2", world / "model1"], ["one", "two", "three"]
    values = {"models": models, "names": names, "texts": world / "data", "origins": ["-", "one", "two"]}
    out = call(analyse_attention.run, AttentionConfig, tmp_path / "out", **values)
    assert set(read(out / "attention.json")["moved"]) == {"two", "three"}


def test_one_passage_is_no_space(tmp_path: Path) -> None:
    data = tmp_path / "one"
    (data / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (data / name).write_text(json.dumps({"_id": "a", "text": "x"}) + "\n")
    (data / "qrels" / "test.tsv").write_text("a\ta\t1\n")
    with pytest.raises(DataError, match="at least two passages"):
        call(analyse_space.run, SpaceConfig, tmp_path / "out", models=[tmp_path], collection=data)


@pytest.mark.parametrize(
    ("shell", "config", "values", "what"),
    [
        (
            analyse_neighbours.run,
            NeighboursConfig,
            {"first": ["a.trec", "b.trec"], "second": ["a.trec"]},
            "different numbers of runs",
        ),
        (
            analyse_attention.run,
            AttentionConfig,
            {"models": ["model1", "model1"], "texts": "data"},
            "different names",
        ),
        (
            analyse_attention.run,
            AttentionConfig,
            {"models": ["model1"], "texts": "data", "origins": ["nobody"]},
            "no model is called 'nobody'",
        ),
        (
            analyse_attention.run,
            AttentionConfig,
            {"models": ["model1", "model2"], "texts": "data", "origins": ["model2", "model1"]},
            "form a cycle: model1, model2, model1",
        ),
        (
            analyse_attention.run,
            AttentionConfig,
            {"models": ["model1", "model3"], "texts": "data", "origins": ["-", "model1"]},
            "model3 has 2 layers and its origin model1 has 3",
        ),
    ],
)
def test_what_does_not_fit_is_said(
    world: Path, tmp_path: Path, shell: Any, config: Any, values: dict[str, Any], what: str
) -> None:
    paths = {
        key: [world / name for name in value] if isinstance(value, list) and key != "origins" else value
        for key, value in values.items()
    }
    paths |= {"texts": world / "data"} if "texts" in values else {}
    with pytest.raises(RecipeError, match=what) as error:
        call(shell, config, tmp_path / "out", **paths)
    assert isinstance(error.value, LiebigError)


def test_runs_of_different_queries_have_no_neighbours_to_compare(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.trec").write_text(f"query-{name} Q0 d1 1 1.0 t\n")
    values = {"first": [tmp_path / "one.trec"], "second": [tmp_path / "two.trec"]}
    with pytest.raises(LiebigError, match="no query in common"):
        call(analyse_neighbours.run, NeighboursConfig, tmp_path / "out", **values)


def test_depths_come_in_rising_order(tmp_path: Path) -> None:
    run = tmp_path / "one.trec"
    run.write_text("q1 Q0 d1 1 1.0 t\n")
    values = {"first": [run], "second": [run], "k": [20, 10], "n": [1]}
    found = read(
        call(analyse_neighbours.run, NeighboursConfig, tmp_path / "out", **values) / "neighbours.json"
    )
    assert found[0]["k"] == [10, 20]
