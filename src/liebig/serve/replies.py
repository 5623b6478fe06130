"""Answers as JSON, written by orjson, which takes numpy arrays as they are."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from liebig.errors import LiebigError
from liebig.serve.refusals import Refusal, body


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, status, headers, media_type="application/json")


def handle_errors(app: FastAPI) -> None:
    """Every error becomes JSON with one sentence."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return reply(body(request.url.path, error.status, error.sentence), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return reply(body(request.url.path, 422, _sentence(error)), 422)

    @app.exception_handler(LiebigError)
    async def wrong(request: Request, error: LiebigError) -> Response:
        return reply(body(request.url.path, 422, str(error)), 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: f"There is nothing at {request.url.path}; GET /docs lists what there is.",
            405: f"{request.url.path} does not take {request.method}.",
        }
        sentence = sentences.get(error.status_code, f"{error.detail}.")
        return reply(
            body(request.url.path, error.status_code, sentence), error.status_code, dict(error.headers or {})
        )

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        sentence = "The server made a mistake; its log has the details."
        return reply(body(request.url.path, 500, sentence), 500)


def _sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return "The request is not JSON."
    if isinstance(first.get("input"), bytes):
        return "The request is not JSON: send it with the header Content-Type: application/json."
    where = [str(part) for part in first["loc"][1:] if not str(part).startswith(("list[", "str"))]
    name = ".".join(where) or "The body"
    said = str(first["msg"]).rstrip(".")
    return f"{name}: {said[0].lower()}{said[1:]}."
