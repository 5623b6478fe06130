"""The application: routes around an engine, errors as JSON, the guard before everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from liebig import __version__
from liebig.serve.engine import Engine
from liebig.serve.middleware import Guard
from liebig.serve.replies import handle_errors
from liebig.serve.routes import embed_routes, page_routes, search_routes

ABOUT = "Search, vectors and scores of one retriever's folder. Errors are JSON with one sentence in `error`."


def make_app(engine: Engine, *, token: str | None = None) -> FastAPI:
    """All routes of a server; the engine starts and stops with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.close()

    app = FastAPI(
        title="Liebig",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    model = str(engine.retriever.info().get("model") or "none")
    for routes in (embed_routes(engine, model), search_routes(engine), page_routes(engine, model)):
        app.router.routes.extend(
            routes.routes
        )  # plain and busiest first: an included router is matched twice
    handle_errors(app)
    app.add_middleware(Guard, limits=engine.limits, metrics=engine.metrics, token=token)
    return app
