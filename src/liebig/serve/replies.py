"""Responses and errors as JSON.

Errors under /v1 have OpenAI's form (`{"error": {"message": …}}`), the others that of text-embeddings-inference
(`{"error": "…", "error_type": "…"}`), so that the clients of both show the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from liebig.base.errors import LiebigError
from liebig.base.json_output import to_json

KINDS = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 413: "too_large", 422: "validation", 500: "internal", 503: "overloaded", 504: "timeout",
}  # fmt: skip


class Refusal(Exception):
    """An error response: its status and one sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


class Busy(Refusal):
    """The queue is full, or the server is shutting down."""

    def __init__(self, waiting: int, *, closing: bool = False) -> None:
        sentence = (
            "The server is shutting down."
            if closing
            else f"The server is busy: {waiting} texts or requests are waiting. Try again in a second."
        )
        super().__init__(503, sentence, {"Retry-After": "1"})


def body(path: str, status: int, sentence: str) -> dict[str, Any]:
    """The JSON of an error, in the form that clients of the path expect."""
    kind = KINDS.get(status, "error")
    if path.startswith("/v1/"):
        return {"error": {"message": sentence, "type": kind, "param": None, "code": status}}
    return {"error": sentence, "error_type": kind}


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, headers, media_type="application/json")


def handle_errors(app: FastAPI) -> None:
    """Turn every error into JSON with one sentence."""

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
            404: f"There is no route {request.url.path}; GET /docs lists all routes.",
            405: f"{request.url.path} does not accept {request.method}.",
        }
        sentence = sentences.get(error.status_code, f"{error.detail}.")
        return reply(
            body(request.url.path, error.status_code, sentence), error.status_code, dict(error.headers or {})
        )

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        sentence = "Internal server error; see the server's log."
        return reply(body(request.url.path, 500, sentence), 500)


def _sentence(error: RequestValidationError) -> str:
    """The first validation error and its field."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return "The request is not JSON."
    if isinstance(first.get("input"), bytes):
        return "The request is not JSON: send the header Content-Type: application/json."
    where = [str(part) for part in first["loc"][1:] if not str(part).startswith(("list[", "str"))]
    name = ".".join(where) or "The body"
    said = str(first["msg"]).rstrip(".")
    return f"{name}: {said[0].lower()}{said[1:]}."
