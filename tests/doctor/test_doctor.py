"""A folder that is well is found well; every usual mistake, made on purpose, is found and named."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from liebig.base import compiled, pipeline, workspace
from liebig.base.errors import DataError
from liebig.base.machine import PRECISION
from liebig.cli import make_app
from liebig.commands.doctor import encoding, examine, findings, machine
from liebig.model.encoder import Encoder
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES
from liebig.stages.index import IndexConfig, run as run_index
from liebig.vectors import write_shard, write_summary

PASSAGES = [(f"p{i}", f"Title {i}", f"Text number {i} about {word} and {word}s.") for i, word in enumerate(
    ["barley", "steam", "comet", "violin", "glacier", "harbour", "pepper", "mirror", "falcon", "copper"])]  # fmt: skip


def edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module")
def well(small_model, tmp_path_factory):
    """A folder whose parts fit each other."""
    out = tmp_path_factory.mktemp("doctor") / "out"
    (out / "collection").mkdir(parents=True)
    rows = [{"id": id, "title": title, "text": text, "doc": ""} for id, title, text in PASSAGES]
    (out / "collection" / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(small_model, out / "model")
    modules = json.loads((out / "model" / "modules.json").read_text())
    (out / "model" / "modules.json").write_text(
        json.dumps([m for m in modules if "Normalize" not in m["type"]])
    )
    edit(
        out / "model" / "config_sentence_transformers.json",
        prompts={"query": "query: ", "passage": "passage: "},
        similarity_fn_name="dot",
    )
    fields = {"source": str(out / "collection"), "model": str(out / "model")}
    recipe = {"bm25": {"collection": str(out / "collection")}, "index": {"kind": "encode", **fields}}
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    write(out, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model"))
    return out


@pytest.fixture
def folder(well, tmp_path):
    shutil.copytree(well, tmp_path / "out")
    return tmp_path / "out"


def ill(folder):
    return [finding for finding in examine(folder) if not finding.good]


def replace_vectors(folder, make):
    """Put other vectors in the place of the index, with the description it had."""
    summary = json.loads((folder / "index" / "vectors.json").read_text())
    vectors = np.asarray(make(Encoder.load(folder / "model")), np.float32)
    shutil.rmtree(folder / "index")
    with workspace.stage(folder / "index", kind="encode", recipe={}, inputs={}) as stage:
        write_shard(stage.path / "shards" / "0", [id for id, _, _ in PASSAGES], vectors, "fp16")
        write_summary(stage.path, "fp16", vectors.shape[1], ["0"], summary["about"], len(vectors))


def texts(titles=True):
    return [f"{title} {text}" if titles else text for _, title, text in PASSAGES]


def test_the_machine_is_described():
    names = {finding.name for finding in machine()}
    assert {"versions", "processor", "GPU", "attention", "encoders"} <= names
    assert ("encoding" in names) == (not torch.cuda.is_available())
    assert all(finding.good for finding in machine())


def test_what_passages_are_encoded_in_is_said(monkeypatch):
    monkeypatch.setenv(PRECISION, "fp32")
    assert PRECISION in encoding()
    monkeypatch.delenv(PRECISION)
    monkeypatch.setattr(compiled, "byte_products", lambda: "avx512_vnni")
    assert "int8 by the bundled encoder (avx512_vnni)" in encoding()
    monkeypatch.setattr(compiled, "byte_products", lambda: "")
    assert encoding().startswith("in fp32")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv(PRECISION, "int4")
    [wrong] = [finding for finding in machine() if not finding.good]
    assert (wrong.name, wrong.what) == ("encoding", f"{PRECISION} is 'int4'")


def test_a_folder_that_is_well_is_found_well(folder):
    assert ill(folder) == []
    said = {finding.name: finding.what for finding in examine(folder)}
    assert said["vectors"] == "10 passages encoded again: cosine with the index 1.0000"
    assert said["recall"].startswith("1,")


@pytest.mark.parametrize(
    "made",
    [
        lambda encoder: encoder.encode_texts(texts(), prompt="query"),
        lambda encoder: encoder.encode_texts(texts(), prompt="passage", unit=True),
        lambda encoder: encoder.encode_texts(texts(titles=False), prompt="passage"),
        lambda encoder: np.random.default_rng(0).normal(size=(len(PASSAGES), 32)),
    ],
    ids=["prompt", "length", "titles", "model"],
)
def test_vectors_that_the_model_does_not_make_now_are_found(folder, made):
    replace_vectors(folder, made)
    (finding,) = ill(folder)
    assert finding.what.startswith("10 passages encoded again: cosine with the index ")


def test_a_changed_byte_and_a_missing_part_are_found(folder):
    target = next((folder / "index").rglob("vectors.npy"))
    target.write_bytes(target.read_bytes()[:-1] + b"\x07")
    shutil.rmtree(folder / "bm25")
    assert {finding.name for finding in ill(folder)} == {"index", "bm25"}


def test_what_cannot_be_opened_is_a_finding_and_the_rest_is_still_looked_at(folder):
    (folder / "bm25" / "manifest.json").unlink()
    assert [finding.name for finding in ill(folder)] == ["BM25"]
    assert {"vectors", "recall"} <= {finding.name for finding in examine(folder)}


def test_vectors_of_passages_that_are_not_there_are_a_finding(folder):
    path = folder / "collection" / "passages.jsonl"
    path.write_text(path.read_text().replace('"id": "p', '"id": "q'))
    assert ["no passage" in finding.what for finding in ill(folder)] == [True]


def test_passages_that_are_in_no_index_are_counted(folder):
    path = folder / "collection" / "passages.jsonl"
    more = {"id": "new", "title": "", "text": "not indexed", "doc": ""}
    path.write_text(path.read_text() + json.dumps(more) + "\n")
    assert {finding.name: finding.what for finding in ill(folder)} == {
        "BM25": "10 of 11 passages",
        "index": "10 vectors of 11 passages",
    }


def test_recall_of_an_approximate_index_is_measured(folder, monkeypatch):
    with workspace.stage(folder / "faiss", kind="index", recipe={}, inputs={}) as stage:
        config = {"vectors": str(folder / "index"), "index": {"kind": "faiss", "factory": "HNSW8"}}
        run_index(IndexConfig.model_validate(config), stage)
    write(folder, RetrieverDescription(1, "hybrid", "collection", "bm25", "faiss", "model"))
    said = {finding.name: finding.what for finding in examine(folder)}
    assert said["recall"].startswith("1.000 of the 10 best are found")
    monkeypatch.setattr("liebig.indexes.base.measure", lambda *given: 0.5)
    assert [(f.name, f.fix) for f in ill(folder)] == [("recall", "index again")]


@pytest.mark.parametrize("manner", [{"title": "no"}, {"title": "separator"}, {"max_length": 8}])
def test_an_index_that_was_made_otherwise_on_purpose_is_well(folder, manner):
    recipe = {"source": str(folder / "collection"), "model": str(folder / "model"), **manner}
    pipeline.run(
        pipeline.plan_stages(STAGES, {"other": {"kind": "encode", **recipe}}, folder), lambda line: None
    )
    write(folder, RetrieverDescription(1, "hybrid", "collection", "bm25", "other", "model"))
    assert ill(folder) == []


def test_the_command_tells_good_from_bad(folder, tmp_path):
    result = CliRunner().invoke(make_app(), ["doctor", str(folder), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["good"]) == (0, True)
    shutil.rmtree(folder / "bm25")
    result = CliRunner().invoke(make_app(), ["doctor", str(folder)])
    assert result.exit_code == 1
    assert "WRONG  bm25: is missing. To fix it: build again." in result.stdout
    result = CliRunner().invoke(make_app(), ["doctor", str(folder), "--json"])
    bad = [finding for finding in json.loads(result.stdout)["findings"] if not finding["good"]]
    assert (result.exit_code, bad[0]["name"], bad[0]["fix"]) == (1, "bm25", "build again")
    with pytest.raises(DataError, match="not a retriever"):
        list(findings(folder / "model"))
    with pytest.raises(DataError, match="no such folder"):
        list(findings(tmp_path / "nothing"))
