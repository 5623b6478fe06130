"""The FastAPI application: the routes of an engine, errors as JSON, and the `Guard` middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI

from liebig import __version__
from liebig.serve.engine import Engine
from liebig.serve.middleware import Guard
from liebig.serve.replies import handle_errors
from liebig.serve.routes import embed_routes, page_routes, search_routes

ABOUT = (
    "Search, embeddings and reranking for one retriever folder. Errors are JSON with one sentence in `error`."
)


def make_app(engine: Engine, *, token: str | None = None, more: Sequence[APIRouter] = ()) -> FastAPI:
    """Build the application, with more routes than it has where given; the engine starts and stops with it."""

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
        redirect_slashes=False,  # the address it would redirect to is taken from the request
    )
    model = str(engine.retriever.info().get("model") or "none")
    own = (embed_routes(engine, model), search_routes(engine), page_routes(engine, model))
    for routes in (*own, *more):
        # Routes of an included router are matched twice, so they go into the app's own list, busiest first.
        app.router.routes.extend(routes.routes)
    handle_errors(app)
    app.add_middleware(Guard, limits=engine.limits, metrics=engine.metrics, token=token)
    return app
