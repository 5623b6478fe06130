"""The routes for embedding and reranking.

/embed and /rerank are compatible with text-embeddings-inference, /v1/embeddings with OpenAI.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from liebig.model.settings import Floats
from liebig.search.embed import Embedding
from liebig.serve.engine import ServingEngine
from liebig.serve.middleware import Refusal, check_query, check_texts, reply
from liebig.serve.requests import EmbeddingsRequest, EmbedRequest, ParsedRoute, RerankRequest
from liebig.vectors.quantise import unit_length


def embed_routes(engine: ServingEngine, model: str) -> APIRouter:
    routes = APIRouter(tags=["vectors"], route_class=ParsedRoute)

    @routes.post("/embed", summary="Embed texts (compatible with text-embeddings-inference)")
    async def embed(request: EmbedRequest) -> Response:
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        check_texts(texts, "inputs", engine.limits)
        embeddings = await engine.embed(texts, "query" if request.prompt_name == "query" else "passage")
        if not request.truncate:
            _refuse_cut(embeddings, "inputs")
        return reply(_vectors(engine, embeddings, request.normalize))

    @routes.post("/v1/embeddings", summary="Embed texts (compatible with OpenAI)")
    async def embeddings(request: EmbeddingsRequest) -> Response:
        texts = _openai_texts(request)
        check_texts(texts, "input", engine.limits)
        items = await engine.embed(texts, "query" if request.input_type == "query" else "passage")
        vectors = _vectors(engine, items, None)
        if request.dimensions not in (None, vectors.shape[1]):
            raise Refusal(
                400,
                f"dimensions = {request.dimensions}, but this model's vectors have {vectors.shape[1]} dimensions.",
            )
        return reply(_openai(vectors, items, request, model))

    @routes.get("/v1/models", summary="The model of this server")
    async def models() -> Response:
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "liebig"}
        return reply({"object": "list", "data": [entry]})

    @routes.post("/rerank", summary="Rank texts by their relevance to a query")
    async def rerank(request: RerankRequest) -> Response:
        query = check_query(request.query, engine.limits)
        check_texts(request.texts, "texts", engine.limits)
        scores = await engine.rerank(query, request.texts, raw=request.raw_scores)
        order = np.argsort(-np.array(scores), kind="stable").tolist()
        rows: list[dict[str, Any]] = [{"index": i, "score": scores[i]} for i in order]
        if request.return_text:
            rows = [item | {"text": request.texts[item["index"]]} for item in rows]
        return reply(rows)

    return routes


def _openai_texts(request: EmbeddingsRequest) -> Sequence[str]:
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not all(isinstance(text, str) for text in texts):
        hint = "LangChain: check_embedding_ctx_length=False"
        raise Refusal(400, f"The input is token ids; send texts instead ({hint}).")
    return texts  # type: ignore[return-value]  # checked just now


def _vectors(engine: ServingEngine, embeddings: Sequence[Embedding], normalize: bool | None) -> Floats:
    """The vectors as a matrix, scaled to length 1 if the request says so, by default as in the index."""
    assert engine.embedder is not None, "it made these vectors"
    vectors: Floats = np.stack([item.vector for item in embeddings])
    return unit_length(vectors) if (engine.embedder.unit if normalize is None else normalize) else vectors


def _refuse_cut(embeddings: Sequence[Embedding], name: str) -> None:
    cut = [place for place, item in enumerate(embeddings) if item.cut]
    if cut:
        sentence = (
            f"Text {cut[0]} of {name} is longer than the model's limit of {embeddings[cut[0]].tokens} tokens."
        )
        raise Refusal(413, sentence)


def _openai(
    vectors: Floats, embeddings: Sequence[Embedding], request: EmbeddingsRequest, model: str
) -> dict[str, Any]:
    as_bytes = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": place,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_bytes else vector,
        }
        for place, vector in enumerate(vectors)
    ]
    tokens = sum(item.tokens for item in embeddings)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model or model, "usage": usage}
