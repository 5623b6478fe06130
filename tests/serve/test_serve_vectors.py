"""Vectors and scores over HTTP: equal to the retriever's, alone or in company, for the clients people use."""

import base64
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from liebig.model.cross_encoder import CrossEncoder
from liebig.search.embed import Embedder, TextRequest
from liebig.search.retriever import Retriever
from liebig.serve.middleware import Limits

TEXTS = ["what limits growth", "A comet is a small body of ice and dust.", "x", "horse hair " * 40]


def test_embed_gives_the_retrievers_vectors(client, retriever):
    found = client.post("/embed", json={"inputs": TEXTS}).json()
    assert np.allclose(found, retriever.encode(TEXTS, "passage"), atol=1e-4)
    asked = client.post("/embed", json={"inputs": TEXTS[0], "prompt_name": "query"}).json()
    assert np.allclose(asked, retriever.encode(TEXTS[:1], "query"), atol=1e-4)


def test_normalize_scales_to_length_one(client, retriever):
    found = np.array(client.post("/embed", json={"inputs": TEXTS, "normalize": True}).json())
    vectors = retriever.encode(TEXTS, "passage")
    assert np.allclose(found, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-5)


def test_texts_of_many_requests_get_the_vectors_they_get_alone(server, retriever):
    texts = [f"request number {i} about {'barley ' * (i % 7)}" for i in range(40)]
    with httpx.Client(base_url=server, timeout=30) as client, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda text: client.post("/embed", json={"inputs": text}).json()[0], texts))
    assert np.allclose(found, retriever.encode(texts, "passage"), atol=1e-4)


def test_prompts_are_put_before_queries_and_passages(retriever):
    embedder = retriever.current.embedder
    plain = embedder.embed([TextRequest("query: a text", "passage")])[0]
    embedder.encoder.prompts = {"query": "query: "}
    try:
        layouts = (embedder.encoder.layout_for(kind) for kind in ("passage", "query"))
        prompted = Embedder(embedder.encoder, *layouts, unit=False)
        query, passage = prompted.embed(
            [TextRequest("a text", "query"), TextRequest("query: a text", "passage")]
        )
    finally:
        embedder.encoder.prompts = {}
    assert np.allclose(query.vector, plain.vector, atol=1e-5)
    assert np.allclose(query.vector, passage.vector, atol=1e-5)
    assert query.tokens == passage.tokens


def test_long_texts_are_cut_unless_that_is_refused(client, retriever):
    limit = retriever.current.embedder.encoder.max_length
    long = "barley " * limit
    cut = client.post("/embed", json={"inputs": [long]})
    assert np.allclose(cut.json(), retriever.encode([long], "passage"), atol=1e-4)
    refused = client.post("/embed", json={"inputs": ["short", long], "truncate": False})
    assert refused.status_code == 413
    assert f"Text 1 of inputs is longer than the model's limit of {limit} tokens" in refused.json()["error"]


def test_the_openai_client_gets_the_same_vectors_as_numbers_and_as_bytes(server, retriever):
    from openai import OpenAI

    client = OpenAI(base_url=f"{server}/v1", api_key="none")
    expected = retriever.encode(TEXTS, "passage")
    as_bytes = client.embeddings.create(model="any", input=TEXTS)  # the client asks for base64 by itself
    as_numbers = client.embeddings.create(model="any", input=TEXTS, encoding_format="float")
    for answer in (as_bytes, as_numbers):
        assert np.allclose([item.embedding for item in answer.data], expected, atol=1e-4)
        assert [item.index for item in answer.data] == [0, 1, 2, 3]
    assert client.models.list().data[0].id == "model"


def test_usage_counts_the_tokens_the_model_saw(server, retriever):
    from openai import OpenAI

    client = OpenAI(base_url=f"{server}/v1", api_key="none")
    encoder = retriever.current.embedder.encoder
    usage = client.embeddings.create(model="any", input=TEXTS).usage
    assert usage.prompt_tokens == usage.total_tokens == sum(len(ids) for ids in encoder.tokenize(TEXTS))


def test_questions_are_embedded_as_questions_when_asked(server, retriever):
    from openai import OpenAI

    client = OpenAI(base_url=f"{server}/v1", api_key="none")
    found = client.embeddings.create(model="any", input="x", extra_body={"input_type": "query"})
    assert np.allclose(found.data[0].embedding, retriever.encode(["x"], "query")[0], atol=1e-4)


def test_the_openai_client_shows_our_sentence(server):
    from openai import BadRequestError, OpenAI

    client = OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0)
    with pytest.raises(BadRequestError, match="token ids"):
        client.embeddings.create(model="any", input=[[1, 2, 3]])
    with pytest.raises(BadRequestError, match="dimensions = 7"):
        client.embeddings.create(model="any", input="text", dimensions=7)


def test_base64_is_little_endian_float32(client, retriever):
    body = {"input": "x", "encoding_format": "base64"}
    text = client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    assert np.allclose(np.frombuffer(base64.b64decode(text), "<f4"), retriever.encode(["x"])[0], atol=1e-5)


def test_rerank_by_the_encoder_orders_by_its_scores(client, retriever):
    query = "ice and dust near the sun"
    rows = client.post("/rerank", json={"query": query, "texts": TEXTS, "return_text": True}).json()
    scores = retriever.encode(TEXTS) @ retriever.encode([query], "query")[0]
    assert [row["index"] for row in rows] == np.argsort(-scores).tolist()
    assert np.allclose([row["score"] for row in rows], sorted(scores, reverse=True), atol=1e-3)
    assert [row["text"] for row in rows] == [TEXTS[row["index"]] for row in rows]


def test_a_cross_encoder_reranks_texts_and_searches(serving, folder, retriever, tmp_path):
    retriever.current.embedder.encoder.save(tmp_path / "encoder")
    cross = CrossEncoder.start(tmp_path / "encoder", length=64).eval()
    cross.save(tmp_path / "cross")
    raw = cross.score([("a comet", text) for text in TEXTS])
    reranking = Retriever.from_folder(folder, reranker=tmp_path / "cross")
    with serving(reranking, Limits()) as address, httpx.Client(base_url=address, timeout=60) as client:
        found = client.post("/search", json={"query": "a comet", "k": 4, "system": "reranked"}).json()
        expected = reranking.search("a comet", 4, "reranked")
        assert [row["id"] for row in found["results"]] == [result.id for result in expected]
        scores = [result.score for result in expected]
        assert [row["score"] for row in found["results"]] == pytest.approx(scores, rel=1e-4, abs=1e-5)
        body = {"query": "a comet", "texts": TEXTS}
        rows = client.post("/rerank", json=body | {"raw_scores": True}).json()
        brought = client.post("/rerank", json=body).json()
    by_index = {row["index"]: row["score"] for row in rows}
    assert np.allclose([by_index[i] for i in range(len(TEXTS))], raw, atol=1e-4)
    assert np.allclose(
        [row["score"] for row in brought], [1 / (1 + np.exp(-row["score"])) for row in rows], atol=1e-4
    )
