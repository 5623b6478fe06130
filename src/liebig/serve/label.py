"""Judging by hand: a person says with single keys which passages answer a question; the result is a judgements file.

The passages of a question are the best ones of every system there is, taken in turn, so that no system is favoured and
none is named. Every judgement is appended to the file at once, as one line of JSON (`question`, `passage`, `relevance`;
null takes it back), and is on the disk before it is answered. Whoever opens the page again goes on at the first
question without a judgement. `liebig build --questions` reads the file (`builder/user_questions.py`).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from filelock import FileLock
from pydantic import Field

from liebig.base.errors import RecipeError
from liebig.base.machine import remove_lock
from liebig.base.records import Passage
from liebig.builder.user_questions import UNJUDGED, incomplete_line, read_file
from liebig.formats.output import json_line
from liebig.search.answer import Result
from liebig.search.explain import without_markup
from liebig.search.retriever_folder import WORK
from liebig.serve.engine import SearchQuery, ServingEngine
from liebig.serve.middleware import Refusal, check_query, reply
from liebig.serve.requests import Own, ParsedRoute
from liebig.serve.routes import page_file, passage_of

JUDGEMENTS = "judgements.jsonl"
POOL_DEPTH = 10  # passages of each system that are judged


class JudgementRequest(Own):
    """What a person says of a passage."""

    question: str = Field(description="The question.")
    passage: str = Field(description="The passage's id.")
    relevance: Literal[0, 1] | None = Field(description="1: it answers; 0: it does not; null: nobody knows.")


class RestRequest(Own):
    """Passages that a person says do not answer, together."""

    question: str = Field(description="The question.")
    passages: list[str] = Field(description="The ids of the passages without a judgement.", max_length=1000)


class QuestionRequest(Own):
    """Another question to judge."""

    question: str = Field(description="The question.")


def key_of(question: str) -> str:
    """Questions that differ in case and spaces are one."""
    return " ".join(question.casefold().split())


@dataclass
class Labelling:
    """Questions, the file of judgements, and what it says so far."""

    file: Path
    questions: list[str]
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, folder: Path, questions: Path | None, file: Path | None) -> Labelling:
        """Questions of a file, of the last build, and of the judgements there are; each once.

        A last judgement that was not written completely is removed, so that the next one is not appended to it.
        """
        out = file or folder / JUDGEMENTS
        if out.suffix != ".jsonl":
            raise RecipeError("judgements are lines of JSON", file=out, fix="name a file that ends in .jsonl")
        if file is None and not out.resolve().is_relative_to(folder.resolve()):
            raise RecipeError(
                "is a link that leads out of the folder", file=out, fix="name a file with --out"
            )
        waiting = folder / WORK / "given" / UNJUDGED
        texts: dict[str, str] = {}
        grades: dict[str, dict[str, int]] = {}
        notes: list[str] = []
        if out.is_file() and (last := incomplete_line(out)):
            os.truncate(out, out.read_bytes().rfind(b"\n") + 1)
            notes.append(f"{out}: the last line was incomplete and was removed: {last}")
        sources = [questions] if questions is not None else [waiting]
        for source in [*sources, out]:
            if source != questions and not (source.is_file() and source.stat().st_size):
                continue
            own, said = read_file(source)
            notes += (
                said if source != out else []
            )  # of judgements the last counts, so repeating one is no mistake
            for question in own:
                texts.setdefault(key_of(question.text), question.text)
                known = {id: grade for id, grade in question.grades.items() if grade is not None}
                grades.setdefault(key_of(question.text), {}).update(known)
        return cls(out, list(texts.values()), grades, notes)

    @property
    def first(self) -> int:
        """The first question without a judgement; the last one, where there is none."""
        open_ = (n for n, text in enumerate(self.questions) if not self.grades.get(key_of(text)))
        return next(open_, max(0, len(self.questions) - 1))

    def add(self, question: str, passage: str, relevance: int | None) -> None:
        """Write a judgement to the end of the file; it is there when this returns, or the file is as it was."""
        self.add_all(question, {passage: relevance})

    def add_all(self, question: str, grades: Mapping[str, int | None]) -> None:
        """Write several judgements, all of them or none."""
        rows = ({"question": question, "passage": id, "relevance": grade} for id, grade in grades.items())
        with self._lock:
            try:
                append_line(self.file, b"".join(json_line(row).encode() + b"\n" for row in rows))
            except OSError as error:
                sentence = f"The judgement was not saved in {self.file}: {error.strerror}."
                raise Refusal(507, sentence) from None
            known = {**self.grades.get(key_of(question), {}), **grades}
            self.grades[key_of(question)] = {id: grade for id, grade in known.items() if grade is not None}

    def ask(self, question: str) -> int:
        """Add a question; gives its number. One that is there already keeps its own."""
        with self._lock:
            known = [key_of(text) for text in self.questions]
            if key_of(question) in known:
                return known.index(key_of(question))
            self.questions.append(question)
            return len(known)

    @property
    def progress(self) -> dict[str, int]:
        judged = [grades for grades in self.grades.values() if grades]
        return {
            "questions": len(self.questions),
            "judged": len(judged),
            "answered": sum(any(grade > 0 for grade in grades.values()) for grades in judged),
            "judgements": sum(map(len, judged)),
        }


def append_line(path: Path, line: bytes) -> None:
    """Append a line, or several, and wait until they are on the disk; whatever fails, no part stays in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with lock.acquire():  # what another server appends must not be cut off below
        with path.open("ab+", buffering=0) as file:
            _append(file, line)
        remove_lock(lock)


