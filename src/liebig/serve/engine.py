"""What computes behind the routes: the retriever, its model, a reranker, and the line before them.

Embedding, searching and reranking each have a line of their own and share the threads that compute, one a core. A
generation that `liebig update` wrote is taken over between batches; those under way finish with the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from liebig.base.machine import cores
from liebig.bm25.analysis import Analyzer, words
from liebig.bm25.search import BM25
from liebig.methods.reranker import CrossEncoder
from liebig.search.embedder import Asked, Embedded, Embedder, Kind, unit_length
from liebig.search.explain import Contribution
from liebig.search.retriever import Opened, Result, Retriever
from liebig.serve.batching import Batcher, Batching
from liebig.serve.metrics import Metrics
from liebig.serve.middleware import Limits
from liebig.serve.replies import Busy, Refusal

# The retriever as the server sees it: its model as an embedder, the words of a question as BM25 takes them.


@dataclass(frozen=True)
class Word:
    """A word of a question: the term it becomes ("" for a stop word), and how many passages have it."""

    text: str
    term: str
    passages: int | None


def analyzer_of(retriever: Retriever) -> Analyzer:
    """What makes terms of words: BM25's own, where there is an index."""
    return _analyzer(retriever.opened.bm25)


def _analyzer(index: BM25 | None) -> Analyzer:
    return Analyzer() if index is None else index.settings.analyzer


def embedder_of(retriever: Retriever) -> Embedder | None:
    """The model as the index used it; None where there is no dense index."""
    opened = retriever.opened
    return opened.embedder if "dense" in opened.described.systems else None


def words_of(retriever: Retriever, question: str) -> list[Word]:
    """The words of a question, as BM25 takes them."""
    index = retriever.opened.bm25
    analyzer, found = _analyzer(index), []
    for word in dict.fromkeys(words(question)):
        term = analyzer.term(word)
        found.append(Word(word, term, None if index is None or not term else frequency(index, term)))
    return found


def frequency(index: BM25, term: str) -> int:
    """In how many passages a term is."""
    numbers = ((segment, segment.terms.get(term)) for segment in index.segments)
    return sum(segment.frequency(number) for segment, number in numbers if number is not None)


T = TypeVar("T")
EXPLAINED = 8  # explanations that may wait for each worker
log = logging.getLogger("liebig.serve")
Filters = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Question:
    """A search by one system or several: only questions of the same depth, systems and filters are asked together."""

    text: str
    k: int
    systems: tuple[str | None, ...]
    filters: Filters = ()


def frozen(filters: Mapping[str, str | Sequence[str]] | None) -> Filters:
    """Filters as a value that can be compared."""
    several = {name: (v,) if isinstance(v, str) else tuple(v) for name, v in (filters or {}).items()}
    return tuple(sorted(several.items()))


