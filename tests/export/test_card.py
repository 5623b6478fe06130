"""The card of an exported model has its evaluation."""

import json

import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from liebig.base.errors import DataError, RecipeError
from liebig.cli import make_app
from liebig.commands.export import export
from tests.worlds.models import small_encoder


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


def test_an_evaluation_that_does_not_fit_the_export_is_refused(model, evaluation, tmp_path):
    for words, to, options in (
        ("--evaluation is for sentence-transformers", "onnx", {}),
        ("vectors of full width", "sentence-transformers", {"width": 3}),
    ):
        with pytest.raises(RecipeError, match=words):
            export(model, to, tmp_path / "out", evaluations=[evaluation], **options)
    assert not (tmp_path / "out").exists()
