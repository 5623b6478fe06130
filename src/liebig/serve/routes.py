"""The application and its routes for searching, answering and pages; those for vectors are in vector_routes.py."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import NonNegativeInt
from starlette.routing import Route
from typing_extensions import TypedDict

from liebig import __version__
from liebig.base.errors import DataError, LiebigError, MissingDependency
from liebig.base.json_file import read_json
from liebig.base.json_output import to_json
from liebig.base.records import Passage
from liebig.formats.ledger import FILES, SKIPPED
from liebig.integrations.ask import ChatModel, CitationCheck, messages_of
from liebig.search.answer import SearchAnswer
from liebig.search.context import PromptContext, looked_at, within_budget
from liebig.search.retriever_folder import SystemName
from liebig.serve.engine import SearchQuery, ServingEngine, frozen, words_of
from liebig.serve.middleware import Busy, Guard, Refusal, check_k, check_query, handle_errors, reply
from liebig.serve.query_log import QueryLog, QueryLogging
from liebig.serve.requests import CompareRequest, ContextRequest, ExplainRequest, ParsedRoute, SearchRequest
from liebig.serve.result_rows import document_rows, document_view, side_by_side, why_nothing, with_snippets
from liebig.serve.vector_routes import embed_routes

if TYPE_CHECKING:
    from liebig.integrations.mcp import HTTPEndpoint
    from liebig.search.retriever import Retriever


COMPARE_DEPTH = 50  # /compare looks this deep for a result's rank in the other system


def search_routes(engine: ServingEngine) -> APIRouter:
    routes = APIRouter(tags=["search"], route_class=ParsedRoute)

    @routes.post("/search", summary="Find the best passages for a question")
    async def search(request: SearchRequest) -> Response:
        return await _search(engine, request)

    @routes.get("/search", summary="The same with parameters in the URL")
    async def search_get(
        q: Annotated[str, Query(description="The question.")],
        k: Annotated[int | None, Query(ge=1, description="Number of passages (default 10).")] = None,
        system: Annotated[SystemName | None, Query(description="The system to use.")] = None,
        group: Annotated[bool, Query(description="Passages of one document together.")] = False,
    ) -> Response:
        request = SearchRequest.model_validate({"query": q, "k": k, "system": system, "group": group})
        return await _search(engine, request)

    @routes.post("/compare", summary="Compare two systems side by side")
    async def compare(request: CompareRequest) -> Response:
        return await _compare(engine, request)

    @routes.post("/context", summary="The best passages within a budget of tokens, numbered, for a prompt")
    async def context(request: ContextRequest) -> Response:
        made = await _context(engine, request)
        return reply(asdict(made) | {"text": made.text})

    @routes.post("/ask", summary="Let a language model answer from that context, as server-sent events")
    async def ask(request: ContextRequest) -> Response:
        if engine.llm is None:
            raise Refusal(400, "This server has no language model; start it with --llm URL --llm-model NAME.")
        made = await _context(engine, request)
        return StreamingResponse(answer_events(engine.llm, made), media_type="text/event-stream")

    @routes.post("/explain", summary="Show what each word of a passage adds to its score")
    async def explain(request: ExplainRequest) -> Response:
        query = check_query(request.query, engine.limits)
        passage = await asyncio.to_thread(passage_of, engine, request.id)
        contributions = await engine.explain(query, request.id, request.system)
        words = [{"start": start, "end": end, "contribution": value} for start, end, value in contributions]
        return reply({"id": passage.id, "system": request.system, "text": passage.text, "words": words})

    @routes.get("/document", summary="Show a document with a passage marked")
    async def document(
        passage: Annotated[str, Query(description="The id of a passage of the document.")],
        query: Annotated[
            str, Query(description="The query it was opened for, which --log writes down.")
        ] = "",
    ) -> Response:
        if query.strip():
            check_query(query, engine.limits)

        def view() -> dict[str, Any]:
            marked = passage_of(engine, passage)
            whole = engine.retriever.document(marked.doc) if marked.doc else None
            shown = document_view(whole, marked)
            shown["metadata"] |= marked.metadata
            return shown | {"original": engine.originals.address(marked, shown["metadata"])}

        return reply(await asyncio.to_thread(view))

    @routes.get("/original", summary="Open the file of a document, at a passage")
    async def original(
        passage: Annotated[str, Query(description="The passage's id.")],
        key: Annotated[str, Query(description="The key in the address that /document gives.")],
    ) -> Response:
        return await asyncio.to_thread(engine.originals.open, passage, key)

    return routes


async def _search(engine: ServingEngine, request: SearchRequest) -> Response:
    query, k = check_query(request.query, engine.limits), check_k(request.k, engine.limits)
    began = time.perf_counter()
    answer = await engine.search(
        SearchQuery(
            query,
            k,
            (request.system,),
            frozen(request.filters),
            request.sort,
            tuple(request.facets),
            request.floor,
        )
    )
    took, results = time.perf_counter() - began, answer.results
    retriever = engine.retriever
    shown: dict[str, Any] = {}
    # `asdict` of a thousand results takes as long as many searches, and others wait: JSON is made of them as they are.
    rows: Sequence[Any] = results
    if request.snippets:
        rows = await asyncio.to_thread(with_snippets, engine, query, results)
        words = words_of(retriever, query)
        system = request.system or retriever.system
        nothing = None if results else why_nothing(system, words, bool(request.filters))
        shown = {"words": [asdict(word) for word in words], "nothing": nothing}
    return reply(
        {
            "query": query,
            "system": request.system or retriever.system,
            "generation": answer.generation,
            "took_ms": round(took * 1000, 2),
            **_remarks(answer),
            **shown,
            **({"documents": document_rows(results, rows)} if request.group else {"results": rows}),
        }
    )


async def _context(engine: ServingEngine, request: ContextRequest) -> PromptContext:
    query, k = check_query(request.query, engine.limits), min(looked_at(request.tokens), engine.limits.k)
    answer = await engine.search(SearchQuery(query, k, (request.system,), frozen(request.filters)))
    return await asyncio.to_thread(within_budget, query, answer.results, request.tokens, answer.notes)


def answer_events(llm: ChatModel, context: PromptContext) -> Iterator[bytes]:
    """The answer as events: each has a `delta` of text, the last has the `sources` that were cited, or an `error`."""
    check = CitationCheck(context.sources)
    try:
        for part in check.checked(llm.stream(messages_of(context))) if context.sources else ():
            yield _event({"delta": part})
    except LiebigError as error:
        yield _event({"error": str(error)})
        return
    cited = [asdict(source) for source in context.sources if source.number in check.cited]
    yield _event({"sources": cited, "notes": context.notes, "problem": check.problem})


def _event(value: Any) -> bytes:
    return b"data: " + to_json(value) + b"\n\n"


def _remarks(answer: SearchAnswer) -> dict[str, Any]:
    """What an answer says beside its results; counts only where they were requested."""
    counts = {"facets": answer.facets} if answer.facets else {}
    return {"notes": answer.notes, "suggestion": answer.suggestion, **counts}


async def _compare(engine: ServingEngine, request: CompareRequest) -> Response:
    query, k, retriever = (
        check_query(request.query, engine.limits),
        check_k(request.k, engine.limits),
        engine.retriever,
    )
    began, filters = time.perf_counter(), frozen(request.filters)
    depth = max(COMPARE_DEPTH, k)
    answer = await engine.search(SearchQuery(query, depth, tuple(request.systems), filters))
    took = time.perf_counter() - began
    lists = await asyncio.to_thread(side_by_side, engine, query, request.systems, answer.lists, k)
    words = words_of(retriever, query)
    for item in lists:
        item["nothing"] = None if item["results"] else why_nothing(item["system"], words, bool(filters))
    return reply(
        {
            "query": query,
            "generation": answer.generation,
            "took_ms": round(took * 1000, 2),
            **_remarks(answer),
            "depth": depth,
            "words": [asdict(word) for word in words],
            "lists": lists,
        }
    )


def passage_of(engine: ServingEngine, id: str) -> Passage:
    """A passage by its id; one that is not there is refused."""
    try:
        return engine.retriever.passage(id)
    except DataError:
        raise Refusal(404, f"There is no passage {id!r}.") from None


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
PART = re.compile(rb"<!-- (parts/\w+\.html) -->\n")  # what pages share
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@cache
def asset(name: str) -> tuple[bytes, str]:
    """The content and media type of a page file, with the parts that it shares with other pages filled in."""
    page = files("liebig.serve") / "page"
    content = PART.sub(lambda match: (page / match[1].decode()).read_bytes(), (page / name).read_bytes())
    return content, TYPES[name[name.rfind(".") :]]


@cache
def assets() -> frozenset[str]:
    """The names of all page files; no other file can be requested."""
    return frozenset(
        f.name for f in (files("liebig.serve") / "page").iterdir() if "." + f.name.split(".")[-1] in TYPES
    )


def page_routes(engine: ServingEngine, model: str) -> APIRouter:
    routes = APIRouter(tags=["server"])

    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_file("index.html")

    @routes.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_file("docs.html")

    @routes.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return page_file("icon.svg")

    @routes.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)

    @routes.get("/health", summary="Health check")
    async def health() -> Response:
        if engine.closing:
            raise Busy(0, closing=True)
        return reply({"status": "ok", "generation": engine.retriever.generation})

    @routes.get("/info", summary="The folder, the model and the limits of this server")
    async def info() -> Response:
        return reply(_info(engine, model))

    @routes.get("/files", summary="The files that were read, and those that were not, with the reasons")
    async def files_read() -> Response:
        return reply(await asyncio.to_thread(_files, engine))

    @routes.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return Response(engine.metrics.text(), media_type=PROMETHEUS)

    return routes


def page_file(name: str) -> Response:
    if name not in assets():
        raise Refusal(404, f"There is no page {name!r}.")
    content, kind = asset(name)
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _info(engine: ServingEngine, model: str) -> dict[str, object]:
    embedder, limits = engine.embedder, engine.limits
    return {
        "version": __version__,
        "model_id": model,
        "model_type": "reranker" if engine.reranker is not None else "embedding",
        "dimensions": None if embedder is None else embedder.width,
        "max_input_length": None if embedder is None else embedder.reader.max_length,
        "max_client_batch_size": limits.texts,
        "max_batch_tokens": limits.budget or (embedder.budget if embedder else None),
        "max_k": limits.k,
        "llm": None if engine.llm is None else engine.llm.name,
        "retriever": engine.retriever.info(),
    }


LISTED = 500  # files that were not read, of which /files tells


class NotReadRow(TypedDict):
    """Files of one kind that were not read for one reason."""

    suffix: str
    reason: str
    files: NonNegativeInt


class FilesSummary(TypedDict):
    """`files.json`, as the page takes it (`formats.ledger.Ledger.summary`)."""

    seen: NonNegativeInt
    read: NonNegativeInt
    skipped: NonNegativeInt
    ignored: NonNegativeInt
    not_read: list[NotReadRow]
    cut: dict[str, str]


def _files(engine: ServingEngine) -> dict[str, object]:
    """What the last build or update read and did not read; null where it was made by an earlier version."""
    folder = engine.retriever.folder
    if any((folder / name).is_symlink() for name in (FILES, SKIPPED)):
        raise Refusal(422, f"{FILES} or {SKIPPED} of the folder is a link, and is not followed.")
    if not (folder / FILES).is_file():
        return {"summary": None, "files": [], "more": 0}
    summary = read_json(folder / FILES, FilesSummary, fix="build again")
    try:
        listing = (folder / SKIPPED).read_text(encoding="utf-8", errors="replace").partition("\n\n")[2]
    except FileNotFoundError:  # every file was read
        listing = ""
    sources = engine.retriever.current.description.more.get("sources", ())
    lines = [shortest_name(line, sources) for line in listing.splitlines()]
    return {"summary": summary, "files": lines[:LISTED], "more": max(0, len(lines) - LISTED)}


def shortest_name(line: str, sources: Sequence[str]) -> str:
    """A line about a file without the folder that was indexed, which is the server's own business."""
    return next((line[len(source) + 1 :] for source in sources if line.startswith(f"{source}/")), line)


