"""A model folder goes to the hub, a server on this machine, with a card that has its evaluation, and comes back."""

import json

import numpy as np
import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from liebig import Encoder
from liebig.base.errors import DataError, ModelError, RecipeError
from liebig.cli import make_app
from liebig.commands.export import export
from tests.worlds.hub import TOKEN, connect, serving
from tests.worlds.models import small_encoder

NAME = "someone/barley"
TEXTS = ["what limits growth", "a comet"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_encoder(tmp_path_factory.mktemp("push") / "model")


@pytest.fixture(scope="module")
def evaluation(model, tmp_path_factory):
    home = tmp_path_factory.mktemp("bench")
    (home / "bench" / "qrels").mkdir(parents=True)
    rows = [{"_id": str(n), "title": "", "text": f"text number {n}"} for n in range(5)]
    (home / "bench" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "bench" / "queries.jsonl").write_text('{"_id": "q", "text": "number 3"}\n')
    (home / "bench" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t3\t1\n")
    words = ["evaluate", str(model), str(home / "bench"), "device=cpu", "--out", str(home / "evaluation")]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    return home / "evaluation"


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "hub").mkdir()
    with serving(tmp_path / "hub") as made:
        connect(monkeypatch, made, tmp_path / "cache")
        monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
        monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: TOKEN)
        yield made


def test_a_model_goes_to_the_hub_and_comes_back(model, evaluation, server, tmp_path):
    said = export(
        model, "sentence-transformers", tmp_path / "out", evaluations=[evaluation], push=NAME, private=True
    )
    assert said.endswith(f"Uploaded to {server.address}/{NAME}")
    assert server.private
    folder = tmp_path / "hub" / NAME
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"README.md", "config.json", "model.safetensors", "modules.json"} <= files
    assert "manifest.json" not in files
    np.testing.assert_array_equal(
        Encoder.load(NAME).encode(TEXTS), Encoder.load(tmp_path / "out").encode(TEXTS)
    )


def test_the_card_has_the_measures_where_the_hub_looks_for_them(model, evaluation, tmp_path):
    export(model, "sentence-transformers", tmp_path / "out", evaluations=[evaluation])
    card = ModelCard.load(tmp_path / "out" / "README.md")  # the hub's own parser
    measures = json.loads((evaluation / "results.json").read_text())["tasks"][0]["measures"]
    found = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert found == {name: round(value["mean"], 6) for name, value in measures.items()}
    first = card.data.eval_results[0]
    assert (first.task_type, first.dataset_name, first.dataset_split) == (
        "information-retrieval",
        "bench",
        "test",
    )
    assert "### bench test" in card.text


def test_an_evaluation_of_another_model_is_refused(evaluation, tmp_path):
    other = small_encoder(tmp_path / "other", layers=2)
    with pytest.raises(DataError, match="not an evaluation of the model that is exported"):
        export(other, "sentence-transformers", tmp_path / "out", evaluations=[evaluation])
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_pushed_is_refused_before_anything_is_written(
    model, evaluation, tmp_path, monkeypatch
):
    def refused(sentence, error=ModelError, to="sentence-transformers", **options):
        with pytest.raises(error, match=sentence):
            export(model, to, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()

    refused("write ORG/NAME", push="barley")
    refused("--evaluation and --push are for sentence-transformers", RecipeError, "onnx", push=NAME)
    refused("--private is for --push", RecipeError, private=True)
    refused("vectors of full width", RecipeError, evaluations=[evaluation], width=3)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    refused("needs a token to upload.*hf auth login", push=NAME)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("nothing can be uploaded in offline mode", push=NAME)


def test_a_refused_token_and_a_lost_network_keep_the_folder(model, server, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: "hf_wrong")
    with pytest.raises(ModelError, match=r"refused the token; the folder is complete in .*may write"):
        export(model, "sentence-transformers", tmp_path / "out", push=NAME)
    assert Encoder.load(tmp_path / "out").encode(TEXTS).shape[0] == 2
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")  # nobody listens there
    with pytest.raises(ModelError, match="hub cannot be reached; the folder is complete"):
        export(model, "sentence-transformers", tmp_path / "again", push=NAME)
