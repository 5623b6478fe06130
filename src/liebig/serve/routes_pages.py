"""The pages and what they are made of, from a fixed table of files; and /health, /info, /metrics."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from liebig import __version__
from liebig.serve.engine import Engine
from liebig.serve.refusals import Busy, Refusal
from liebig.serve.replies import reply

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
