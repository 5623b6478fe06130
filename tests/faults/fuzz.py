"""Damaged inputs at a high rate: every reader, the recipe parser, and small files of artifacts.

A batch starts from the samples of one target and its own number, so any batch can be run again. Within a batch, an
input whose outcome was not seen before (another sentence, another number of records) becomes a sample itself. An
outcome is fine if it is records or one sentence of ours that names the file; everything else is a bug: another
exception, a hang, a warning, or more memory than the limit.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import re
import shutil
import signal
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from liebig.base import npy, pipeline, workspace
from liebig.base.config import load
from liebig.base.errors import LiebigError
from liebig.base.records import Hit
from liebig.builder.build import BuildConfig
from liebig.collection.writer import CollectionWriter
from liebig.evaluation.runs import open_run
from liebig.formats import detect, formats
from liebig.formats.items import Options
from liebig.search.retriever_folder import read as read_description
from liebig.stages import STAGES
from liebig.train.log import read_log
from tests.worlds.smoke import RECIPES, ROOT

BATCH = 500  # inputs
SECONDS = 20  # of the processor, after which an input counts as a hang
PATIENCE = 600  # seconds by the clock, for one that waits
MEMORY = 1 << 30  # bytes that inputs of a few kilobytes may take
MUTATIONS = 6  # of an input at most
LARGEST = 20_000  # bytes of a sample that is kept
NASTY = (
    b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\n", b"\n\n", b"\t", b"\xff", b'"', b"\\", b'"\\ud800"',
    b"\xed\xa0\x80", b"[", b"{", b"]", b"}", b",", b":", b"null", b"true", b"NaN", b"Infinity", b"1e999", b"-1", b"0",
    b"<top>", b"</top>", b"<!--", b"-->", b"<![CDATA[", b"&#x110000;", b"&#99999999999;", b"\xe2\x80\xa8", b" ",
    b"9" * 400, b"[" * 300, b"''", b"```", b"~~~", b"![](", b"](", b"---\n", b"===\n", b".. x::", b"::\n", b"|", b"#",
    b"\x1c", b"id", b"_id", b"text", b"\x80\x04", b"\x1f\x8b", b"\xf0\x9f\x98\x80", b"\x00\x00\x00\x7f", b"\xff" * 8,
    b"a" * 300, b"(" * 300, b"\n" * 50, b'{"a":' * 60, b"../../x", b"/etc/passwd", b"@collection", b"[[", b"]]", b" = ",
)  # fmt: skip
CHANGING = re.compile(r"\d+|'[^']*'|\"[^\"]*\"|[^\x20-\x7e]+")


@dataclass(frozen=True)
class Target:
    """Something that reads a file: the file's name, samples of its contents, and how it is read."""

    name: str
    file: str
    samples: tuple[bytes, ...]
    read: Callable[[Path], object]
    wrap: Callable[[bytes], bytes] = bytes
    """What makes a file of a mutated sample, such as a compressor."""
    every: int = 1
    """Of that many rounds, one includes it: slow targets get fewer inputs."""


def targets() -> list[Target]:
    """Every target, in a fixed order."""
    found = [*_readers(), *_packed(), *_artifacts(), *_recipes()]
    assert len({target.name for target in found}) == len(found)
    return found


def _readers() -> Iterator[Target]:
    for name, format in formats().items():
        if not format.read or format.prefix:
            continue
        if len(format.sample) == 1:
            ((file, text),) = format.sample.items()
            data = (text.encode(),)
            yield Target(f"{name}, named", file, data, partial(_items, name=name))
            yield Target(f"{name}, detected", file, data, _items)
            yield Target(f"{name}, collected", file, data, partial(_collect, name=name))
        for damaged in format.sample if len(format.sample) > 1 else ():
            yield Target(
                f"{name}, {damaged}",
                damaged,
                (format.sample[damaged].encode(),),
                partial(_folder, name=name, files=format.sample),
            )
    for suffix, text in DOCUMENTS.items():
        yield Target(f"document {suffix}", f"page{suffix}", (text.encode(),), _items)


