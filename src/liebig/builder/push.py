"""A retriever's folder, put into a search engine whole: passages, metadata, vectors, and BM25 as sparse vectors.

`push` writes the engine's tables, and beside them a small folder that searches there: the model, the statistics of the
terms, a fingerprint of every row and `engine.json`. Into the same folder again, only rows whose fingerprint changed are
written and rows that are gone are removed, in place; the statistics are those of the whole corpus. Weights of terms
depend on the mean length of the passages. It is kept while it is right to MEAN, which bounds the relative error of
every score; beyond it, and after another training, fresh tables are filled and the old ones removed at the end. The
source stays what is built and updated; nothing of it is needed to search.

Cost: one read of the source, and what changed is sent. Memory: a segment's postings (16 bytes each) and the terms.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import npy, own_sources, workspace
from liebig.base.config import Config
from liebig.base.errors import DataError, RecipeError, WorkspaceError
from liebig.base.progress import counted, track
from liebig.base.workspace import Folder
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.collection.lookup import Ids, read_strings, write_ids, write_strings
from liebig.engines import BUILT_IN, EngineRow, EngineText, SearchEngine, TableShape, engine_class
from liebig.indexes import open_index
from liebig.search import retriever_folder as description
from liebig.search.engine_generation import FREQUENCIES, SUMMARY, TERMS, EngineFile, EngineVectors
from liebig.search.filters import filterable
from liebig.search.fusion import SENTENCES
from liebig.search.retriever_folder import RetrieverDescription
from liebig.vectors import vectors_at

CONTENTS, KEY = "contents.npy", "key.txt"
MEAN = 5e-5  # relative change of the mean length up to which weights of terms are kept
BATCH = 256  # rows sent at once
SOURCE = "pushed_from"  # in retriever.json


class EngineConfig(Config):
    """Where a retriever is put."""

    to: str = Field(description=f"The engine: {' or '.join(BUILT_IN)}.")
    uri: str = Field(description="Address of the server; for Milvus also the path of a file (milvus-lite).")
    name: str = Field("passages", pattern="^[a-z_][a-z0-9_]{0,62}$", description="Name of the table to fill.")


class PushedVectors:
    """The vectors of an index by passage: one under its id, or one for each of its pieces."""

    def __init__(self, path: Path) -> None:
        self._index = open_index(path)
        shards = self._index.stored()
        if shards is None:
            raise DataError("the vectors are not stored here", file=path, fix="build the retriever again")
        self._shards = shards
        self.about, self.width = dict(self._index.about), self._index.width
        self.pieces = bool(self.about.get("pieces"))

    def of(self, passage: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
        found = self._index.vectors_of(passage, self.pieces)
        if not found and not self.pieces:
            raise DataError(f"the passage {passage!r} has no vector", fix="build the retriever again")
        numbers = np.array([number for _, number in found], np.int64)
        for (id, _), vector in zip(found, vectors_at(self._shards, numbers, self.width)):
            yield id, vector


class PushedRetriever:
    """What a retriever's folder has to be sent: its rows, with term numbers of some vocabulary."""

    def __init__(self, source: Path, known: EngineFile | None, terms: list[str]) -> None:
        self.description = now = description.read(source)
        if now.engine is not None:
            raise RecipeError(
                "the retriever is in an engine already", file=source, fix="push the one it was made of"
            )
        if now.bm25 is None:
            raise RecipeError("only a retriever with BM25 can be pushed", file=source, fix="run liebig build")
        self.collection = Collection(source / now.collection)
        self.bm25 = BM25.open(source / now.bm25)
        named = {"dense": now.index, SENTENCES: now.sentences}
        self.vectors = {
            part: PushedVectors(source / name) for part, name in named.items() if name is not None
        }
        kept = known is not None and abs(self.bm25.average / known.average - 1) <= MEAN
        self.places = max(int(self.bm25.starts[-1]), known.places if known is not None else 0)
        self.average = known.average if known is not None and kept else self.bm25.average
        there = self.collection.has("documents")
        self._documents = self.collection if there else None
        self.documents = self.collection.count("documents") if there else 0
        self.fields: set[str] = set()
        self.terms = list(terms)
        self._numbers = {term: number for number, term in enumerate(terms)}

    def alike(self, known: EngineFile) -> bool:
        """Whether rows that an engine has can stay."""
        about = {part: (vectors.width, vectors.about) for part, vectors in self.vectors.items()}
        there = {part: (vectors.width, dict(vectors.about)) for part, vectors in known.vectors.items()}
        plain = json.loads(json.dumps(about, default=str)), json.loads(json.dumps(there, default=str))
        return plain[0] == plain[1] and known.settings == self.bm25.settings and known.average == self.average

    def tables(self, name: str) -> dict[str, TableShape]:
        dense = self.vectors.get("dense")
        width = None if dense is None or dense.pieces else dense.width
        made = {"passages": TableShape(name, width, terms=True, texts=True)}
        for part, vectors in self.vectors.items():
            if vectors.pieces:
                made[part] = TableShape(f"{name}_{part}", vectors.width, terms=False, texts=False)
        return made

    def frequencies(self) -> NDArray[np.int64]:
        """How many passages have each term; to be asked when all rows were read."""
        return np.array([self.bm25.frequency(term) for term in self.terms], np.int64)

    def rows(self) -> Iterator[dict[str, list[EngineRow]]]:
        """The rows of every passage, by table, in the order of the index."""
        for first, segment in zip(self.bm25.starts.tolist(), self.bm25.segments):
            segment.check()
            numbers = np.array([self._number(term) for term in segment.sorted_terms], np.int64)
            tf, docs = segment.tf.astype(np.float64), segment.docs
            weights = (tf / (tf + self.bm25.norms(segment, self.average)[docs])).astype(np.float32)
            order = np.argsort(docs, kind="stable")
            terms = np.repeat(numbers, np.diff(segment.starts))[order]
            weights, ends = weights[order], np.searchsorted(docs[order], np.arange(len(segment) + 1))
            for local in np.flatnonzero(segment.live).tolist():
                own = slice(ends[local], ends[local + 1])
                sparse = dict(zip(terms[own].tolist(), weights[own].tolist()))
                yield self._of_passage(segment.ids[local], first + local, sparse)

    def _number(self, term: str) -> int:
        if term not in self._numbers:
            self._numbers[term] = len(self.terms)
            self.terms.append(term)
        return self._numbers[term]

    def _of_passage(self, id: str, place: int, terms: dict[int, float]) -> dict[str, list[EngineRow]]:
        passage = self.collection.passage(id)
        owner = passage.doc or id
        metadata, title = dict[str, str](), passage.title
        if self._documents is not None and passage.doc:
            document = self._documents.document(passage.doc)
            metadata, title = dict(document.metadata), document.title
        fields, numbers, dates = filterable({**metadata, "doc": owner, "title": title})
        self.fields |= {name for name in fields if not name.startswith("~")} | (dates.keys() & {"date"})
        shown = EngineText(
            id, passage.title, passage.text, passage.doc, passage.language, {**metadata, **passage.metadata}
        )
        row = EngineRow(id, place, fields, numbers, dates, shown, terms=terms)
        made = {"passages": [row]}
        for part, vectors in self.vectors.items():
            own = [replace(row, id=name, vector=vector, terms=None) for name, vector in vectors.of(id)]
            if vectors.pieces:
                made[part] = own
            else:
                made["passages"] = [replace(row, vector=own[0].vector)]
        return made