class Engine:
    """Answers for the routes; `start` before the first, `close` after the last."""

    def __init__(
        self,
        retriever: Retriever,
        limits: Limits,
        *,
        workers: int | None = None,
        reranker: CrossEncoder | None = None,
    ) -> None:
        self.retriever, self.limits, self.reranker = retriever, limits, reranker
        self.metrics = Metrics()
        self._workers = workers or cores()
        self._pool = ThreadPoolExecutor(self._workers, "compute", torch.set_num_threads, (1,))
        self._poll: asyncio.Task[None] | None = None
        self._loaded: Opened | None = None
        self.closing, self._explaining = False, 0

    async def start(self) -> None:
        """Load what the first request would wait for, and look for new generations from now on."""
        await self.compute(self._load)
        embedder = self.embedder
        how = Batching(
            budget=self.limits.budget or (embedder.budget if embedder else 1024),
            wait=self.limits.wait_ms / 1000,
            queue=self.limits.queue,
            together=self.limits.batching,
        )
        lanes = 1 if embedder is not None and embedder.cuda else self._workers
        make = partial(self._batcher, how=how, lanes=lanes)
        self._embeds: Batcher[Asked, Embedded] = make("embed", self._embed)
        self._searches: Batcher[Question, list[list[Result]]] = make("search", self._search)
        self._pairs: Batcher[tuple[str, str], float] = make("rerank", self._score)
        self._poll = asyncio.create_task(self._watch_folder())

    def _batcher(
        self, name: str, work: Callable[[list[Any]], Sequence[Any]], *, how: Batching, lanes: int
    ) -> Batcher[Any, Any]:
        made = Batcher(work, self._pool, lanes, how, partial(self.metrics.batched, name))
        self.metrics.waiting.labels(name).set_function(lambda: made.waiting)
        return made

    async def close(self) -> None:
        """Finish what is in line; take nothing new."""
        self.closing = True
        if self._poll is not None:
            self._poll.cancel()
        await asyncio.gather(*(line.close() for line in (self._embeds, self._searches, self._pairs)))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Run something in a thread that computes."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def embed(self, texts: Sequence[str], kind: Kind) -> list[Embedded]:
        """Vectors, as the model makes them."""
        costs = [self._model().cost(text) for text in texts]
        found = await self._embeds.submit([Asked(text, kind) for text in texts], costs)
        self.metrics.tokens.inc(sum(item.tokens for item in found))
        return found

    async def search(self, question: Question) -> list[list[Result]]:
        """The best passages of a question, by each of its systems."""
        return (await self._searches.submit([question], [len(question.text) // 4 + 3]))[0]

    async def rerank(self, query: str, texts: Sequence[str], *, raw: bool) -> list[float]:
        """The scores of texts for a query: a cross-encoder's (between 0 and 1 unless raw), else the encoder's."""
        if self.reranker is None:
            return await self._similar(query, texts)
        costs = [(len(query) + len(text)) // 4 + 4 for text in texts]
        scores = await self._pairs.submit([(query, text) for text in texts], costs)
        return scores if raw else (1 / (1 + np.exp(-np.array(scores)))).tolist()

    async def _similar(self, query: str, texts: Sequence[str]) -> list[float]:
        asked, found = await asyncio.gather(self.embed([query], "query"), self.embed(texts, "passage"))
        vectors = np.stack([item.vector for item in (*asked, *found)])
        vectors = unit_length(vectors) if self._model().unit else vectors
        scores: list[float] = (vectors[1:] @ vectors[0]).tolist()
        return scores

    async def explain(self, query: str, passage: str, system: str) -> list[Contribution]:
        """What each word of a passage adds; few at a time, because each is as much work as many searches."""
        if self._explaining >= EXPLAINED * self._workers:
            raise Busy(self._explaining)
        self._explaining += 1
        try:
            return await self.compute(self.retriever.explain, query, passage, system)
        finally:
            self._explaining -= 1

    def _load(self) -> None:
        """Bring model, maps and compiled code into memory."""
        opened = self.retriever.opened
        if self.embedder is not None:
            self._embed([Asked("warm", "query"), Asked("warm", "passage")])
        for system in self.retriever.systems:
            self.retriever.search("a question that opens what is mapped", 1, system)
        self.metrics.generation.set(opened.described.generation)
        self._loaded = opened

    def _embed(self, asked: list[Asked]) -> list[Embedded]:
        return self._model().embed(asked)

    @property
    def embedder(self) -> Embedder | None:
        """The model of the generation that is open; None where there is none."""
        return embedder_of(self.retriever)

    def _model(self) -> Embedder:
        embedder = self.embedder
        if embedder is None:
            raise Refusal(400, "This folder has no dense index, so there is no model to embed with.")
        return embedder

    def _search(self, questions: list[Question]) -> list[list[list[Result]] | Exception]:
        """Questions of one kind at a time; what cannot be asked is an error for those who asked it."""
        found: list[list[list[Result]] | Exception] = [[] for _ in questions]
        for kind in dict.fromkeys((q.k, q.systems, q.filters) for q in questions):
            places = [i for i, q in enumerate(questions) if (q.k, q.systems, q.filters) == kind]
            k, systems, filters = kind
            texts = [questions[i].text for i in places]
            try:
                by_system = self.retriever.search_systems(texts, k, systems, dict(filters) or None)
            except Exception as error:
                for i in places:
                    found[i] = error
                continue
            for i, results in zip(places, zip(*by_system)):
                found[i] = list(results)
        return found

    def _score(self, pairs: list[tuple[str, str]]) -> list[float]:
        assert self.reranker is not None, "asked only where there is one"
        queries, texts = (self.reranker.tokenizer.encode_batch(side) for side in zip(*pairs))
        scores: list[float] = self.reranker.scores(queries, texts).tolist()
        return scores

    async def _watch_folder(self) -> None:
        """Take over each generation that appears, whatever is wrong with one: that is told once."""
        told = ""
        while True:
            await asyncio.sleep(self.limits.poll)
            try:
                await asyncio.to_thread(self.retriever.reload)
                if self.retriever.opened is not self._loaded:
                    await self.compute(self._load)
                    self.metrics.takeovers.inc()
                    log.info("generation %d of the folder is served now", self.retriever.generation)
            except Exception as error:
                self.metrics.failures.inc()
                if str(error) != told:
                    log.warning(
                        "the folder's new generation cannot be read, the one before goes on: %s", error
                    )
                told = str(error)