DOCUMENTS = {
    ".html": "<!DOCTYPE html><html lang='en'><head><title>A &amp; B</title><style>p {}</style><script>x < 1</script>"
    "</head><body><main><h1>Top</h1><p>One &#233; <b>two</b><br>three</p><ul><li>a<li>b</ul><table><tr><td>1<td>2"
    "</table><pre>code\n  x</pre><h2>Next</h2><!-- no --><p>Last</main></body></html>",
    ".rst": "Title\n=====\n\nText with :ref:`a role <there>` and ``code``.\n\n.. note:: A note\n   goes on.\n\n"
    "Section\n-------\n\n* one\n* two\n\n.. code-block:: python\n\n   x = 1\n\n=====  =====\na      b\n=====  =====\n",
    ".md": "---\ntitle: Front\n---\n# Top\n\nText *with* [a link](http://x.y 'z') and ![an image](i.png).\n\n"
    "## Next\n\n```python\n# no heading\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n<!-- gone -->\n\n"
    "Setext\n------\n\n1. one\n2. two\n",
    ".txt": "One paragraph of plain text.\n\nAnother one, with an ümlaut.\n",
}


def _items(path: Path, name: str | None = None) -> int:
    return sum(1 for found in detect(path, name) for _ in found.items(Options()))


def _collect(path: Path, name: str | None = None) -> int:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, CollectionWriter(Path(folder)) as writer:
        count = 0
        for found in detect(path, name):
            for item in found.items(Options()):
                if not isinstance(item.record, Hit):
                    writer.add(item)
                count += 1
    return count


def _folder(path: Path, name: str, files: dict[str, str]) -> int:
    """A folder of files, of which one is damaged: it is already there under its own name."""
    home = path
    for _ in Path(next(file for file in files if path.as_posix().endswith(file))).parts:
        home = home.parent
    for file, text in files.items():
        if home / file != path:
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).write_text(text, encoding="utf-8")
    return _items(home, name)


def _packed() -> Iterator[Target]:
    lines = "".join(
        json.dumps({"_id": str(i), "title": "", "text": f"text {i}"}) + "\n" for i in range(5)
    ).encode()
    raw = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    for suffix, pack in raw.items():
        yield Target(
            f"packed {suffix}", f"corpus.jsonl{suffix}", (pack(lines),), partial(_items, name="passages")
        )
    yield Target("archive .zip", "pages.zip", (_zip({"a.md": "# A\n\nText\n", "b/c.html": "<p>x"}),), _items)
    yield Target("archive .tar", "pages.tar", (_tar({"a.md": "# A\n\nText\n", "b/c.txt": "words"}),), _items)
    yield Target("document .docx", "a.docx", (_zip(DOCX),), _items)
    yield Target("document .epub", "a.epub", (_zip(EPUB),), _items)
    for kind, parts in (("docx", DOCX), ("epub", EPUB)):
        for part, text in parts.items():
            yield Target(
                f"{kind}: {part}", f"a.{kind}", (text.encode(),), _items, partial(_with_part, parts, part)
            )
    yield Target("document .pdf", "a.pdf", (PDF,), _items)
    yield Target("table .parquet", "corpus.parquet", (_parquet(),), _items)


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCX = {
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>',
    "word/document.xml": f'<?xml version="1.0"?><w:document {W}><w:body><w:p><w:pPr><w:pStyle w:val="H"/></w:pPr><w:r>'
    "<w:t>Head</w:t></w:r></w:p><w:p><w:r><w:t>Text</w:t></w:r></w:p></w:body></w:document>",
    "word/styles.xml": f'<w:styles {W}><w:style w:styleId="H"><w:name w:val="heading 1"/></w:style></w:styles>',
}
EPUB = {
    "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="book.opf"/></rootfiles></container>',
    "book.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
    '<dc:title>On Barley</dc:title></metadata><manifest><item id="a" href="one.xhtml" '
    'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>',
    "one.xhtml": "<html><body><h1>Growth</h1><p>Barley&nbsp;grows.</p><h2>Soil</h2><p>Potash.</p></body></html>",
}
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n"
    b"4 0 obj<</Length 33>>stream\nBT /F 12 Tf 9 9 Td (Barley) Tj ET\nendstream endobj\n"
    b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R/Size 6>>\n%%EOF\n"
)


