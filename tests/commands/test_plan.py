"""Plans: measured rates come back out, parts add up, and what is assumed is said."""

import json
import os

import pytest
import torch
from typer.testing import CliRunner

from liebig import encoders
from liebig.base import pipeline
from liebig.base.errors import RecipeError
from liebig.base.machine import memory
from liebig.builder.build import BuildConfig, read_collection
from liebig.builder.runner import Builder
from liebig.cli import make_app
from liebig.collection import Collection
from liebig.methods.machines import (
    MACHINES,
    Corpus,
    Shape,
    calibrate,
    encoding,
    find_machine as machine,
    lexical,
)
from liebig.planner import ESTIMATORS, known_seconds, measure, plan_recipe, plan_table, size
from liebig.stages import STAGES

H200, CPU2 = MACHINES["h200"], MACHINES["cpu2"]


def test_the_measured_rate_of_encoding_comes_back():
    seconds = encoding("x", Shape.of(None), Corpus(32_238, 82), "fp16", H200, "").seconds
    assert seconds == pytest.approx(1.0, abs=0.08)


def test_disk_is_what_the_vectors_take():
    made = encoding("x", Shape.of(None), Corpus(8_841_823, 80), "fp16", H200, "")
    assert made.disk == pytest.approx(8_841_823 * 2 * 768, rel=0.02)
    assert lexical("x", Corpus(7_300, 100), H200, "").seconds == pytest.approx(1.0)


def test_a_folder_says_its_own_size():
    shape = Shape.of(encoders.folder("liebig:mini-v2"))
    assert (shape.layers, shape.width, shape.vocab) == (4, 384, 30528)
    assert shape.parameters == pytest.approx(16.05e6, rel=0.03)


def test_twice_the_passages_take_twice_the_time_and_two_devices_half():
    one = encoding("x", Shape.of(None), Corpus(1000, 80), "fp16", H200, "")
    two = encoding("x", Shape.of(None), Corpus(2000, 80), "fp16", H200, "")
    both = encoding("x", Shape.of(None), Corpus(2000, 80), "fp16", H200.at(None, 2), "")
    assert two.seconds == pytest.approx(2 * one.seconds)
    assert both.seconds == pytest.approx(one.seconds)
    assert H200.at(3.0, 2).price == 6.0


