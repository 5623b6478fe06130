"""`--json`: one document on standard output and nothing else there; errors leave it empty."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from liebig.base.json_output import to_json
from liebig.cli import make_app
from tests.worlds.docs import make_world
from tests.worlds.processes import liebig


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Articles, a BEIR folder, runs, a collection with its BM25 index, and a retriever of BM25 alone."""
    folder = tmp_path_factory.mktemp("json")
    make_world(folder, folder)
    for words in (
        ["init", "data/scifact", "--out", "runs/collection"],
        ["bm25", "runs/collection", "--out", "runs/bm25"],
    ):
        assert liebig(words, folder).returncode == 0
    description = {
        "version": 1,
        "generation": 1,
        "system": "bm25",
        "collection": "collection",
        "bm25": "bm25",
    }
    (folder / "runs" / "retriever.json").write_text(json.dumps(description))
    return folder


def document(words, folder, given=""):
    """The one document that a command prints."""
    done = liebig(words, folder, given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def test_numbers_that_are_not_finite_are_null_and_arrays_are_lists():
    value = {"a": math.nan, "b": np.arange(2), "c": np.float32(0.5)}
    assert json.loads(to_json(value)) == {"a": None, "b": [0, 1], "c": 0.5}


def test_init_prints_its_summary(world):
    found = document(["init", "articles", "--out", "runs/read", "--json"], world)
    assert found["counts"]["documents"] == 8
    assert found == json.loads((world / "runs" / "read" / "summary.json").read_text())


def test_evaluate_and_compare_print_what_they_write(world):
    words = ["evaluate", "bm25.trec", "data/scifact", "--out", "runs/judged", "--json"]
    (task,) = document(words, world)["tasks"]
    assert task["measures"]["nDCG@10"]["mean"] == 1.0
    words = [
        "compare",
        "bm25.trec",
        "dense.trec",
        "--qrels",
        "data/scifact",
        "--out",
        "runs/compared",
        "--json",
    ]
    found = document(words, world)
    assert (found["queries"], found["systems"]) == (6, ["bm25", "dense"])


def test_plan_has_seconds_and_bytes(world):
    found = document(["plan", "articles", "--minutes", "2", "--json"], world)
    assert [row["stage"] for row in found["stages"]] == [
        "read and cut",
        "BM25",
        "training",
        "check",
        "vectors",
        "sentences",
    ]
    assert found["stages"][2]["seconds"] == 120
    total = sum(row["seconds"] for row in found["stages"])
    assert found["total"]["seconds"] == pytest.approx(total)
    assert found["total"]["memory_bytes"] == max(row["memory_bytes"] for row in found["stages"])
    assert found["fits"] is True


def test_search_has_the_fields_of_the_http_api(world):
    found = document(["search", "runs", "what limits the growth of barley?", "--json", "--k", "2"], world)
    assert set(found) == {"query", "system", "generation", "took_ms", "notes", "suggestion", "results"}
    first = found["results"][0]
    assert set(first) == {"id", "rank", "score", "title", "text", "doc", "metadata", "ranks"}
    assert (first["id"], first["rank"], first["title"]) == ("barley", 1, "Barley")


def test_a_pipe_asks_a_question_per_line(world):
    done = liebig(["search", "runs", "--json"], world, "what is glass made of?\n\nwhen does rain fall?\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["query"] for answer in answers] == ["what is glass made of?", "when does rain fall?"]
    assert [answer["results"][0]["id"] for answer in answers] == ["glass", "clouds"]
    tables = liebig(["search", "runs"], world, "glass\nrain\n").stdout
    assert tables.index("Glass is made") < tables.index("Rain falls")


def test_a_prompt_asks_until_an_empty_line(world):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "liebig", "search", "runs", "--json"]
    with subprocess.Popen(
        command, cwd=world, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        os.write(ours, b"glass\n\n")
        out, err = process.communicate(timeout=240)
    os.close(ours)
    assert process.returncode == 0
    assert [json.loads(line)["results"][0]["id"] for line in out.splitlines()] == ["glass"]
    assert err.decode().count("question> ") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["search", "runs", "barley", "--system", "dense", "--json"],
        ["search", "runs/bm25", "barley", "--json"],
        ["search", "runs", "--json"],
        ["search", "data", "--json"],
        ["init", "nothing", "--out", "runs/none", "--json"],
        ["plan", "nothing", "--json"],
        ["doctor", "nothing", "--json"],
        ["evaluate", "nothing", "data/scifact", "--out", "runs/none", "--json"],
    ],
)
def test_an_error_leaves_standard_output_empty(world, monkeypatch, words):
    monkeypatch.chdir(world)
    result = CliRunner().invoke(make_app(), words, input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.strip().splitlines()) == 1