def push(source: Path, out: Path, config: EngineConfig, *, named: bool = True) -> str:
    """Put a retriever into an engine, or what changed in it; gives a sentence about it.

    `named`: the user gave the address, so it may have the user's token from now on.
    """
    if config.to not in BUILT_IN:
        raise RecipeError(f"there is no engine {config.to!r}", fix=f"use {' or '.join(BUILT_IN)}")
    before = description.read(out) if description.is_retriever(out) else None
    if before is not None and before.engine is None:
        raise RecipeError("is a retriever with its own indexes", file=out, fix="give another --out")
    if named:
        own_sources.note([config.uri], "engines")
    with description.exclusive(out):
        return _push(source, out, config, before)


def _push(source: Path, out: Path, config: EngineConfig, before: RetrieverDescription | None) -> str:
    old = out / str(before.engine) if before is not None else None
    known = EngineFile.read(old) if old is not None else None
    same = known is not None and (known.kind, known.uri) == (config.to, config.uri)
    terms = read_strings(old, TERMS).to_list() if old is not None else []
    pushed = PushedRetriever(source, known if same else None, terms)
    engine: SearchEngine = engine_class(config.to).connect(config.uri)
    if known is not None and not (same and pushed.alike(known)):
        pushed, old = PushedRetriever(source, None, []), None  # other vectors or weights: fresh tables
    generation = 1 if before is None else before.generation + 1
    inputs = {
        "bm25": source / str(pushed.description.bm25),
        "collection": source / pushed.description.collection,
    }
    inputs |= {
        part: source / name for part, name in (("dense", pushed.description.index),) if name is not None
    }
    name = (
        config.name
        if known is None
        else known.tables[0]
        if old is not None
        else f"{config.name}_{generation}"
    )
    with workspace.stage(
        out / f"engine-{generation}", kind="push", recipe=config.model_dump(), inputs=inputs, part_of="push"
    ) as folder:
        if known is not None and old is not None:
            key, shapes = known.key, pushed.tables(name)
            known.connect()  # the tables are there, and ours
            changed, gone = _fill(engine, pushed, shapes, folder, old)
        else:
            key = _key(folder)
            shapes = pushed.tables(name)
            _make(engine, shapes, key, config)
            try:
                changed, gone = _fill(engine, pushed, shapes, folder, None)
            except BaseException:
                with suppress(WorkspaceError):
                    for shape in shapes.values():
                        engine.drop(shape.name)
                raise
        _describe(folder, pushed, shapes, key, config)
    place = f"engine-{generation}"
    now = replace(
        pushed.description,
        generation=generation, engine=place, collection=place, bm25=place, checks=None,
        index=place if "dense" in pushed.vectors else None,
        sentences=place if SENTENCES in pushed.vectors else None,
        model=_copied(source, out, "model", pushed.description, before, generation),
        query=_copied(source, out, "query", pushed.description, before, generation),
        reranker=_copied(source, out, "reranker", pushed.description, before, generation),
        more={**pushed.description.more, SOURCE: _relative(source, out), "name": config.name},
    )  # fmt: skip
    description.replace(out, before, now)
    if known is not None and old is None:
        former = engine if same else known.connect()
        for table in known.tables:
            former.drop(table)
    return (
        f"{counted(changed, 'passages')} written and {gone:,} deleted in {name!r} at {config.uri}. "
        f"Generation {generation}."
    )


