"""A client of a server that speaks the OpenAI API.

What may pass (no connection, 429, 5xx, an answer that cannot be understood) is tried again after a growing wait, or
after what the server asks for; what cannot (a wrong key, model or address) ends at once in a sentence.
The server is not trusted: the key goes to the address given and to no other, so a redirect is refused; waits and
answers have limits; and what no file can hold (half a character) is replaced.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from liebig.base.errors import ResourceError

LONGEST_WAIT = 300.0  # seconds between two attempts, whatever the server asks for
LARGEST_ANSWER = 16 << 20  # bytes
AGAIN = "what was answered is kept; run the same command again when the server is back"


class TemporaryFailure(Exception):
    """A failure worth another try; `after` is what the server asks to wait, in seconds."""

    def __init__(self, what: str, after: float | None = None) -> None:
        super().__init__(what)
        self.what, self.after = what, after


@dataclass(frozen=True)
class Client:
    """Asks a model on a server."""

    url: str
    model: str
    key: str | None
    settings: dict[str, Any]
    timeout: float
    retries: int
    wait: float
    stopped: Event = field(default_factory=Event)

    def ask(self, prompt: str) -> str:
        """The text of an answer; a ResourceError when there is none in the end."""
        for attempt in range(self.retries + 1):
            try:
                return self._once(prompt)
            except TemporaryFailure as problem:
                if attempt == self.retries or self.stopped.is_set():
                    what = f"{self.url}: {problem.what}, {attempt + 1} times"
                    raise ResourceError(what, fix=AGAIN) from None
                pause = self.wait * 2.0**attempt if problem.after is None else problem.after
                self.stopped.wait(min(pause, LONGEST_WAIT))
        raise AssertionError("the last attempt returns or raises")

    def _once(self, prompt: str) -> str:
        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}], **self.settings}
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with OPENER.open(request, timeout=self.timeout) as answer:
                data = self._read(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise TemporaryFailure(
                f"the server does not answer ({getattr(error, 'reason', None) or error})"
            ) from None
        return content(data)

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """The whole answer; each part has the time limit, and so have all of them together."""
        parts, size, end = [], 0, time.monotonic() + self.timeout
        while part := answer.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > LARGEST_ANSWER:
                raise TemporaryFailure(f"the answer is larger than {LARGEST_ANSWER >> 20} MB")
            if time.monotonic() > end:
                raise TemporaryFailure(f"the answer takes longer than {self.timeout:g} seconds")
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        if error.code == 429 or error.code >= 500:
            after = error.headers.get("Retry-After", "")
            what = (
                "the limit of requests is reached"
                if error.code == 429
                else f"the server fails ({error.code})"
            )
            return TemporaryFailure(what, float(after) if after.replace(".", "", 1).isdigit() else None)
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "another address")
            return ResourceError(
                f"{self.url} redirects to {where}, and the key is sent nowhere else",
                fix="give the address that answers as url",
            )
        said = error.read(200).decode("utf-8", "replace").strip()
        return ResourceError(
            f"{self.url} refuses the request ({error.code}): {said}",
            fix="check address, model and key; what was answered before is kept",
        )


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: headers, and with them the key, would follow it to any host."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirects)


def whole(text: str) -> str:
    """Text that UTF-8 can hold: half a character, which JSON can say, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def content(data: bytes) -> str:
    """The text in an answer of the API."""
    try:
        text = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        shown = data[:80].decode("utf-8", "replace")
        raise TemporaryFailure(f"the answer is not of the API's form ({shown!r})")
    return whole(text)
