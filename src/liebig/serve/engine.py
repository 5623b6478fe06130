"""The computing behind the routes: a retriever, its model, a reranker, and the queues before them.

Embedding, searching and reranking have a queue each and share a pool of threads, one per core. When `liebig update`
writes a new generation of the folder, the engine switches to it between batches; batches under way finish with the old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from liebig.base.compiled import load_numba
from liebig.base.machine import BYTE_PRODUCTS, compute_alone, cores, instructions
from liebig.bm25.analysis import Analyzer, words
from liebig.bm25.search import TermStatistics
from liebig.integrations.ask import ChatModel
from liebig.search.answer import SearchAnswer, SearchOptions, Sort
from liebig.search.embed import Embedder, Embedding, TextRequest
from liebig.search.explain import Contribution
from liebig.search.generation import Generation
from liebig.search.query_language import parse
from liebig.search.retriever import Retriever
from liebig.serve.batching import Batcher, BatchLimits
from liebig.serve.middleware import Busy, Limits, Metrics, Refusal
from liebig.serve.originals import Originals
from liebig.text.layout import Role
from liebig.vectors.quantise import unit_length

if TYPE_CHECKING:
    from liebig.model.cross_encoder import CrossEncoder


@dataclass(frozen=True)
class Word:
    """A word of a question: its term in BM25 ("" for a stop word), and how many passages contain it."""

    text: str
    term: str
    passages: int | None


def analyzer_of(index: TermStatistics | None) -> Analyzer:
    """The analyzer that turns words into terms: that of the BM25 index if there is one."""
    return Analyzer() if index is None else index.settings.analyzer


def words_of(retriever: Retriever, question: str) -> list[Word]:
    """The distinct words of a question that rank passages, as BM25 sees them."""
    index, text = retriever.current.terms, parse(question).text
    analyzer, distinct = analyzer_of(index), []
    ranking = set(analyzer.query_words(text))
    for word in dict.fromkeys(words(text)):
        terms = analyzer.variants(word) if word in ranking else ()
        known = None if index is None or not terms else index.frequency(*terms)
        distinct.append(Word(word, terms[0] if terms else "", known))
    return distinct


T = TypeVar("T")
EXPLAINED = 8  # explanations that may wait per worker
TOKENS_LIGHT = 60_000  # encoded by numpy: torch would have saved about what importing it takes
QUIET = 2.0  # seconds of answers by numpy before kernels are loaded, which takes seconds of CPU time
log = logging.getLogger("liebig.serve")


@dataclass(frozen=True)
class SearchQuery:
    """A search with one or several systems; only questions with equal options share a batch.

    `filters` are as JSON, so that queries with equal ones are equal.
    """

    text: str
    k: int
    systems: tuple[str | None, ...]
    filters: bytes = b""
    sort: Sort = "best"
    facets: tuple[str, ...] = ()
    floor: bool = True

    @property
    def options(self) -> SearchOptions:
        filters = orjson.loads(self.filters) if self.filters else None
        return SearchOptions(self.k, self.systems, filters, self.sort, self.facets, self.floor)


def frozen(filters: Mapping[str, Any] | None) -> bytes:
    return orjson.dumps(filters, option=orjson.OPT_SORT_KEYS) if filters else b""


class ServingEngine:
    """Answers requests of the routes; call `start` before the first and `close` after the last."""

    def __init__(
        self,
        retriever: Retriever,
        limits: Limits,
        *,
        workers: int | None = None,
        llm: ChatModel | None = None,
        originals: Sequence[Path] = (),
    ) -> None:
        self.retriever, self.limits, self.llm = retriever, limits, llm
        self.metrics, self.originals = Metrics(), Originals(retriever, originals)
        self._workers = workers or cores()
        self._pool = ThreadPoolExecutor(self._workers, "compute", compute_alone)
        self._poll: asyncio.Task[None] | None = None
        self._torch: asyncio.Task[None] | None = None
        self._kernels: asyncio.Task[None] | None = None
        self._loaded: Generation | None = None
        self._has_torch = find_spec("torch") is not None
        self.closing, self._explaining, self._encoded = False, 0, 0

    async def start(self) -> None:
        """Load the model and indexes, and begin to watch the folder for new generations."""
        await self.compute(self._load)
        embedder = self.embedder
        how = BatchLimits(
            budget=self._budget(),
            wait=self.limits.wait_ms / 1000,
            queue=self.limits.queue,
            together=self.limits.batching,
        )
        lanes = 1 if embedder is not None and embedder.cuda else self._workers
        make = partial(self._batcher, how=how, lanes=lanes)
        self._embeds: Batcher[TextRequest, Embedding] = make("embed", self._embed)
        self._searches: Batcher[SearchQuery, SearchAnswer] = make("search", self._search)
        self._pairs: Batcher[tuple[str, str], float] = make("rerank", self._score)
        self._poll = asyncio.create_task(self._watch_folder())
        if self.retriever.light and set(BYTE_PRODUCTS) & set(instructions()):
            self._kernels = asyncio.create_task(self._compile_later())

    def _batcher(
        self, name: str, work: Callable[[list[Any]], Sequence[Any]], *, how: BatchLimits, lanes: int
    ) -> Batcher[Any, Any]:
        made = Batcher(work, self._pool, lanes, how, partial(self.metrics.batched, name))
        self.metrics.waiting.labels(name).set_function(lambda: made.waiting)
        return made

    async def close(self) -> None:
        """Refuse new requests and finish those in the queues."""
        self.closing = True
        for task in filter(None, (self._poll, self._kernels, self._torch)):
            task.cancel()
        await asyncio.gather(*(queue.close() for queue in (self._embeds, self._searches, self._pairs)))
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def embed(self, texts: Sequence[str], kind: Role) -> list[Embedding]:
        """Embed texts, without scaling them to unit length."""
        costs = [self._model().cost(text) for text in texts]
        self._count(sum(costs))
        embeddings = await self._embeds.submit([TextRequest(text, kind) for text in texts], costs)
        self.metrics.tokens.inc(sum(item.tokens for item in embeddings))
        return embeddings

    async def search(self, question: SearchQuery) -> SearchAnswer:
        """The best passages for a question, one list per system."""
        cost = len(question.text) // 4 + 3
        if {system or self.retriever.system for system in question.systems} != {"bm25"}:
            self._count(cost)
        return (await self._searches.submit([question], [cost]))[0]

    def _count(self, tokens: int) -> None:
        """Turn from numpy to torch once that much was encoded, in a thread beside the answers."""
        self._encoded += tokens
        torch_pays = self._encoded > TOKENS_LIGHT and self.retriever.light and self._has_torch
        if torch_pays and self._torch is None:
            self._torch = asyncio.create_task(self._turn_to_torch())

    async def _turn_to_torch(self) -> None:
        if self._kernels is not None:
            await asyncio.wait({self._kernels})
        if self.retriever.light:
            await asyncio.to_thread(self._load_torch)

    def _budget(self) -> int:
        embedder = self.embedder
        return self.limits.budget or (1024 if embedder is None else embedder.budget)

    async def _compile_later(self) -> None:
        await asyncio.sleep(QUIET)
        await asyncio.to_thread(self._compile)
        self._embeds.budget = self._searches.budget = self._pairs.budget = self._budget()

    def _compile(self) -> None:
        """Turn from numpy to compiled kernels, and to int8 where it is good, in a thread beside the answers."""
        try:
            compute_alone()
            load_numba(self._warm)
        except Exception as error:
            log.warning("kernels cannot be loaded, so numpy goes on: %s", error)

    def _warm(self) -> None:
        if self.embedder is not None and self.embedder.turns_to_int8():
            self.retriever.leave_light()
        self._load()

    def _load_torch(self) -> None:
        try:
            import_module("torch")
            compute_alone()  # before another thread meets torch: they all have the threads of the first
            self.retriever.leave_light()
        except Exception as error:
            log.warning("torch cannot be loaded, so numpy goes on encoding: %s", error)

    async def rerank(self, query: str, texts: Sequence[str], *, raw: bool) -> list[float]:
        """Score texts for a query: by the cross-encoder (0 to 1 unless raw), or by the encoder if there is none."""
        if self.reranker is None:
            return await self._similar(query, texts)
        costs = [(len(query) + len(text)) // 4 + 4 for text in texts]
        scores = await self._pairs.submit([(query, text) for text in texts], costs)
        return scores if raw else (1 / (1 + np.exp(-np.array(scores)))).tolist()

    async def _similar(self, query: str, texts: Sequence[str]) -> list[float]:
        of_query, of_texts = await asyncio.gather(self.embed([query], "query"), self.embed(texts, "passage"))
        vectors = np.stack([item.vector for item in (*of_query, *of_texts)])
        vectors = unit_length(vectors) if self._model().unit else vectors
        scores: list[float] = (vectors[1:] @ vectors[0]).tolist()
        return scores

    async def explain(self, query: str, passage: str, system: str) -> list[Contribution]:
        """What each word of a passage adds to its score; few at a time, because one costs as much as many searches."""
        if self._explaining >= EXPLAINED * self._workers:
            raise Busy(self._explaining)
        self._explaining += 1
        try:
            return await self.compute(self.retriever.explain, query, passage, system)
        finally:
            self._explaining -= 1

    def _load(self) -> None:
        """Load the model, map the indexes and compile the kernels."""
        generation = self.retriever.current
        if self.embedder is not None:
            # A model of passages alone is not needed to search: it is loaded with the first passage to embed.
            roles: tuple[Role, ...] = (
                ("query", "passage") if generation.description.query is None else ("query",)
            )
            self._embed([TextRequest("warm", role) for role in roles])
        for system in self.retriever.systems:
            self.retriever.search("a question that opens what is mapped", 1, system)
        self.metrics.generation.set(generation.description.generation)
        self._loaded = generation

    def _embed(self, requests: list[TextRequest]) -> list[Embedding]:
        """Embed texts, those of each role by its model; texts of both share a batch where the model is one."""
        self._model()
        generation, embeddings = self.retriever.current, dict[int, Embedding]()
        places: dict[Embedder, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(generation.embedder_for(request.role), []).append(place)
        for embedder, mine in places.items():
            embeddings.update(zip(mine, embedder.embed([requests[place] for place in mine])))
        return [embeddings[place] for place in range(len(requests))]

    @property
    def embedder(self) -> Embedder | None:
        """The model of questions of the open generation; None if there is no dense index."""
        generation = self.retriever.current
        return generation.embedder if "dense" in generation.description.systems else None

    @property
    def reranker(self) -> CrossEncoder | None:
        """The cross-encoder of the open generation, or of the command line; None if there is none."""
        return self.retriever.reranker

    def _model(self) -> Embedder:
        embedder = self.embedder
        if embedder is None:
            raise Refusal(400, "This folder has no dense index, so there is no model to embed with.")
        return embedder

    def _search(self, questions: list[SearchQuery]) -> list[SearchAnswer | Exception]:
        """Search questions in groups of equal options; an error fails only the questions of its group."""
        answers: dict[int, SearchAnswer | Exception] = {}
        groups: dict[SearchQuery, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(replace(question, text=""), []).append(place)
        for kind, places in groups.items():
            try:
                made = self.retriever.answers([questions[place].text for place in places], kind.options)
            except Exception as error:
                answers |= dict.fromkeys(places, error)
                continue
            answers.update(zip(places, made))
        return [answers[place] for place in range(len(questions))]

    def _score(self, pairs: list[tuple[str, str]]) -> list[float]:
        assert self.reranker is not None, "called only with a reranker"
        scores: list[float] = self.reranker.score(pairs).tolist()
        return scores

    async def _watch_folder(self) -> None:
        """Switch to each new generation; log an unreadable one once and keep serving the old."""
        told = ""
        while True:
            await asyncio.sleep(self.limits.poll)
            try:
                await asyncio.to_thread(self.retriever.reload)
                if self.retriever.current is not self._loaded:
                    await self.compute(self._load)
                    self.metrics.takeovers.inc()
                    log.info("now serving generation %d of the folder", self.retriever.generation)
            except Exception as error:
                self.metrics.failures.inc()
                if str(error) != told:
                    log.warning(
                        "cannot read the new generation of the folder, still serving the old one: %s", error
                    )
                told = str(error)