def test_a_pipeline_is_planned_stage_by_stage(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("""
[stages.bm25]
collection = "nothing"
[stages.model]
kind = "pretrain"
model = { kind = "new", layers = 2, width = 64, heads = 2 }
stores = [{ path = "nowhere" }]
loop = { steps = 1000, batch = 64 }
[stages.vectors]
kind = "encode"
source = "nothing"
model = "@model/model"
""")
    lines = plan_recipe(STAGES, recipe, [], CPU2, Corpus(50_000, 80)).lines
    assert [line.split()[0] for line in lines[3:]] == ["bm25", "model", "vectors", "all"]
    assert "50,000 passages of 80 tokens, as assumed" in lines[3]
    assert "1,000 steps" in lines[4]
    assert "$" in lines[-1]


def test_minutes_are_as_long_as_they_are(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("""
model = { kind = "new", layers = 2, width = 64, heads = 2 }
stores = [{ path = "nowhere" }]
loop = { minutes = 30 }
""")
    lines = plan_recipe(STAGES, recipe, [], CPU2, Corpus(50_000, 80)).lines
    assert "30 min" in lines[3]
    assert "minutes of the recipe" in lines[3]
    slower = plan_recipe(STAGES, recipe, ["loop.minutes=60"], CPU2, Corpus(50_000, 80)).lines
    assert "1 h" in slower[3]


def test_counts_come_from_data_that_is_there(tmp_path):
    (tmp_path / "collection").mkdir()
    rows = [{"id": str(i), "title": "", "text": "word " * 50, "doc": ""} for i in range(40)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "collection" / "passages.jsonl").write_text(text)
    (tmp_path / "recipe.toml").write_text(f'[stages.bm25]\ncollection = "{tmp_path / "collection"}"\n')
    lines = plan_recipe(STAGES, tmp_path / "recipe.toml", [], CPU2, Corpus(50_000, 80)).lines
    assert "40 passages of about" in lines[3]


def test_nothing_is_said_of_an_encoder_that_a_stage_will_make(tmp_path):
    collection = tmp_path / "collection"
    collection.mkdir()
    (collection / "passages.jsonl").write_text(
        '{"id": "1", "title": "", "text": "one two three", "doc": ""}\n'
    )
    tree = {"kind": "encode", "source": str(collection)}
    models = {"there": encoders.folder("liebig:mini-v2"), "later": tmp_path / "model"}
    stages = {name: {**tree, "model": str(path)} for name, path in models.items()}
    seconds = known_seconds()
    known = {item.name: seconds(item) for item in pipeline.plan_stages(STAGES, stages, tmp_path / "runs")}
    assert known["there"] > 0
    assert known["later"] is None, "not the time of a BERT-base"


def test_every_estimator_is_a_stage_and_the_table_has_three_corpora():
    assert set(ESTIMATORS) <= set(STAGES)
    lines = plan_table(None, H200).lines
    assert ["8,841,823" in lines[3], "21,015,324" in lines[4], "1,000,000,000" in lines[5]] == [True] * 3
    assert "$0.30" in lines[3]


def test_a_machine_is_known_or_measured():
    assert calibrate().matrix > 1e9
    assert machine("cpu2") is CPU2
    with pytest.raises(RecipeError, match="no machine 'h2000'"):
        machine("h2000")
    assert [size(1.5e12), size(2e9), size(3e6), size(4e3)] == ["1.5 TB", "2 GB", "3 MB", "4 kB"]


def test_the_memory_of_this_machine_is_its_own(monkeypatch, tmp_path):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**34 // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    limits = [tmp_path / "memory.max", tmp_path / "absent"]
    monkeypatch.setattr("liebig.base.machine.LIMITS", limits)
    assert memory() == 2**34
    limits[0].write_text("max\n")
    assert memory() == 2**34
    limits[0].write_text(f"{2**33}\n")
    assert memory() == 2**33, "a container has less than its machine"
    if not torch.cuda.is_available():
        assert calibrate().memory == 2**33


def write_articles(folder, count=3):
    for i in range(count):
        text = "Growth is limited by the scarcest nutrient. " * 40
        (folder / f"{i}.md").write_text(f"# Article {i}\n\n{text}\n")


def test_a_folder_is_planned_as_its_build(tmp_path):
    write_articles(tmp_path)
    result = CliRunner().invoke(make_app(), ["plan", str(tmp_path), "--machine", "cpu2", "--minutes", "10"])
    assert result.exit_code == 0, result.stderr
    rows = [line.split("  ")[0] for line in result.stdout.splitlines()[3:]]
    assert rows == ["read and cut", "BM25", "training", "check", "vectors", "sentences", "all"]
    assert "10 min" in result.stdout.splitlines()[5]


def test_the_plan_of_a_folder_counts_the_passages_that_the_build_makes(tmp_path):
    write_articles(tmp_path)
    config = BuildConfig(sources=(str(tmp_path),), minutes=0)
    out = tmp_path.parent / f"{tmp_path.name}-out"
    out.mkdir()
    collection = read_collection(Builder(STAGES, out, print), config, config.start)
    assert measure(config).corpus.passages == Collection(collection).count("passages")


def test_a_large_folder_is_planned_from_a_sample(tmp_path, monkeypatch):
    write_articles(tmp_path, 20)
    config = BuildConfig(sources=(str(tmp_path),), minutes=0)
    whole = measure(config)
    monkeypatch.setattr("liebig.planner.SAMPLE", 10)
    sample = measure(config)
    assert "from the first 10 records" in sample.basis
    # Ten files alike stand for twenty; what is counted of the last one is its text without the heading.
    assert sample.corpus.passages == pytest.approx(whole.corpus.passages, rel=0.02)
    assert sample.text == pytest.approx(whole.text, rel=0.02)


def test_a_source_that_is_not_there_is_one_sentence(tmp_path):
    result = CliRunner().invoke(make_app(), ["plan", str(tmp_path / "nothing"), "--machine", "cpu2"])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)
    assert "no such file or folder" in result.stderr


def test_what_cannot_be_planned_is_said(tmp_path):
    (tmp_path / "recipe.toml").write_text("nonsense = 1\n")
    with pytest.raises(RecipeError, match="cannot be planned"):
        plan_recipe(STAGES, tmp_path / "recipe.toml", [], CPU2, Corpus(1, 1))
    (tmp_path / "short.toml").write_text('[stages.read]\nkind = "init"\npaths = ["x"]\n')
    assert "seconds" in plan_recipe(STAGES, tmp_path / "short.toml", [], CPU2, Corpus(1, 1)).lines[0]