def _zip(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


def _with_part(parts: dict[str, str], part: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data if name == part else text)
    return buffer.getvalue()


def _tar(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    table = pyarrow.table({"_id": ["1", "2"], "title": ["a", "b"], "text": ["one", "two"]})
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _artifacts() -> Iterator[Target]:
    array = io.BytesIO()
    np.save(array, np.arange(12, dtype=np.float32).reshape(4, 3))
    yield Target("array", "vectors.npy", (array.getvalue(),), lambda path: len(npy.load(path).tobytes()))
    manifest = {
        "kind": "bm25", "recipe": {"collection": "c"}, "inputs": {"collection": "0"}, "outputs": {"a": "0"},
        "sizes": {"a": 1}, "versions": {"python": "3"}, "seed": 0, "started": "t", "finished": "t",
    }  # fmt: skip
    yield Target("manifest", "folder/manifest.json", (json.dumps(manifest).encode(),), _manifest)
    description = {
        "generation": 1, "system": "hybrid", "collection": "c", "bm25": "b", "index": "i", "model": "m", "weight": 0.5,
    }  # fmt: skip
    yield Target("retriever.json", "r/retriever.json", (json.dumps(description).encode(),), _description)
    log = b'{"step": 1, "loss": 0.5}\n{"step": 2, "event": "x"}\n'
    yield Target("log", "run/log.jsonl", (log,), lambda path: len(read_log(path.parent)))
    trec = b"q1 Q0 d1 1 12.5 tag\nq1 Q0 d2 2 11 tag\nq2 Q0 d1 1 1e3 tag\n"
    yield Target("run, in blocks", "run.trec", (trec,), lambda path: sum(1 for _ in open_run(path)))


def _manifest(path: Path) -> object:
    return len(workspace.read_manifest(path.parent).outputs)


def _description(path: Path) -> object:
    return read_description(path.parent).generation


def _recipes() -> Iterator[Target]:
    texts = tuple(path.read_bytes() for path in RECIPES)
    out = ROOT / "nowhere"
    yield Target(
        "recipe of stages", "r.toml", texts, lambda path: len(pipeline.plan(STAGES, path, [], out)), every=8
    )
    build = b'sources = ["docs"]\nminutes = 2\nlanguage = "en"\nseed = 3\n'
    yield Target("recipe of a build", "b.toml", (build,), lambda path: load(BuildConfig, path) is None)


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes after a few accidents."""
    found = bytearray(data)
    for _ in range(rng.randint(1, MUTATIONS)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(8):
            case 0 | 1:
                found[at:at] = rng.choice(NASTY)
            case 2:
                found[at : at + rng.randint(1, 20)] = rng.choice(NASTY)
            case 3:
                del found[at : at + rng.choice((1, 4, 16, 64, len(found)))]
            case 4:
                end = at + rng.randint(1, 200)
                found[at:at] = found[at:end] * rng.choice((1, 2, 30))
            case 5 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 6 if at < len(found):
                found[at] = rng.randrange(256)
            case 7:
                start = rng.randrange(len(other) + 1)
                found[at:at] = other[start : start + rng.randint(1, 200)]
            case _:
                pass
        del found[LARGEST:]
    return bytes(found)


class Hang(BaseException):
    """An input took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """A limit on memory; inputs are a few kilobytes, so what asks for much more believes what a header claims."""
    import resource  # limits of a process are those of POSIX systems

    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, before[1]))

    def ring(number: int, frame: Any) -> None:
        raise Hang

    alarms = (signal.SIGPROF, signal.SIGALRM)
    handlers = [signal.signal(alarm, ring) for alarm in alarms]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)  # archives are closed with their last reader
            yield
    finally:
        for alarm, handler in zip(alarms, handlers):
            signal.signal(alarm, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(target: Target, path: Path, data: bytes) -> tuple[bool, str]:
    """Whether all is well, and what happened in words that similar inputs share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(target.wrap(data))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        result = target.read(path)
    except LiebigError as error:
        said = str(error)
        fine = "\n" not in said.strip() or target.name.startswith("recipe")
        return fine, CHANGING.sub("", said)[:120] if fine else f"several lines: {said}"
    except (Hang, Exception) as error:
        return False, f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True, f"{result if isinstance(result, int) else 'read'}"


def run_batch(
    target: Target, number: int, seed: int, home: Path, failures: Path, size: int = BATCH
) -> list[str]:
    """One batch; what went wrong, each with the file that shows it."""
    rng = random.Random(f"{seed}-{target.name}-{number}")
    samples, seen, wrong = list(target.samples), set[str](), list[str]()
    folder = Path(tempfile.mkdtemp(dir=home))
    try:
        with limited():
            for count in range(size):
                data = mutated(rng.choice(samples), rng.choice(samples), rng)
                fine, words = outcome(target, folder / target.file, data)
                if not fine and words not in seen:
                    failures.mkdir(parents=True, exist_ok=True)
                    kept = failures / f"{len(list(failures.iterdir())):04}-{Path(target.file).name}"
                    kept.write_bytes(target.wrap(data))
                    wrong.append(f"{target.name}, batch {number}, input {count}: {words[:300]} ({kept})")
                elif words not in seen and len(data) < LARGEST:
                    samples.append(data)
                seen.add(words)
    finally:
        shutil.rmtree(folder)
    return wrong
