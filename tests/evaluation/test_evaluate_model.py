"""A model folder as the system: searched exactly, its run kept, every kind of task taken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from liebig import encoders
from liebig.base.compiled import byte_products
from liebig.base.errors import DataError, RecipeError
from liebig.evaluation import drawn_tasks
from liebig.evaluation.results import read_per_query, read_results
from liebig.evaluation.runs import open_run
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.text.tokenizer import Tokenizer
from tests.worlds.evaluation import PASSAGES, QUERIES, beir_folder, run_evaluate, write_run

MEASURES = ["RR@10", "nDCG@10", "R@2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of two layers."""
    texts = [f"{title} {text}" for title, text in PASSAGES.values()] * 3
    tokenizer = Tokenizer.train(texts, vocab_size=120, max_length=32)
    backbone = Backbone.create(
        layers=2,
        width=16,
        heads=2,
        vocab_size=tokenizer.vocab_size,
        max_positions=32,
        initializer_range=0.5,
        seed=1,
    )
    folder = tmp_path_factory.mktemp("model")
    Encoder(backbone, tokenizer, pooling="mean").save(folder)
    return folder


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return beir_folder(tmp_path / "cities")


def by_hand(model: Path) -> dict[str, dict[str, float]]:
    encoder = Encoder.load(model)
    texts = [f"{title} {text}".strip() for title, text in PASSAGES.values()]
    scores = encoder.encode_texts([text for text, _ in QUERIES.values()]) @ encoder.encode_texts(texts).T
    return {
        query: {
            name: float(row[i]) for i, name in sorted(enumerate(PASSAGES), key=lambda item: -row[item[0]])
        }
        for query, row in zip(QUERIES, scores)
    }


def test_a_model_is_evaluated_as_the_run_it_gives(tmp_path: Path, model: Path, collection: Path) -> None:
    run = write_run(tmp_path / "by-hand.trec", by_hand(model))
    a = run_evaluate(tmp_path / "a", system=model, collections=[collection], measures=MEASURES, device="cpu")
    b = run_evaluate(tmp_path / "b", system=run, collections=[collection], measures=MEASURES)
    values = [read_per_query(out, read_results(out).tasks[0]).values for out in (a, b)]
    assert (values[0] == values[1]).all()


def test_passages_are_encoded_in_int8_where_that_is_asked_for(tmp_path: Path, collection: Path) -> None:
    told = {"system": encoders.folder(), "collections": [collection], "device": "cpu"}
    if not byte_products():
        with pytest.raises(RecipeError, match="int8 needs a processor"):
            run_evaluate(tmp_path / "int8", precision="int8", **told)
        return
    runs = []
    for precision in ("fp32", "int8"):
        out = run_evaluate(tmp_path / precision, precision=precision, **told)
        lines = (out / "runs" / "cities-test.trec").read_text().splitlines()
        runs.append({tuple(line.split()[:3:2]): float(line.split()[4]) for line in lines})
    assert runs[0] != runs[1]
    assert runs[1] == pytest.approx(runs[0], abs=0.02), "cosines; int8 moves them by thousandths"


def test_the_run_of_a_model_is_kept_and_gives_the_same_values(
    tmp_path: Path, model: Path, collection: Path
) -> None:
    a = run_evaluate(tmp_path / "a", system=model, collections=[collection], measures=MEASURES, depth=3)
    kept = a / "runs" / "cities-test.trec"
    assert [len(block.passages(i)) for block in open_run(kept) for i in range(len(block.queries))] == [
        3,
        3,
        3,
        3,
    ]
    b = run_evaluate(tmp_path / "b", system=kept, collections=[collection], measures=MEASURES)
    assert (a / "queries" / "cities-test.jsonl").read_bytes() == (
        b / "queries" / "cities-test.jsonl"
    ).read_bytes()