def _append(file: FileIO, line: bytes) -> None:
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read(1) != b"\n":  # a user's own file may end without one
            line = b"\n" + line
    try:
        # What a full disk has no room for is not an error of the first write.
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    except OSError:
        file.truncate(size)
        raise


def pooled(lists: Sequence[Sequence[Result]]) -> list[Result]:
    """The results of several systems in turn, each passage once."""
    by_id: dict[str, Result] = {}
    for rank in range(max(map(len, lists), default=0)):
        for results in lists:
            if rank < len(results):
                by_id.setdefault(results[rank].id, results[rank])
    return list(by_id.values())


def label_routes(engine: ServingEngine, labelling: Labelling) -> APIRouter:
    routes = APIRouter(tags=["label"], route_class=ParsedRoute)

    @routes.get("/label", include_in_schema=False)
    async def page() -> Response:
        return page_file("label.html")

    @routes.get("/label/question", summary="A question with the passages to judge")
    async def question(
        number: Annotated[
            int | None, Query(ge=0, description="Its number (default: the first unjudged).")
        ] = None,
    ) -> Response:
        if not labelling.questions:
            return reply({"number": None, "progress": labelling.progress, "file": str(labelling.file)})
        place = labelling.first if number is None else number
        if place >= len(labelling.questions):
            raise Refusal(404, f"There is no question {place}; there are {len(labelling.questions)}.")
        return reply(await _shown(engine, labelling, place))

    @routes.post("/label/judgement", summary="Judge a passage")
    async def judgement(request: JudgementRequest) -> Response:
        check_query(request.question, engine.limits)
        if request.relevance is not None:  # a judgement may be taken back whatever became of its passage
            await asyncio.to_thread(passage_of, engine, request.passage)
        await asyncio.to_thread(labelling.add, request.question, request.passage, request.relevance)
        return reply({"progress": labelling.progress})

    @routes.post("/label/rest", summary="Nothing else answers: judge several passages as not relevant")
    async def rest(request: RestRequest) -> Response:
        check_query(request.question, engine.limits)
        for id in request.passages:
            await asyncio.to_thread(passage_of, engine, id)
        await asyncio.to_thread(labelling.add_all, request.question, dict.fromkeys(request.passages, 0))
        return reply({"progress": labelling.progress})

    @routes.post("/label/ask", summary="Add a question")
    async def ask(request: QuestionRequest) -> Response:
        return reply({"number": labelling.ask(check_query(request.question, engine.limits))})

    return routes


async def _shown(engine: ServingEngine, labelling: Labelling, number: int) -> dict[str, Any]:
    text = labelling.questions[number]
    systems = tuple(engine.retriever.systems)
    question = SearchQuery(check_query(text, engine.limits), POOL_DEPTH, systems, floor=False)
    lists = (await engine.search(question)).lists
    grades = labelling.grades.get(key_of(text), {})
    passages = [
        {
            "id": r.id,
            "title": r.title,
            "text": without_markup(r.text),
            "doc": r.doc,
            "file": r.metadata.get("path") or r.doc,
            "original": engine.originals.address(Passage(r.id, r.text, r.title, r.doc), r.metadata),
            "relevance": grades.get(r.id),
        }
        for r in pooled(lists)
    ]
    return {
        "number": number,
        "question": text,
        "passages": passages,
        "progress": labelling.progress,
        "file": str(labelling.file),
    }
