"""Numbers and sizes at the edge: NaN and Inf are refused where they enter, and the smallest corpora work."""

import json
import math

import numpy as np
import pytest
import torch

from liebig.base.config import load
from liebig.base.errors import LiebigError, RecipeError
from liebig.builder.build import BuildConfig
from liebig.indexes import open_index
from liebig.model.encoder import Encoder
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import NAME
from liebig.stages import STAGES
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer
from tests.worlds import faults


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return faults.write_model(tmp_path_factory.mktemp("numbers") / "model")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
def test_a_recipe_takes_no_number_that_is_none(stage, value):
    with pytest.raises(RecipeError, match=r"optim\.lr"):
        load(STAGES[stage].config, None, [f"optim.lr={value}"], {})


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_minutes_are_a_number(value):
    with pytest.raises(RecipeError, match="minutes"):
        load(BuildConfig, None, [f"minutes={value}"], {"sources": ["x"]})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused_by_what_encodes_with_them(tmp_path, model, bad):
    encoder = Encoder.load(model)
    with torch.no_grad():
        next(encoder.parameters()).fill_(bad)
    encoder.save(tmp_path / "model")
    source = faults.write_documents(tmp_path / "source", ["barley"])
    with pytest.raises(LiebigError, match=r"NaN|infinite|finite"):
        faults.build_retriever(source, tmp_path / "model", tmp_path / "out")


@pytest.mark.parametrize("kind", ["exact", "faiss"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_query_vector_that_is_no_number_is_refused(tmp_path, small_vectors, kind, bad):
    index = open_index(small_vectors[kind])
    query = np.zeros((1, index.width), np.float32)
    query[0, 1] = bad
    with pytest.raises(LiebigError, match=r"NaN|infinite|finite"):
        index.search(query, 3)


@pytest.fixture(scope="module")
def small_vectors(model, tmp_path_factory):
    """Indexes of each kind over a few passages."""
    from liebig.base import pipeline

    home = tmp_path_factory.mktemp("vectors")
    source = faults.write_documents(home / "source", faults.TOPICS)
    recipe = {
        "collection": {"kind": "init", "paths": [str(source)]},
        "passages": {"kind": "passages", "collection": "@collection", "tokenizer": str(model)},
        "exact": {"kind": "encode", "source": "@passages", "model": str(model)},
        "faiss": {"kind": "index", "vectors": "@exact", "index": {"kind": "faiss", "factory": "HNSW8"}},
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, home), lambda line: None)
    return {kind: home / kind for kind in ("exact", "faiss")}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "2", "-1"])
def test_a_weight_of_a_retriever_that_is_none_is_refused(tmp_path, model, value, one):
    text = (one / NAME).read_text()
    (one / NAME).write_text(text.replace('"weight": 0.5', f'"weight": {value}'))
    try:
        assert json.loads((one / NAME).read_text())["weight"] != 0.5
        with pytest.raises(LiebigError, match="weight"):
            Retriever.from_folder(one).search("barley")
    finally:
        (one / NAME).write_text(text)


@pytest.fixture(scope="module")
def one(model, tmp_path_factory):
    """A retriever of one document."""
    home = tmp_path_factory.mktemp("one")
    (home / "source").mkdir()
    (home / "source" / "only.md").write_text("Barley.\n")
    faults.build_retriever(home / "source", model, home / "out")
    return home / "out"


@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid"])
def test_one_document_is_a_corpus_and_k_may_be_larger(one, system):
    results = Retriever.from_folder(one).search("barley", 100, system)
    assert [result.doc for result in results] == ["only.md"]
    assert all(math.isfinite(result.score) for result in results)


@pytest.mark.parametrize("query", ["", " ", "?", "barley " * 3000, "\x00"])
def test_questions_of_any_length_have_an_answer(one, query):
    retriever = Retriever.from_folder(one)
    for system in ("bm25", "dense", "hybrid"):
        assert all(math.isfinite(result.score) for result in retriever.search(query, 3, system))


def test_documents_that_are_all_the_same_and_empty_ones_are_a_corpus(tmp_path, model):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(12):
        (source / f"{number:02}.md").write_text("# Barley\n\nBarley grows.\n")
    (source / "empty.md").write_text("")
    (source / "short.md").write_text("x")
    (source / "long.md").write_text("a very long word list " * 200)
    faults.build_retriever(source, model, tmp_path / "out")
    retriever = Retriever.from_folder(tmp_path / "out")
    for system in ("bm25", "dense", "hybrid"):
        results = retriever.search("barley", 200, system)
        assert len({result.id for result in results}) == len(results)
        scores = [result.score for result in results]
        assert scores == sorted(scores, reverse=True)
        assert all(map(math.isfinite, scores))
    (one,) = retriever.search("barley", 12, "bm25")  # copies are one hit that names the others
    assert {one.doc, *one.metadata["also_in"].split(", ")} == {f"{n:02}.md" for n in range(12)}


def test_a_batch_of_one_gives_the_vectors_of_a_batch_of_many(model):
    encoder = Encoder.load(model)
    texts = ["", "x", "barley grows", "word " * 500]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    # The sums of a batch are taken in another order than those of one text.
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert np.isfinite(together).all()


def test_a_sentence_without_an_end_is_tokenised_a_few_times_whatever_its_length(model, monkeypatch):
    tokenizer, read = Tokenizer.from_folder(model), list[int]()
    offsets = Tokenizer.offsets
    monkeypatch.setattr(
        Tokenizer, "offsets", lambda self, text: read.append(len(text)) or offsets(self, text)
    )
    text = "a list of words " * 300
    pieces = [piece for cut in by_tokens(tokenizer, 48)([[text]]) for piece in cut]
    assert len(pieces) > 50
    assert sum(read) < 4 * len(text), "a piece does not cost the whole sentence"
