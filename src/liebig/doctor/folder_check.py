"""A retriever's folder looked over: hashes, counts, vectors against the model, recall of an approximate index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from liebig.base import workspace
from liebig.base.errors import LiebigError, ModelError, WorkspaceError
from liebig.bm25.search import BM25
from liebig.collection.collection import Collection
from liebig.doctor import vector_check as vectors
from liebig.doctor.machine_check import Finding
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.model.encoder import Encoder
from liebig.search.retriever_folder import NAME, PARTS, RetrieverDescription, read


def examine(folder: Path) -> Iterator[Finding]:
    """Everything about a folder; what cannot be opened is a finding, not an end."""
    description = read(folder)
    yield Finding(
        NAME,
        f"generation {description.generation}, {description.system}, weight of BM25 {description.weight:g}",
    )
    broken = []
    for part in PARTS:
        name = getattr(description, part)
        if name is not None:
            finding = _hashes(folder / name)
            broken += [] if finding.good else [part]
            yield finding
    if "collection" not in broken:
        yield from _contents(folder, description, broken)


def _hashes(path: Path) -> Finding:
    """A stage's folder against its manifest; one that no stage wrote has no hashes to hold it against."""
    if not path.is_dir():
        return Finding(path.name, "is missing", False, "build again")
    if not (path / workspace.MANIFEST).is_file():
        return Finding(path.name, "exists, but has no manifest to check it against")
    try:
        manifest = workspace.verify(path)
    except WorkspaceError as error:
        return Finding(path.name, error.what, False, error.fix or "build again")
    size = sum(manifest.sizes.values())
    return Finding(path.name, f"{len(manifest.outputs)} files, {size / 1e6:,.1f} MB, all hashes match")


def _contents(folder: Path, description: RetrieverDescription, broken: Sequence[str]) -> Iterator[Finding]:
    """What is in the parts that are whole."""
    collection = Collection(folder / description.collection)
    if description.bm25 is not None and "bm25" not in broken:
        yield from _told("BM25", _words(folder / description.bm25, collection))
    if description.index is not None and "index" not in broken:
        model = None if description.model is None else folder / description.model
        yield from _told("index", _dense(folder / description.index, collection, model))
    if description.sentences is not None and "sentences" not in broken:
        index = open_index(folder / description.sentences, hashes=False)
        yield from _told("sentences", iter([_counted("sentences", index, collection.count("passages"))]))


def _told(name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings; an error that ends them is the last."""
    try:
        yield from findings
    except LiebigError as error:
        yield Finding(name, error.what, False, error.fix or "build again")


def _words(path: Path, collection: Collection) -> Iterator[Finding]:
    found, count = len(BM25.open(path, hashes=False)), collection.count("passages")
    good = found == count
    yield Finding("BM25", f"{found:,} of {count:,} passages", good, "" if good else "liebig update")


def _dense(path: Path, collection: Collection, model: Path | None) -> Iterator[Finding]:
    index = open_index(path, hashes=False)
    yield _counted("index", index, collection.count("passages"))
    if model is not None:
        yield _compared(index, collection, model)
    yield _recall(index)


def _counted(name: str, index: Index, count: int) -> Finding:
    pieces = bool(index.about.get("pieces"))
    good = len(index) >= count if pieces else len(index) == count
    of = f"of pieces of {count:,} passages" if pieces else f"of {count:,} passages"
    return Finding(name, f"{len(index):,} vectors {of}", good, "" if good else "liebig update")


def _compared(index: Index, collection: Collection, model: Path) -> Finding:
    shards = index.stored()
    if shards is None:
        return Finding("vectors", f"kept by {index.kind}, not on disk; not compared with the model")
    try:
        encoder = Encoder.load(model)
    except ModelError as error:
        return Finding("model", error.what, False, error.fix or "build again")
    pieces = bool(index.about.get("pieces"))
    stored = vectors.sample(shards, collection.passage, pieces)
    return vectors.compare(encoder, stored, index.about)


def _recall(index: Index) -> Finding:
    """What an approximate index misses, measured now."""
    text, good = index.check()
    return Finding("recall", text, good, "" if good else "index again")


def index_alone(path: Path, texts: Path, model: Path | None) -> Iterator[Finding]:
    """An index without a retriever's folder: its vectors against a collection and a model."""
    finding = _hashes(path)
    yield finding
    if not finding.good:
        return
    index = open_index(path, hashes=False)
    chosen = model or index.model
    if chosen is None:
        raise LiebigError(
            "the index does not say which model made it", file=path, fix="name one with --model"
        )
    if not chosen.is_dir():
        raise LiebigError("there is no such model folder", file=chosen, fix="name one with --model")
    yield _compared(index, Collection(texts), chosen)
    yield _recall(index)
