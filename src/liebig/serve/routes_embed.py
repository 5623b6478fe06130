"""/embed, /v1/embeddings and /rerank, as clients of text-embeddings-inference and of OpenAI call them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from liebig.retriever.embedding import Embedded, Floats, unit_length
from liebig.serve.checks import check_query, check_texts
from liebig.serve.engine import Engine
from liebig.serve.refusals import Refusal
from liebig.serve.replies import reply
from liebig.serve.shapes import EmbeddingsRequest, EmbedRequest, RerankRequest


def embed_routes(engine: Engine, model: str) -> APIRouter:
    """The routes about vectors and scores."""
    routes = APIRouter(tags=["vectors"])

    @routes.post("/embed", summary="Vectors of texts, as text-embeddings-inference gives them")
    async def embed(request: EmbedRequest) -> Response:
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        check_texts(texts, "inputs", engine.limits)
        found = await engine.embed(texts, "query" if request.prompt_name == "query" else "passage")
        if not request.truncate:
            _refuse_cut(found, "inputs")
        return reply(_vectors(engine, found, request.normalize))

    @routes.post("/v1/embeddings", summary="Vectors of texts, as OpenAI's API gives them")
    async def embeddings(request: EmbeddingsRequest) -> Response:
        texts = _openai_texts(request)
        check_texts(texts, "input", engine.limits)
        found = await engine.embed(texts, "query" if request.input_type == "query" else "passage")
        vectors = _vectors(engine, found, None)
        if request.dimensions not in (None, vectors.shape[1]):
            raise Refusal(
                400, f"dimensions = {request.dimensions}, but the model's vectors have {vectors.shape[1]}."
            )
        return reply(_openai(vectors, found, request, model))

    @routes.get("/v1/models", summary="The one model there is")
    async def models() -> Response:
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "liebig"}
        return reply({"object": "list", "data": [entry]})

    @routes.post("/rerank", summary="Texts in the order of their scores for a query")
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
        raise Refusal(400, f"The input is tokens of another vocabulary; send texts ({hint}).")
    return texts  # type: ignore[return-value]  # checked just now


def _vectors(engine: Engine, found: Sequence[Embedded], normalize: bool | None) -> Floats:
    """Scaled as asked; as the index has them where nothing was."""
    assert engine.embedder is not None, "there are vectors"
    vectors: Floats = np.stack([item.vector for item in found])
    return unit_length(vectors) if (engine.embedder.unit if normalize is None else normalize) else vectors


def _refuse_cut(found: Sequence[Embedded], name: str) -> None:
    cut = [place for place, item in enumerate(found) if item.cut]
    if cut:
        sentence = (
            f"Text {cut[0]} of {name} is longer than the {found[cut[0]].tokens} tokens the model takes."
        )
        raise Refusal(413, sentence)


def _openai(
    vectors: Floats, found: Sequence[Embedded], request: EmbeddingsRequest, model: str
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
    tokens = sum(item.tokens for item in found)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model or model, "usage": usage}
