"""The application: requests, all routes (embedding, reranking, searching, pages), and results as JSON.

/embed and /rerank are compatible with text-embeddings-inference, /v1/embeddings with OpenAI. Requests are pydantic
models. Our own routes refuse unknown fields; the compatible ones ignore them, because those APIs have more fields.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt
from starlette.routing import Route
from typing_extensions import TypedDict

from liebig import __version__
from liebig.base.errors import DataError, LiebigError, MissingDependency
from liebig.base.json_file import read_json
from liebig.base.json_output import to_json
from liebig.base.records import Document, Passage
from liebig.formats.ledger import FILES, SKIPPED
from liebig.integrations.ask import ChatModel, CitationCheck, messages_of
from liebig.search.answer import Result, SearchAnswer, Sort, by_document
from liebig.search.context import PromptContext, looked_at, within_budget
from liebig.search.embed import Embedding, Floats
from liebig.search.explain import WORD, locate, snippet
from liebig.search.query_language import HELP
from liebig.search.retriever_folder import SystemName
from liebig.serve.engine import SearchQuery, ServingEngine, Word, analyzer_of, frozen, words_of
from liebig.serve.middleware import (
    PARSED,
    Busy,
    Guard,
    Refusal,
    check_k,
    check_query,
    check_texts,
    handle_errors,
    reply,
)
from liebig.serve.query_log import QueryLog, QueryLogging
from liebig.vectors.quantise import unit_length

if TYPE_CHECKING:
    from liebig.integrations.mcp import HTTPEndpoint
    from liebig.search.retriever import Retriever

# Search results as JSON: rows, snippets with matching words marked, two systems side by side, whole documents.
#
# Pure functions from results to plain values. The routes run the slower ones in threads.

SHOWN = 260  # characters in a snippet


def document_rows(results: Sequence[Result], rows: Sequence[Any]) -> list[dict[str, Any]]:
    by_id = {result.id: row for result, row in zip(results, rows)}
    return [
        {
            "doc": document.doc,
            "title": document.title,
            "metadata": dict(document.metadata),
            "results": [by_id[result.id] for result in document.results],
        }
        for document in by_document(results)
    ]


def with_snippets(engine: ServingEngine, question: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results with a snippet around the question's words, which are marked, and where the original file opens."""
    analyzer = analyzer_of(engine.retriever)
    rows = []
    for result in results:
        pieces = snippet(result.text, question, analyzer, _window(result.text))
        title = snippet(result.title, question, analyzer, len(result.title))
        marked = {"snippet": [asdict(p) for p in pieces], "title_marks": [asdict(p) for p in title]}
        passage = Passage(result.id, result.text, result.title, result.doc)
        rows.append(
            asdict(result) | marked | {"original": engine.originals.address(passage, result.metadata)}
        )
    return rows


def _window(text: str) -> int:
    """How many words make about SHOWN characters; more in code, where symbols count as words."""
    words = sum(1 for _ in WORD.finditer(text))
    return max(8, round(SHOWN * words / max(len(text), 1)))


def side_by_side(
    engine: ServingEngine, question: str, systems: Sequence[str], rankings: Sequence[Sequence[Result]], k: int
) -> list[dict[str, Any]]:
    """One list per system; each result has its rank in the other, None if it is not there."""
    ranks = [{result.id: result.rank for result in results} for results in rankings]
    lists = []
    for place, (system, results) in enumerate(zip(systems, rankings)):
        rows = with_snippets(engine, question, results[:k])
        for item in rows:
            item["other"] = ranks[1 - place].get(item["id"]) if len(systems) == 2 else None
        lists.append({"system": system, "found": len(results), "results": rows})
    return lists


def why_nothing(system: str, words: Sequence[Word], filtered: bool) -> str:
    """Explain an empty list in one or two sentences."""
    if filtered:
        return "No matching passage passes the filters. Remove a filter to see more."
    known = [word.text for word in words if word.passages]
    terms = [word for word in words if word.term]
    if system == "bm25" and not terms:
        return "The question has only words that are too common or too short to search by. Add a more specific word."
    if system == "bm25" and not known:
        names = ", ".join(f"“{word.text}”" for word in terms)
        advice = "Check the spelling, or search by meaning (dense), which needs no shared words."
        return f"No passage contains the {'words' if len(terms) > 1 else 'word'} {names}. {advice}"
    return "No passage was found."


def document_view(document: Document | None, passage: Passage) -> dict[str, Any]:
    """A document with a passage marked in it; the passage alone if it has no document."""
    if document is None:
        return {
            "id": passage.doc or passage.id,
            "title": passage.title,
            "metadata": {},
            "sections": [{"heading": "", "paragraphs": [passage.text]}],
            "marks": [{"section": 0, "paragraph": 0, "start": 0, "end": len(passage.text)}],
        }
    places = [(s, p) for s, section in enumerate(document.sections) for p in range(len(section.paragraphs))]
    flat = [document.sections[s].paragraphs[p] for s, p in places]
    marks = [
        {
            "section": places[m.paragraph][0],
            "paragraph": places[m.paragraph][1],
            "start": m.start,
            "end": m.end,
        }
        for m in locate(passage.text, flat)
    ]
    return {
        "id": document.id,
        "title": document.title,
        "metadata": dict(document.metadata),
        "sections": [{"heading": s.heading, "paragraphs": list(s.paragraphs)} for s in document.sections],
        "marks": marks,
    }


class ParsedRequest(Request):
    """A request whose body the middleware has parsed."""

    async def json(self) -> Any:
        return self.scope[PARSED]