def pushed_source(out: Path, now: RetrieverDescription) -> Path:
    source = out / str(now.more.get(SOURCE))
    if not description.is_retriever(source):
        raise WorkspaceError(
            f"the retriever that was pushed is not at {source}", file=out, fix="push it from where it is"
        )
    return source


def push_again(out: Path, now: RetrieverDescription) -> str:
    known = EngineFile.read(out / str(now.engine))
    config = EngineConfig(to=known.kind, uri=known.uri, name=str(now.more["name"]))
    return push(pushed_source(out, now), out, config, named=False)


def _key(folder: Folder) -> str:
    """The mark of new tables; an interrupted push finds its own again."""
    path = folder.path / KEY
    if not path.is_file():
        folder.write_text(KEY, f"liebig {secrets.token_hex(8)}")
    return path.read_text(encoding="utf-8")


def _make(engine: SearchEngine, shapes: dict[str, TableShape], key: str, config: EngineConfig) -> None:
    for shape in shapes.values():
        mark = engine.mark(shape.name)
        if mark not in (None, key):
            raise WorkspaceError(
                f"there is a table {shape.name!r} at {config.uri} already, which is not this retriever's",
                fix="name another with --name",
            )
        if mark is not None:
            engine.drop(shape.name)
    for shape in shapes.values():
        engine.make(shape, key)


