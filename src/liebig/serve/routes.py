"""/embed, /v1/embeddings and /rerank, as clients of text-embeddings-inference and of OpenAI call them."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from liebig import __version__
from liebig.base.errors import DataError
from liebig.base.records import Document, Passage
from liebig.search.embedder import Embedded, Floats, unit_length
from liebig.serve.engine import Engine, Question, frozen, words_of
from liebig.serve.middleware import check_k, check_query, check_texts
from liebig.serve.replies import Busy, Refusal, reply
from liebig.serve.result_rows import document_view, row, side_by_side, why_nothing, with_snippets

# The requests, typed and checked: what may be sent to each route, and what it means.
#
# Unknown fields are ignored where a public API has more of them than this server (TEI, OpenAI) and refused
# elsewhere.

System = Literal["hybrid", "dense", "bm25"]
Filters = dict[str, str | list[str]]


class Own(BaseModel):
    """A request of our own: an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Own):
    """A question."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    k: int | None = Field(None, ge=1, description="How many passages; 10 if not given.")
    system: System | None = Field(None, description="Which system is asked; the folder's own if not given.")
    filters: Filters | None = Field(
        None, description="Fields of the metadata, each with the value or the values it must have."
    )
    snippets: bool = Field(False, description="Add the part of each passage that has the question's words.")


class CompareRequest(Own):
    """A question for two systems."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    systems: Annotated[list[System], Field(min_length=1, max_length=2)] = Field(
        description="The systems asked.", examples=[["bm25", "dense"]]
    )
    k: int | None = Field(None, ge=1, le=100, description="How many passages of each; 10 if not given.")
    filters: Filters | None = Field(None, description="As in /search.")


class ExplainRequest(Own):
    """A question and a passage it found."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    id: str = Field(description="The passage's id.")
    system: Literal["dense", "bm25"] = Field("dense", description="Whose score is explained.")


class EmbedRequest(BaseModel):
    """As text-embeddings-inference takes it."""

    inputs: str | list[str] = Field(description="A text, or several.", examples=[["the first", "the second"]])
    normalize: bool | None = Field(
        None, description="Scale vectors to length 1; as those of the index are, if not given."
    )
    truncate: bool = Field(
        True, description="Cut texts that are longer than the model takes, else refuse them."
    )
    prompt_name: Literal["query", "passage", "document"] | None = Field(
        None, description="What the texts are: questions have a prompt of their own in some models."
    )


class EmbeddingsRequest(BaseModel):
    """As OpenAI's API takes it."""

    input: str | list[str] | list[int] | list[list[int]] = Field(
        description="A text, or several.", examples=[["the first", "the second"]]
    )
    model: str = Field("", description="Any name: there is one model.")
    encoding_format: Literal["float", "base64"] = Field("float", description="Numbers, or their bytes.")
    dimensions: int | None = Field(None, description="The model's own width, or nothing.")
    input_type: Literal["query", "passage", "document"] = Field(
        "passage", description="What the texts are: questions have a prompt of their own in some models."
    )


