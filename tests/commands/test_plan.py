"""Plans: time is measured where there is data, parts add up, and what is assumed is said."""

import json
import os

import pytest
from typer.testing import CliRunner

from liebig import encoders
from liebig.base import machine, pipeline
from liebig.base.errors import RecipeError
from liebig.base.machine import memory
from liebig.builder.build import BuildConfig
from liebig.builder.reading import read_collection
from liebig.builder.runner import Builder
from liebig.cli import make_app
from liebig.collection import Collection
from liebig.planner import (
    ESTIMATORS,
    CorpusSize,
    ModelSize,
    bytes_text,
    known_seconds,
    measure,
    plan_recipe,
    seconds_each,
)
from liebig.stages import STAGES

ASSUMED = CorpusSize(50_000, 80)
MINI = encoders.folder("liebig:mini-v3")


def planned(folder, text, *overrides):
    """The plan of a recipe: rows of stages by name, and the lines."""
    (folder / "recipe.toml").write_text(text)
    made = plan_recipe(STAGES, folder / "recipe.toml", overrides, ASSUMED)
    return {row["stage"]: row for row in made.document["stages"]}, made.lines


def write_collection(folder, passages=40):
    folder.mkdir()
    rows = [{"id": str(i), "title": "", "text": "word " * 50, "doc": ""} for i in range(passages)]
    (folder / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_folder_says_its_own_size():
    size = ModelSize.of(MINI)
    assert (size.layers, size.width, size.vocab) == (6, 384, 24576)
    assert size.parameters == pytest.approx(18.4e6, rel=0.03)


def test_without_data_a_stage_has_memory_and_disk_and_no_time(tmp_path):
    rows, lines = planned(
        tmp_path,
        """
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
""",
    )
    assert [line.split()[0] for line in lines[3:]] == ["bm25", "model", "vectors", "all"]
    assert [row["seconds"] for row in rows.values()] == [None] * 3
    assert all(row["memory_bytes"] > 0 and row["disk_bytes"] > 0 for row in rows.values())
    assert "50,000 passages of 80 tokens, as assumed, timed when nothing exists" in lines[3]
    assert "1,000 steps, timed when nowhere exists" in lines[4]
    assert "without the 3 stages not timed" in lines[-1]
    assert rows["vectors"]["disk_bytes"] == pytest.approx(50_000 * 2 * 768, rel=0.02)


def test_minutes_are_as_long_as_they_are(tmp_path):
    recipe = """
model = { kind = "new", layers = 2, width = 64, heads = 2 }
stores = [{ path = "nowhere" }]
loop = { minutes = 30 }
"""
    rows, lines = planned(tmp_path, recipe)
    assert rows["pretrain"]["seconds"] == 1800
    assert "minutes of the recipe" in lines[3]
    assert planned(tmp_path, recipe, "loop.minutes=60")[0]["pretrain"]["seconds"] == 3600


def test_stages_are_timed_on_data_that_exists(tmp_path):
    collection = write_collection(tmp_path / "collection")
    rows, lines = planned(
        tmp_path,
        f"""
[stages.bm25]
collection = "{collection}"
[stages.prepare]
collection = "{collection}"
tokenizer = "{MINI}"
[stages.vectors]
kind = "encode"
source = "{collection}"
model = "{MINI}"
""",
    )
    assert list(rows) == ["bm25", "prepare", "vectors"]
    assert all(row["seconds"] > 0 for row in rows.values())
    assert "40 passages of about" in lines[3]


def test_steps_of_a_training_are_timed_on_its_data(tmp_path):
    store = tmp_path / "store"
    collection = write_collection(tmp_path / "collection")
    words = ["prepare", str(collection), "--tokenizer", str(MINI), "--out", str(store)]
    assert CliRunner().invoke(make_app(), words).exit_code == 0
    rows, lines = planned(
        tmp_path,
        f"""
model = {{ kind = "new", layers = 1, width = 16, heads = 2 }}
stores = [{{ path = "{store}" }}]
max_length = 32
loop = {{ steps = 1000, batch = 4 }}
""",
    )
    assert rows["pretrain"]["seconds"] > 0
    assert "1,000 steps of" in lines[3]


def test_an_item_is_timed_on_as_many_as_take_long_enough(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("liebig.planner.perf_counter", lambda: clock[0])
    sizes = []

    def work(items):
        sizes.append(len(items))
        clock[0] += 0.01 * len(items)

    assert seconds_each(work, range(1000)) == pytest.approx(0.01)
    assert sizes == [16, 16, 32, 64, 128, 256]
    assert seconds_each(work, range(10)) == pytest.approx(0.01)


def test_only_minutes_and_short_stages_are_known_before_a_run(tmp_path):
    collection = write_collection(tmp_path / "collection")
    stages = {
        "vectors": {"kind": "encode", "source": str(collection), "model": str(MINI)},
        "index": {"kind": "index", "vectors": "@vectors"},
    }
    items = pipeline.plan_stages(STAGES, stages, tmp_path / "runs")
    assert {item.name: known_seconds(item) for item in items} == {"vectors": None, "index": 0.0}


def test_every_estimator_is_a_stage():
    assert set(ESTIMATORS) <= set(STAGES)
    assert [bytes_text(x) for x in (1.5e12, 2e9, 3e6, 4e3)] == ["1.5 TB", "2 GB", "3 MB", "4 kB"]


@pytest.mark.skipif(machine.WINDOWS, reason="Windows has no sysconf")
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


def write_articles(folder, count=3):
    for i in range(count):
        text = f"Growth in year {i} is limited by the scarcest of {i + 3} nutrients. " * 40
        (folder / f"{i}.md").write_text(f"# Article {i}\n\n{text}\n")


def test_a_folder_is_planned_as_its_build(tmp_path):
    write_articles(tmp_path)
    result = CliRunner().invoke(make_app(), ["plan", str(tmp_path), "--minutes", "10"])
    assert result.exit_code == 0, result.stderr
    rows = [line.split("  ")[0] for line in result.stdout.splitlines()[3:]]
    assert rows == ["read and cut", "BM25", "training", "check", "vectors", "sentences", "all"]
    assert "10 min" in result.stdout.splitlines()[5]


def test_the_plan_of_a_folder_counts_the_passages_that_the_build_makes(tmp_path):
    write_articles(tmp_path)
    config = BuildConfig(sources=(str(tmp_path),), minutes=0)
    out = tmp_path.parent / f"{tmp_path.name}-out"
    out.mkdir()
    collection = read_collection(Builder(out, print), config, config.start)
    assert measure(config).corpus.passages == Collection(collection).count("passages")


def test_a_large_folder_is_planned_from_a_sample(tmp_path, monkeypatch):
    write_articles(tmp_path, 20)
    config = BuildConfig(sources=(str(tmp_path),), minutes=0)
    whole = measure(config)
    monkeypatch.setattr("liebig.planner.SAMPLE", 10)
    sample = measure(config)
    assert "from the first 10 records" in sample.basis
    # Ten equal files stand for twenty; what is counted of the last one is its text without the heading.
    assert sample.corpus.passages == pytest.approx(whole.corpus.passages, rel=0.02)
    assert sample.text == pytest.approx(whole.text, rel=0.02)


def test_a_source_that_is_not_there_is_one_sentence(tmp_path):
    result = CliRunner().invoke(make_app(), ["plan", str(tmp_path / "nothing")])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)
    assert "no such file or folder" in result.stderr


def test_what_cannot_be_planned_is_said(tmp_path):
    with pytest.raises(RecipeError, match="cannot be planned"):
        planned(tmp_path, "nonsense = 1\n")
    assert "seconds" in planned(tmp_path, '[stages.read]\nkind = "init"\npaths = ["x"]\n')[1][0]
