"""The original file of a document, opened in the browser at the page or the line of a passage.

A file is never named by a request: a request names a passage, whose document names the file, and the file must lie
below a source that the folder was built from, with links resolved. A retriever that somebody else made may name any
source: it must be one that this user has indexed (`base/own_sources.py`), or a folder named with `--originals`. A
link cannot send a token, so each address carries a key for its passage alone, which is valid until the server stops.

Nothing in a document runs: text is shown as text with its lines numbered, HTML in a sandbox that loads nothing, a PDF
by the browser's viewer, and everything else is downloaded.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import quote, urlencode

from fastapi import Response
from fastapi.responses import FileResponse

from liebig.base.errors import DataError
from liebig.base.own_sources import is_noted
from liebig.base.records import Passage
from liebig.formats.encoding import decode_text
from liebig.formats.inputs import DAMAGE
from liebig.formats.items import Where
from liebig.formats.on_disk import DiskSource
from liebig.search.explain import locate
from liebig.search.retriever import Retriever
from liebig.serve.middleware import Refusal

ROUTE = "/original"
LARGEST_SHOWN = 4 << 20  # bytes of a text that is shown with its lines; a larger one is sent as it is
CLOSED = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
POLICIES = {
    "html": f"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; {CLOSED}",
    "text": f"sandbox; default-src 'none'; style-src 'self'; {CLOSED}",
    # Browsers do not start their PDF viewer in a sandbox; scripts of a PDF cannot reach the page anyway.
    "pdf": CLOSED,
    "other": f"sandbox; default-src 'none'; {CLOSED}",
}
HTML = frozenset((".html", ".htm", ".xhtml"))


class Originals:
    """The files behind the documents of a retriever."""

    def __init__(self, retriever: Retriever, roots: Sequence[Path] = ()) -> None:
        """`roots` are opened instead of the retriever's sources."""
        self._retriever, self._secret = retriever, secrets.token_bytes(32)
        self._given = roots

    @property
    def _sources(self) -> Sequence[str]:
        sources: Sequence[str] = self._retriever.current.description.more.get("sources", ())
        return sources

    @property
    def closed(self) -> list[str]:
        """Sources that are here and are not opened, because this user has not indexed them."""
        return [] if self._given else [s for s in self._sources if Path(s).exists() and not is_noted(s)]

    @property
    def _roots(self) -> Sequence[Path]:
        # `stdlib:`, `hf:…` and standard input are not files
        return self._given or [Path(s) for s in self._sources if Path(s).is_absolute() and is_noted(s)]

    def file(self, passage: Passage, metadata: Mapping[str, str]) -> Path | None:
        """The file that a passage is from; None if its document is not a file, or the file is gone."""
        name = metadata.get("path") or passage.doc
        for root in self._roots if name else ():
            path = root if root.is_file() and name == root.name else root / name
            try:
                path = path.resolve(strict=True)
                if path.is_relative_to(root.resolve()) and path.is_file():
                    return path
            except (
                OSError,
                ValueError,
                RuntimeError,
            ):  # not there, a name that no file can have, a loop of links
                continue
        return None

    def address(self, passage: Passage, metadata: Mapping[str, str]) -> str | None:
        """Where the file is opened, at the passage; None if there is none."""
        file = self.file(passage, metadata)
        if file is None:
            return None
        query = urlencode({"passage": passage.id, "key": self._key(passage.id)})
        return f"{ROUTE}?{query}{_place(file, passage, metadata)}"

    def open(self, id: str, key: str) -> Response:
        """The answer to a request for an address."""
        if not hmac.compare_digest(key.encode(), self._key(id).encode()):
            raise Refusal(403, "This address is not valid, or the server was restarted; search again.")
        try:
            passage = self._retriever.passage(id)
        except DataError:
            raise Refusal(404, f"There is no passage {id!r}.") from None
        document = self._retriever.document(passage.doc) if passage.doc else None
        metadata = {**({} if document is None else document.metadata), **passage.metadata}
        file = self.file(passage, metadata)
        if file is None:
            raise Refusal(404, f"The file of {passage.doc or id!r} is not where it was when it was indexed.")
        return _response(file, passage, metadata)

    def _key(self, id: str) -> str:
        return hmac.new(self._secret, id.encode(), sha256).hexdigest()[:32]


def _place(file: Path, passage: Passage, metadata: Mapping[str, str]) -> str:
    """The fragment that leads to the passage: a page, a line, or its first words."""
    if file.suffix.lower() == ".pdf":
        return f"#page={quote(metadata['page'])}" if metadata.get("page") else ""
    if file.suffix.lower() in HTML:
        return f"#:~:text={quote(' '.join(passage.text.split()[:6]), safe='')}"
    return "#passage"


def _response(file: Path, passage: Passage, metadata: Mapping[str, str]) -> Response:
    suffix = file.suffix.lower()
    if suffix == ".pdf":
        return _sent(file, "pdf", "application/pdf", "inline")
    if suffix in HTML:
        return _sent(file, "html", "text/html", "inline")
    try:
        with DiskSource(file).open() as stream:  # a compressed text is shown as what it holds
            raw = stream.read(LARGEST_SHOWN + 1)
        text = "" if len(raw) > LARGEST_SHOWN else decode_text(raw, Where(str(file)))[0]
    except (*DAMAGE, DataError, ImportError):  # not text, or in an encoding that only the readers can guess
        text = ""
    if not text:
        return _sent(file, "other", "application/octet-stream", "attachment")
    page = _numbered(file.name, text.splitlines(), passage, metadata)
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICIES["text"]})


def _sent(file: Path, kind: str, media_type: str, disposition: str) -> Response:
    headers = {"Content-Security-Policy": POLICIES[kind]}
    return FileResponse(
        file, media_type=media_type, filename=file.name, content_disposition_type=disposition, headers=headers
    )


def _numbered(name: str, lines: list[str], passage: Passage, metadata: Mapping[str, str]) -> str:
    """A page with the lines of a text, those of the passage marked."""
    marked = {mark.paragraph for mark in locate(passage.text, lines)}
    line = metadata.get("line", "")
    if not marked and line.isdecimal() and 0 < int(line) <= len(lines):
        marked = {int(line) - 1}
    first = min(marked, default=-1)
    rows = []
    for number, text in enumerate(lines):
        id = ' id="passage"' if number == first else ""
        tag = "mark" if number in marked else "span"
        rows.append(f"<li{id}><{tag}>{escape(text)}</{tag}></li>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(name)}</title><link rel="stylesheet" href="/page/style.css">'
        '<link rel="stylesheet" href="/page/original.css"></head>'
        f"<body><h1>{escape(name)}</h1><ol>\n{chr(10).join(rows)}\n</ol></body></html>\n"
    )