class RerankRequest(BaseModel):
    """As text-embeddings-inference takes it."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    texts: list[str] = Field(description="What is put in order.", examples=[["heapq.merge", "list.sort"]])
    raw_scores: bool = Field(False, description="A cross-encoder's own scores, not brought between 0 and 1.")
    return_text: bool = Field(False, description="Send the texts back.")
    truncate: bool = Field(True, description="Long texts are cut.")


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


# /search, /compare, /explain and /document: what the search page and other programs ask for.

DEPTH = 50  # how far the rank of a result in the other system is looked for


def search_routes(engine: Engine) -> APIRouter:
    """The routes about passages."""
    routes = APIRouter(tags=["search"])

    @routes.post("/search", summary="The best passages of a question")
    async def search(request: SearchRequest) -> Response:
        return await _search(engine, request)

    @routes.get("/search", summary="The same by address, for a browser or curl")
    async def search_get(
        q: Annotated[str, Query(description="The question.")],
        k: Annotated[int | None, Query(ge=1, description="How many passages; 10 if not given.")] = None,
        system: Annotated[System | None, Query(description="Which system is asked.")] = None,
    ) -> Response:
        return await _search(engine, SearchRequest(query=q, k=k, system=system, filters=None, snippets=False))

    @routes.post("/compare", summary="Two systems side by side, with the rank of each result in the other")
    async def compare(request: CompareRequest) -> Response:
        return await _compare(engine, request)

    @routes.post("/explain", summary="What each word of a passage adds to its score")
    async def explain(request: ExplainRequest) -> Response:
        query = check_query(request.query, engine.limits)
        passage = await asyncio.to_thread(_passage, engine, request.id)
        found = await engine.explain(query, request.id, request.system)
        words = [{"start": start, "end": end, "contribution": value} for start, end, value in found]
        return reply({"id": passage.id, "system": request.system, "text": passage.text, "words": words})

    @routes.get("/document", summary="A document, and where a passage stands in it")
    async def document(
        passage: Annotated[str, Query(description="The id of a passage; its document is shown.")],
    ) -> Response:
        found = await asyncio.to_thread(_passage, engine, passage)
        whole = await asyncio.to_thread(_document, engine, found)
        return reply(await asyncio.to_thread(document_view, whole, found))

    return routes


async def _search(engine: Engine, request: SearchRequest) -> Response:
    query, k = check_query(request.query, engine.limits), check_k(request.k, engine.limits)
    began = time.perf_counter()
    (results,) = await engine.search(Question(query, k, (request.system,), frozen(request.filters)))
    took = time.perf_counter() - began
    retriever = engine.retriever
    if request.snippets:
        rows = await asyncio.to_thread(with_snippets, retriever, query, results)
    else:
        rows = [row(result) for result in results]
    return reply(
        {
            "query": query,
            "system": request.system or retriever.system,
            "generation": retriever.generation,
            "took_ms": round(took * 1000, 2),
            "results": rows,
        }
    )


async def _compare(engine: Engine, request: CompareRequest) -> Response:
    query, k, retriever = (
        check_query(request.query, engine.limits),
        check_k(request.k, engine.limits),
        engine.retriever,
    )
    began, filters = time.perf_counter(), frozen(request.filters)
    depth = max(DEPTH, k)
    found = await engine.search(Question(query, depth, tuple(request.systems), filters))
    took = time.perf_counter() - began
    lists = await asyncio.to_thread(side_by_side, retriever, query, request.systems, found, k)
    words = words_of(retriever, query)
    for item in lists:
        item["nothing"] = None if item["results"] else why_nothing(item["system"], words, bool(filters))
    return reply(
        {
            "query": query,
            "generation": retriever.generation,
            "took_ms": round(took * 1000, 2),
            "depth": depth,
            "words": [asdict(word) for word in words],
            "lists": lists,
        }
    )


def _passage(engine: Engine, id: str) -> Passage:
    try:
        return engine.retriever.passage(id)
    except DataError:
        raise Refusal(404, f"There is no passage {id!r}.") from None


def _document(engine: Engine, passage: Passage) -> Document | None:
    return engine.retriever.document(passage.doc) if passage.doc else None


# The pages and what they are made of, from a fixed table of files; and /health, /info, /metrics.

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file of the page and its type."""
    file = files("liebig.serve") / "page" / name
    return file.read_bytes(), TYPES[name[name.rfind(".") :]]


@cache
def assets() -> frozenset[str]:
    """The files there are; nothing else is ever read."""
    return frozenset(
        f.name for f in (files("liebig.serve") / "page").iterdir() if "." + f.name.split(".")[-1] in TYPES
    )


def page_routes(engine: Engine, model: str) -> APIRouter:
    """The routes that need no model."""
    routes = APIRouter(tags=["server"])

    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @routes.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return _file("docs.html")

    @routes.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return _file("icon.svg")

    @routes.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return _file(name)

    @routes.get("/health", summary="Whether the server is there")
    async def health() -> Response:
        if engine.closing:
            raise Busy(0, closing=True)
        return reply({"status": "ok", "generation": engine.retriever.generation})

    @routes.get("/info", summary="What is served, and with which limits")
    async def info() -> Response:
        return reply(_info(engine, model))

    @routes.get("/metrics", summary="For Prometheus")
    async def metrics() -> Response:
        return Response(engine.metrics.text(), media_type=PROMETHEUS)

    return routes


def _file(name: str) -> Response:
    if name not in assets():
        raise Refusal(404, f"There is no page {name!r}.")
    content, kind = asset(name)
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _info(engine: Engine, model: str) -> dict[str, object]:
    embedder, limits = engine.embedder, engine.limits
    return {
        "version": __version__,
        "model_id": model,
        "model_type": "reranker" if engine.reranker is not None else "embedding",
        "dimensions": None if embedder is None else embedder.encoder.width,
        "max_input_length": None if embedder is None else embedder.encoder.max_length,
        "max_client_batch_size": limits.texts,
        "max_batch_tokens": limits.budget or (embedder.budget if embedder else None),
        "max_k": limits.k,
        "retriever": engine.retriever.info(),
    }