def test_the_run_of_a_model_is_not_read_again(
    tmp_path: Path, model: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("liebig.evaluation.runs.open_run")
    out = run_evaluate(tmp_path / "a", system=model, collections=[collection], measures=MEASURES)
    assert (out / "runs" / "cities-test.trec").is_file()
    assert len((out / "queries" / "cities-test.jsonl").read_text().splitlines()) == 4


def test_a_passage_that_comes_twice_is_refused_with_the_run(
    tmp_path: Path, model: Path, collection: Path
) -> None:
    with (collection / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "p1", "text": "Paris again."}\n')
    with pytest.raises(DataError, match=r"'p1' is found twice for query 'q1'") as refused:
        run_evaluate(tmp_path / "a", system=model, collections=[collection], measures=MEASURES)
    assert str(refused.value.file).endswith("cities-test.trec")


def test_runs_on_two_sets_of_one_name_are_both_kept(tmp_path: Path, model: Path, collection: Path) -> None:
    other = beir_folder(tmp_path / "elsewhere" / "cities", {"p1": PASSAGES["p1"]})
    out = run_evaluate(tmp_path / "a", system=model, collections=[collection, other], measures=MEASURES)
    for folder in ("runs", "queries"):
        assert sorted(path.stem for path in (out / folder).iterdir()) == ["cities-test", "cities-test-2"]
    [first, second] = [
        (out / "runs" / name).read_text() for name in ("cities-test.trec", "cities-test-2.trec")
    ]
    assert "p2" in first
    assert "p2" not in second


def test_pairs_and_triplets_need_no_search(tmp_path: Path, model: Path) -> None:
    pairs = tmp_path / "test.csv"
    pairs.write_text("Berlin is.,Berlin was.,5.0\nBananas.,The Seine.,0.0\nRome.,Vienna.,2.0\n")
    triplets = tmp_path / "triplets.test.jsonl"
    row = {
        "anchor": "Berlin is the capital.",
        "positive": "Berlin is the capital.",
        "negative": "Bananas are yellow.",
    }
    triplets.write_text(json.dumps(row) + "\n")
    out = run_evaluate(tmp_path / "out", system=model, collections=[pairs, triplets])
    similar, nearer = read_results(out).tasks
    assert -1 <= similar.measures["Spearman"].mean <= 1
    assert nearer.measures["Accuracy"].mean == 1.0


def test_candidates_of_a_run_are_ranked_by_the_model(
    tmp_path: Path, model: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_tasks, "CANDIDATES", 2)
    run = write_run(tmp_path / "by-hand.trec", by_hand(model))
    out = run_evaluate(tmp_path / "out", system=model, collections=[collection], candidates=run)
    task = read_results(out).tasks[0]
    assert (task.split, task.queries) == ("test-candidates", 4)
    assert min(read_per_query(out, task).of("RR@100")) >= 1 / 3
    with pytest.raises(DataError, match="the text of query 'q1' is missing"):
        run_evaluate(
            tmp_path / "b", system=model, collections=[collection / "qrels" / "test.tsv"], candidates=run
        )


def test_a_model_needs_texts_of_queries_and_of_passages(
    tmp_path: Path, model: Path, collection: Path
) -> None:
    judged = collection / "qrels" / "test.tsv"
    with pytest.raises(DataError, match="begin with 'q1', 'q2', 'q3', has a text here"):
        run_evaluate(tmp_path / "out", system=model, collections=[judged])
    (collection / "corpus.jsonl").write_text("")
    with pytest.raises(DataError, match="no passages to search"):
        run_evaluate(tmp_path / "out", system=model, collections=[collection])


def test_section_triplets_are_said_to_be_built(tmp_path: Path, model: Path) -> None:
    words = ["apples", "pears", "cars", "ships"]
    sentences = [f"This is one long sentence about {word}." for word in words]
    sections = [{"heading": "A", "paragraphs": sentences[:2]}, {"heading": "B", "paragraphs": sentences[2:]}]
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "documents.jsonl").write_text(
        json.dumps({"id": "d", "title": "D", "sections": sections}) + "\n"
    )
    (folder / "summary.json").write_text("{}")
    out = run_evaluate(tmp_path / "out", system=model, collections=[folder], sections=20)
    task = read_results(out).tasks[0]
    assert task.split == "built-sections"
    assert set(np.unique(read_per_query(out, task).of("Accuracy"))) <= {0.0, 1.0}


@pytest.mark.parametrize("device", ["banana", "cuda:99", "cuda:x"])
def test_a_device_that_is_not_there_is_said(
    tmp_path: Path, model: Path, collection: Path, device: str
) -> None:
    with pytest.raises(RecipeError, match="no such device"):
        run_evaluate(tmp_path / "out", system=model, collections=[collection], device=device)
