"""/search, /compare, /explain and /document: what the search page and other programs ask for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response

from liebig.errors import DataError
from liebig.records import Document, Passage
from liebig.serve.checks import check_k, check_query
from liebig.serve.engine import Engine, Question, frozen
from liebig.serve.finding import document_view, row, side_by_side, why_nothing, with_snippets
from liebig.serve.refusals import Refusal
from liebig.serve.replies import reply
from liebig.serve.shapes import CompareRequest, ExplainRequest, SearchRequest, System
from liebig.serve.source import words_of

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