ABOUT = (
    "Search, embeddings and reranking for one retriever folder. Errors are JSON with one sentence in `error`."
)


class MCPRoute:
    """The tools for assistants; what speaks their protocol takes a CPU second to import, with the first request."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._endpoint: asyncio.Future[HTTPEndpoint] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._endpoint is None:
            self._endpoint = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            endpoint = await asyncio.shield(self._endpoint)  # a client that leaves takes it from no other
        except MissingDependency as error:
            raise Refusal(501, str(error)) from None
        await endpoint(scope, receive, send)

    async def close(self) -> None:
        if self._endpoint is not None:
            with suppress(MissingDependency):
                await asyncio.to_thread((await self._endpoint).close)

    def _load(self) -> HTTPEndpoint:
        from liebig.integrations.mcp import HTTPEndpoint

        return HTTPEndpoint(self._retriever)


def make_app(
    engine: ServingEngine,
    *,
    token: str | None = None,
    more: Sequence[APIRouter] = (),
    log: QueryLog | None = None,
) -> FastAPI:
    """Build the application, with more routes and a log of queries if given; the engine starts and stops with it."""

    mcp = MCPRoute(engine.retriever)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await mcp.close()
        await engine.close()
        if log is not None:
            log.close()

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
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"]))
    handle_errors(app)
    if log is not None:
        app.add_middleware(QueryLogging, log=log)
    app.add_middleware(Guard, limits=engine.limits, metrics=engine.metrics, token=token)
    return app
