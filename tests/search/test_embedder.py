"""One engine from texts to vectors: the plain forward's vectors, whatever the size of the request."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from liebig import encoders
from liebig.base import machine
from liebig.base.compiled import byte_products
from liebig.base.errors import ModelError
from liebig.base.records import Passage
from liebig.evaluation.encoders import ModelScorer
from liebig.indexes.exact import ExactIndex
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.kernels import int8
from liebig.model.settings import LTR_HEAD
from liebig.search import embed
from liebig.search.embed import Embedder, TextRequest
from liebig.search.systems import QueryEncoder
from liebig.search.token_windows import TextItem, Workers
from liebig.text.tokenizer import Tokenizer
from tests.worlds.models import small_encoder

WORDS = ["soil", "barley", "nutrient", "law", "of", "the", "minimum", "chemistry", "agriculture", "corpus"]
PASSAGES = [Passage(f"p{i}", " ".join(WORDS[: 1 + i % 9]) * (1 + i % 4), WORDS[i % 10]) for i in range(40)]
# Sums in another order: float32 rounding over a few dozen terms of numbers around 1.
CLOSE = {"rtol": 1e-5, "atol": 2e-6}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedder") / "model"
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 5, vocab_size=120)
    backbone = Backbone.create(layers=2, width=32, heads=2, vocab_size=tokenizer.vocab_size, max_positions=64)
    prompts = {"query": "law: ", "passage": "soil: "}
    Encoder(backbone, tokenizer, pooling="mean", prompts=prompts).save(folder)
    return folder


@pytest.mark.parametrize("role", ["passage", "query", None])
@pytest.mark.parametrize("unit", [False, True])
def test_vectors_are_those_of_the_plain_forward(model, role, unit):
    embedder = Embedder.load(model, "cpu", unit=unit)
    plain = Encoder.load(model).encode_texts(PASSAGES, prompt=role, unit=unit)
    np.testing.assert_allclose(embedder.vectors(PASSAGES, role), plain, **CLOSE)


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_of_windows_give_the_vectors_of_one_call(model, workers, monkeypatch, forked_helpers):
    monkeypatch.setattr(embed, "WINDOW", 7)
    monkeypatch.setattr(Embedder, "workers", workers)
    monkeypatch.setattr(machine, "START", 1e-9)
    embedder = Embedder.load(model, "cpu")
    plain = Encoder.load(model).encode_texts(PASSAGES, prompt="passage")
    done = []
    windows = list(embedder.stream((TextItem(p.id, p) for p in PASSAGES), "passage", done.append))
    assert [id for window in windows for id in window.ids] == [p.id for p in PASSAGES]
    np.testing.assert_allclose(np.concatenate([w.vectors for w in windows]), plain, **CLOSE)
    np.testing.assert_allclose(embedder.vectors(PASSAGES, "passage"), plain, **CLOSE)
    assert sum(done) == pytest.approx(len(PASSAGES))


def test_requests_of_both_roles_get_the_vectors_of_their_roles(model):
    embedder = Embedder.load(model, "cpu")
    requests = [TextRequest(p, "query" if i % 2 else "passage") for i, p in enumerate(PASSAGES)]
    embeddings = embedder.embed(requests)
    for request, embedding in zip(requests, embeddings):
        alone = embedder.vectors([request.text], request.role)[0]
        np.testing.assert_allclose(embedding.vector, alone, **CLOSE)
        assert embedding.tokens == len(embedder.layout(request.role).lists([request.text])[0])


def test_evaluation_tokenises_beside_the_model(model, monkeypatch):
    """A search of a collection goes through the windows that `liebig encode` uses."""
    seen, plain = [], Workers.windows

    def windows(self, groups, layout):
        for batch in plain(self, groups, layout):
            seen.append(len(batch.ids))
            yield batch

    monkeypatch.setattr(Workers, "windows", windows)
    monkeypatch.setattr(embed, "WINDOW", 16)
    scorer = ModelScorer(model, "cpu", 5)
    items = (TextItem(p.id, p) for p in PASSAGES)
    vectors = np.concatenate([window.vectors for window in scorer.embedder.stream(items, "passage")])
    assert seen == [16, 16, 8]
    np.testing.assert_allclose(vectors, scorer.encoder.encode_texts(PASSAGES, prompt="passage"), **CLOSE)


def test_questions_are_encoded_in_int8_once_its_kernels_are_compiled(monkeypatch):
    index = ExactIndex("fp16", 384, about={"model": str(encoders.folder()), "unit": True})
    precisions = []
    monkeypatch.delenv("LIEBIG_PRECISION")
    for compiled in (False, True):
        monkeypatch.setattr(int8, "is_compiled", lambda kernel, compiled=compiled: compiled)
        precisions.append(QueryEncoder(index).embedder.precision)
    assert precisions == ["fp32", "int8" if byte_products() else "fp32"]
    monkeypatch.setenv("LIEBIG_PRECISION", "fp32")
    assert QueryEncoder(index).embedder.precision == "fp32"


@pytest.mark.skipif(not byte_products(), reason="needs int8 dot products")
def test_questions_in_int8_are_near_those_in_fp32():
    questions = ["when was the steam engine invented", "rivers of Asia", "why do leaves fall?"]
    rough, exact = (
        Embedder.load(encoders.folder(), "cpu", precision=precision).vectors(questions, "query")
        for precision in ("int8", "fp32")
    )
    assert (rough * exact).sum(1).min() > 0.999


@pytest.mark.skipif(not byte_products(), reason="needs int8 dot products")
def test_a_build_in_int8_does_not_import_torch():
    code = """
import sys
import liebig.builder.build, liebig.builder.update
from liebig import encoders
from liebig.search.embed import Embedder

assert Embedder.load(encoders.folder(), "cpu", precision="int8").precision == "int8"
assert not {"torch", "transformers"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_that_ranks_by_a_head_is_refused_by_everything_that_encodes(tmp_path):
    """The ABS paper's LTR baseline: `liebig encode` and `retrieve` load models here."""
    folder = small_encoder(tmp_path / "model")
    (folder / LTR_HEAD).write_bytes(b"")
    with pytest.raises(ModelError, match="ranks pairs by a head of its own"):
        Embedder.load(folder)
