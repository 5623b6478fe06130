"""What the server refuses, each with a status and one sentence; every error reaches the client as JSON.

Paths under /v1 answer as OpenAI's do (`{"error": {"message": …}}`), the others as text-embeddings-inference does
(`{"error": "…", "error_type": "…"}`), so that each one's clients show the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 413: "too_large", 422: "validation", 500: "internal", 503: "overloaded", 504: "timeout",
}  # fmt: skip


class Refusal(Exception):
    """A request that is not served: its status, and why."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


class Busy(Refusal):
    """The line is full, or the server is going."""

    def __init__(self, waiting: int, *, closing: bool = False) -> None:
        sentence = (
            "The server is shutting down."
            if closing
            else f"The server is busy: {waiting} others wait already. Try again in a second."
        )
        super().__init__(503, sentence, {"Retry-After": "1"})


def body(path: str, status: int, sentence: str) -> dict[str, Any]:
    """The JSON of an error, in the form that clients of the path expect."""
    kind = KINDS.get(status, "error")
    if path.startswith("/v1/"):
        return {"error": {"message": sentence, "type": kind, "param": None, "code": status}}
    return {"error": sentence, "error_type": kind}