def _fill(
    engine: SearchEngine,
    pushed: PushedRetriever,
    shapes: dict[str, TableShape],
    folder: Folder,
    old: Path | None,
) -> tuple[int, int]:
    """Write the rows that differ from those of the older folder, and remove those that are gone."""
    ids = None if old is None else Ids.open(old)
    contents = np.zeros(0, np.uint64) if old is None else npy.load(old / CONTENTS, [np.uint64], (None,))
    kept = np.zeros(len(contents), bool)
    names, prints, changed = list[str](), list[int](), 0
    waiting: dict[str, list[EngineRow]] = {part: [] for part in shapes}
    stale: list[str] = []
    counts = dict.fromkeys(shapes, 0)

    def flush() -> None:
        for part, rows in waiting.items():
            if stale and part != "passages":  # there may be fewer of a passage now
                engine.delete(shapes[part].name, stale)
            for start in range(0, len(rows), BATCH):
                engine.write(shapes[part], rows[start : start + BATCH])
            rows.clear()
        stale.clear()

    for tables in track(pushed.rows(), "push", unit="passages", total=len(pushed.bm25)):
        row = tables["passages"][0]
        print_ = _fingerprint(tables)
        names.append(row.id)
        prints.append(print_)
        for part, rows in tables.items():
            counts[part] += len(rows)
        place = None if ids is None else ids.find(row.id)
        if place is not None:
            kept[place] = True
            if int(contents[place]) == print_:
                continue
            stale.append(row.id)
        changed += 1
        for part, rows in tables.items():
            waiting[part] += rows
        if len(waiting["passages"]) == BATCH:
            flush()
    flush()
    gone = [] if ids is None else [ids[place] for place in np.flatnonzero(~kept).tolist()]
    for part, shape in shapes.items():
        if gone:
            engine.delete(shape.name, gone)
        if (there := engine.settle(shape.name)) != counts[part]:
            raise WorkspaceError(
                f"the table {shape.name!r} has {there:,} rows, {counts[part]:,} were written",
                fix="push into another --name",
            )
    write_ids(folder.path, names)
    npy.save(folder.path / CONTENTS, np.array(prints, np.uint64))
    return changed, len(gone)


def _fingerprint(tables: dict[str, list[EngineRow]]) -> int:
    """A hash of all that an engine is told of a passage but its place."""
    made = hashlib.blake2b(digest_size=8)
    for part, rows in tables.items():
        for row in rows:
            said = [part, row.id, row.fields, row.shown.title, row.shown.text, row.shown.language]
            made.update(json.dumps([*said, row.shown.metadata, row.terms], sort_keys=True).encode())
            made.update(b"" if row.vector is None else row.vector.tobytes())
    return int.from_bytes(made.digest(), "little")


def _describe(
    folder: Folder, pushed: PushedRetriever, shapes: dict[str, TableShape], key: str, config: EngineConfig
) -> None:
    write_strings(folder.path, TERMS, pushed.terms)
    npy.save(folder.path / FREQUENCIES, pushed.frequencies())
    vectors = {
        part: EngineVectors(
            table=shapes[part if own.pieces else "passages"].name, width=own.width, about=own.about
        ).model_dump()
        for part, own in pushed.vectors.items()
    }
    summary = {
        "format": 1, "kind": config.to, "uri": config.uri, "key": key,
        "tables": [shape.name for shape in shapes.values()], "passages": len(pushed.bm25), "places": pushed.places,
        "documents": pushed.documents, "fields": sorted(pushed.fields),
        "settings": asdict(pushed.bm25.settings), "average": pushed.average, "vectors": vectors,
    }  # fmt: skip
    folder.write_text(SUMMARY, json.dumps(summary, indent=2, default=str) + "\n")
    (folder.path / KEY).unlink(missing_ok=True)


def _copied(
    source: Path,
    out: Path,
    part: str,
    now: RetrieverDescription,
    before: RetrieverDescription | None,
    generation: int,
) -> str | None:
    """The name of a copy of a model; the copy of the generation before, where it is the same."""
    name = getattr(now, part)
    if name is None:
        return None
    old = None if before is None else getattr(before, part)
    if old is not None and workspace.digest(out / old) == workspace.digest(source / name):
        return str(old)
    copy, partial = out / f"{part}-{generation}", out / f".{part}-{generation}.liebig.old"
    for path in (copy, partial):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source / name, partial)
    os.replace(partial, copy)
    return copy.name


def _relative(source: Path, out: Path) -> str:
    """Where the source is: below the folder, or anywhere."""
    source, out = source.resolve(), out.resolve()
    return str(source.relative_to(out)) if source.is_relative_to(out) else str(source)
