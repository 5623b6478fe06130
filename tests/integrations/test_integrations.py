"""LangChain and LlamaIndex, the real packages: their base classes find the right passage with our vectors."""

import json

import numpy as np
import pytest

from liebig.builder.build import BuildConfig, build
from liebig.search.retriever import Retriever

QUESTION = "which nutrient limits growth"
DOCUMENTS = [
    {
        "id": "barley",
        "title": "Barley",
        "text": "Growth is limited by the scarcest nutrient.",
        "year": "1840",
    },
    {"id": "steam", "title": "Steam", "text": "A separate condenser saved fuel.", "year": "1769"},
    {"id": "comet", "title": "Comets", "text": "A comet has a tail of dust.", "year": "1066"},
]


@pytest.fixture(scope="module")
def folder(small_model, tmp_path_factory):
    home = tmp_path_factory.mktemp("integrations")
    (home / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS))
    config = BuildConfig(sources=(str(home / "documents.jsonl"),), model=str(small_model), minutes=0)
    build(config, home / "out", lambda line: None)
    return home / "out"


def test_langchain_finds_the_right_passage(folder):
    pytest.importorskip("langchain_core")
    from langchain_core.retrievers import BaseRetriever

    from liebig.integrations.langchain import LiebigRetriever

    retriever = LiebigRetriever(folder=folder, k=2)
    assert isinstance(retriever, BaseRetriever)
    first, *_ = found = retriever.invoke(QUESTION)
    assert len(found) == 2
    assert first.page_content == DOCUMENTS[0]["text"]
    assert (first.metadata["year"], first.metadata["doc"]) == ("1840", "barley")
    opened = Retriever.from_folder(folder)
    for filters in ({"year": "1769"}, {"year": ["1769"]}, {"year": {"gte": 1700, "lt": 1800}}):
        only = LiebigRetriever(retriever=opened, filters=filters)
        assert [document.metadata["doc"] for document in only.invoke(QUESTION)] == ["steam"]


def test_langchain_is_told_of_a_misspelt_option(folder):
    pytest.importorskip("langchain_core")
    from liebig.integrations.langchain import LiebigRetriever

    with pytest.raises(TypeError, match="not 'K'"):
        LiebigRetriever(folder=folder, K=3)
    assert LiebigRetriever(folder=folder, tags=["a"]).tags == ["a"]


def test_langchain_gets_our_vectors(folder):
    pytest.importorskip("langchain_core")
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    from liebig.integrations.langchain import LiebigEmbeddings

    embeddings = LiebigEmbeddings(folder)
    assert isinstance(embeddings, Embeddings)
    ours = Retriever.from_folder(folder)
    np.testing.assert_allclose(
        embeddings.embed_query(QUESTION), ours.encode([QUESTION], "query")[0], atol=1e-5
    )
    np.testing.assert_allclose(embeddings.embed_documents(["a", "b"]), ours.encode(["a", "b"]), atol=1e-5)
    store = InMemoryVectorStore.from_texts([row["text"] for row in DOCUMENTS], embeddings)
    assert store.similarity_search(DOCUMENTS[1]["text"], k=1)[0].page_content == DOCUMENTS[1]["text"]


def test_llamaindex_finds_the_right_passage(folder):
    pytest.importorskip("llama_index.core")
    from llama_index.core.retrievers import BaseRetriever

    from liebig.integrations.llamaindex import LiebigNodeRetriever

    retriever = LiebigNodeRetriever(folder, k=2)
    assert isinstance(retriever, BaseRetriever)
    first, *_ = found = retriever.retrieve(QUESTION)
    assert len(found) == 2
    assert first.node.get_content() == DOCUMENTS[0]["text"]
    assert (first.node.metadata["year"], first.node.metadata["doc"]) == ("1840", "barley")
    assert first.score >= found[1].score


def test_llamaindex_gets_our_vectors(folder):
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.embeddings.base import BaseEmbedding

    from liebig.integrations.llamaindex import LiebigEmbedding

    embedding = LiebigEmbedding(folder)
    assert isinstance(embedding, BaseEmbedding)
    ours = Retriever.from_folder(folder)
    np.testing.assert_allclose(
        embedding.get_query_embedding(QUESTION), ours.encode([QUESTION], "query")[0], atol=1e-5
    )
    texts = ["one", "two", "three"]
    np.testing.assert_allclose(embedding.get_text_embedding_batch(texts), ours.encode(texts), atol=1e-5)