class ParsedRoute(APIRoute):
    """A route that does not parse the body again."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            return await handle(ParsedRequest(request.scope, request.receive))

        return handle_parsed


System = SystemName
Texts = Annotated[list[str], Field(fail_fast=True)]  # one error is reported, so the first one suffices
TokenIds = Annotated[list[int | list[int]], Field(fail_fast=True)]  # to be refused with advice
Range = dict[str, int | float | str]
Filters = dict[str, str | Texts | Range]


class Own(BaseModel):
    """Base of our own requests: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Own):
    """A search."""

    query: str = Field(
        description=f"The question, or words; it may have {HELP}.", examples=["merge two sorted lists"]
    )
    k: int | None = Field(None, ge=1, description="Number of passages (default 10).")
    system: System | None = Field(None, description="The system to use (default: the one the build chose).")
    filters: Filters | None = Field(
        None,
        description="Metadata fields, each with its required value, a list of accepted values, or a range: "
        '`{"gte": 5, "lt": 9}` for numbers, `{"gte": "2024-05"}` for dates.',
    )
    sort: Sort = Field("best", description="`newest` puts the 100 best passages in the order of their dates.")
    facets: Annotated[list[str], Field(max_length=16)] = Field(
        [],
        description="Fields, such as folder, type and language: `facets` of the answer has the number of matching "
        "documents by value.",
    )
    floor: bool = Field(True, description="Answer with nothing where nothing seems to fit the question.")
    snippets: bool = Field(
        False,
        description="Add a snippet of each passage with the question's words marked, the address of its original file, "
        "what is known of the question's words, and why nothing was found.",
    )
    group: bool = Field(
        False, description="Answer with `documents`, each with its passages, instead of flat `results`."
    )


class CompareRequest(Own):
    """A search with two systems side by side."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    systems: Annotated[list[System], Field(min_length=1, max_length=2, fail_fast=True)] = Field(
        description="One or two systems.", examples=[["bm25", "dense"]]
    )
    k: int | None = Field(None, ge=1, le=100, description="Number of passages per system (default 10).")
    filters: Filters | None = Field(None, description="As in /search.")


class ContextRequest(Own):
    """A question whose best passages are to go into a prompt."""

    query: str = Field(description="As in /search.", examples=["merge two sorted lists"])
    tokens: int = Field(2000, ge=1, le=100_000, description="Budget of tokens, which are estimated.")
    system: System | None = Field(None, description="The system to use (default: the one the build chose).")
    filters: Filters | None = Field(None, description="As in /search.")


class ExplainRequest(Own):
    """A question and a passage to explain."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    id: str = Field(description="The passage's id.")
    system: Literal["dense", "bm25"] = Field("dense", description="The system whose score to explain.")


class EmbedRequest(BaseModel):
    """A request of text-embeddings-inference for embeddings."""

    inputs: str | Texts = Field(
        description="One text or a list of texts.", examples=[["the first", "the second"]]
    )
    normalize: bool | None = Field(None, description="Scale vectors to length 1 (default: as in the index).")
    truncate: bool = Field(
        True, description="Cut texts that are too long for the model; otherwise they are refused."
    )
    prompt_name: Literal["query", "passage", "document"] | None = Field(
        None, description="What the texts are; some models use another prompt for queries."
    )


class EmbeddingsRequest(BaseModel):
    """A request of OpenAI's API for embeddings."""

    input: str | Texts | TokenIds = Field(
        description="One text or a list of texts.", examples=[["the first", "the second"]]
    )
    model: str = Field("", description="Ignored: the server has one model.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="A list of numbers, or their bytes in base64."
    )
    dimensions: int | None = Field(None, description="Must be the model's own width if given.")
    input_type: Literal["query", "passage", "document"] = Field(
        "passage", description="What the texts are; some models use another prompt for queries."
    )


class RerankRequest(BaseModel):
    """A request of text-embeddings-inference for reranking."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    texts: Texts = Field(description="The texts to rank.", examples=[["heapq.merge", "list.sort"]])
    raw_scores: bool = Field(
        False, description="Return the cross-encoder's raw scores instead of scores from 0 to 1."
    )
    return_text: bool = Field(False, description="Return the texts too.")
    truncate: bool = Field(True, description="Accepted for compatibility; long texts are always cut.")


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
        system: Annotated[System | None, Query(description="The system to use.")] = None,
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


def mcp_endpoint(retriever: Retriever) -> HTTPEndpoint | None:
    """The tools for assistants, at /mcp; None where the package that speaks their protocol is not installed."""
    try:
        from liebig.integrations.mcp import HTTPEndpoint
    except MissingDependency:
        return None
    return HTTPEndpoint(retriever)


async def _no_mcp(request: Request) -> Response:
    raise Refusal(501, str(MissingDependency("mcp", "mcp", "an MCP server")))


def make_app(
    engine: ServingEngine,
    *,
    token: str | None = None,
    more: Sequence[APIRouter] = (),
    log: QueryLog | None = None,
) -> FastAPI:
    """Build the application, with more routes and a log of queries if given; the engine starts and stops with it."""

    mcp = mcp_endpoint(engine.retriever)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        async with nullcontext() if mcp is None else mcp.running():
            yield
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
    app.router.routes.append(Route("/mcp", mcp or _no_mcp, methods=["POST"]))
    handle_errors(app)
    if log is not None:
        app.add_middleware(QueryLogging, log=log)
    app.add_middleware(Guard, limits=engine.limits, metrics=engine.metrics, token=token)
    return app
