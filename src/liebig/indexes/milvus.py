"""A Milvus collection as an index: embedded by milvus-lite, or a server by its address, with the same code.

Numbers are the primary key, ids and any fields given lie beside the vectors and can be filtered by. An embedded
collection is stored in the index folder; it is opened from a copy, after the hash check, because Milvus writes to what
it opens. A server keeps its collection itself, and the folder only says where it is.
"""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from liebig.base import workspace
from liebig.base.errors import DataError, MissingDependency, RecipeError, WorkspaceError
from liebig.base.json_file import read_json
from liebig.base.machine import scratch_folder
from liebig.indexes import exact_cpu
from liebig.indexes.base import INDEX, ApproximateConfig, Index, IndexFile, Recall, ignore
from liebig.vectors import Vectors, VectorsAbout
from liebig.vectors.quantise import Floats
from liebig.vectors.ranked import Ranked, best

FILES = "milvus.db"
# Folders of search structures, which milvus-lite writes in the background and can make again.
DERIVED = "indexes"
MARK = "vectors of liebig"
EMBEDDED = ("FLAT", "AUTOINDEX", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8")  # index types of milvus-lite
LONGEST_ID = 512
BATCH = 2048  # ids of one question, queries of one search


@dataclass(frozen=True)
class MilvusSetting:
    """Where the collection is, and how it is indexed and searched."""

    uri: str | None
    collection: str
    width: PositiveInt
    index: str = "FLAT"
    parameters: Mapping[str, int] = field(default_factory=dict)
    search: Mapping[str, int] = field(default_factory=dict)
    following: NonNegativeInt = 0  # the number of the next vector


class MilvusFile(IndexFile):
    """`index.json` of a Milvus collection."""

    setting: MilvusSetting
    about: VectorsAbout
    recall: Recall | None


class MilvusIndex(Index):
    """Vectors in Milvus."""

    class Config(ApproximateConfig):
        """A Milvus collection: embedded in the index folder, or on a server by its address."""

        kind: Literal["milvus"] = "milvus"
        uri: str | None = Field(
            None, description="Address of a Milvus server [default: embedded, by milvus-lite]."
        )
        collection: str = Field("passages", description="Name of the Milvus collection.")
        index: str = Field(
            "FLAT", description="Milvus index type: FLAT (exact), HNSW, IVF_FLAT, AUTOINDEX, ..."
        )
        parameters: dict[str, int] = Field(
            {}, description="Build parameters of the index type, such as M or nlist."
        )
        search: dict[str, int] = Field(
            {}, description="Search parameters, such as ef or nprobe [default: found by recall]."
        )

        @property
        def given_effort(self) -> int | None:
            return next(iter(self.search.values()), None)

    kind = "milvus"

    def __init__(self, setting: MilvusSetting, about: Mapping[str, Any], files: Path | None = None) -> None:
        self.setting, self.about, self.width = setting, about, setting.width
        self._names: dict[int, str] = {}
        self._home = scratch_folder("liebig-milvus-") if setting.uri is None else None
        if self._home is not None and files is not None:
            shutil.copytree(files, self._home / FILES)
        self._connect()

    @classmethod
    def build(
        cls,
        config: Config,
        vectors: Vectors,
        folder: Path,
        *,
        seed: int = 0,
        done: Callable[[int], None] = ignore,
    ) -> MilvusIndex:
        index = cls.create(config, vectors.width, vectors.about)
        index.extend(vectors, folder, done=done)
        return index

    @classmethod
    def create(cls, config: Config, width: int, about: Mapping[str, Any] | None = None) -> MilvusIndex:
        """An empty collection."""
        if config.uri is None and config.index not in EMBEDDED:
            raise RecipeError(
                f"the embedded Milvus has no index type {config.index!r}",
                fix=f"use one of {', '.join(EMBEDDED)}, or the uri of a server that has it",
            )
        setting = MilvusSetting(
            config.uri, config.collection, width, config.index, config.parameters, config.search
        )
        made = cls(setting, about or {})
        with _refusals():
            made._make()
        return made

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None, device: str | None = None) -> MilvusIndex:
        saved = read_json(folder / INDEX, MilvusFile, fix="index again")
        setting = saved.setting
        opened = cls(setting, saved.about.row(), folder / FILES if setting.uri is None else None)
        opened.recall = saved.recall
        if not opened._client.has_collection(setting.collection):
            raise WorkspaceError(
                f"there is no collection {setting.collection!r} at {setting.uri}",
                file=folder,
                fix="index again",
            )
        opened._load()
        return opened

    def _connect(self) -> None:
        uri = self.setting.uri if self._home is None else str(self._home / FILES)
        assert uri is not None, "a collection without a home has an address"
        self._client = connect(uri)
        self._closing = weakref.finalize(self, _close, self._client, uri, self._home)

    def _load(self) -> None:
        """Load the collection; an embedded one makes its search structures anew where they are half-written."""
        from pymilvus.exceptions import MilvusException

        try:
            self._client.load_collection(self.setting.collection)
        except MilvusException:
            if self._home is None:
                raise
            for stale in (self._home / FILES).rglob(DERIVED):
                shutil.rmtree(stale, ignore_errors=True)
            self._client.load_collection(self.setting.collection)

    def _make(self) -> None:
        from pymilvus import DataType

        client, name = self._client, self.setting.collection
        if client.has_collection(name):
            if client.describe_collection(name).get("description") != MARK:
                raise WorkspaceError(
                    f"the Milvus collection {name!r} exists and was not created by Liebig; refusing to overwrite it",
                    fix="name another collection",
                )
            client.drop_collection(name)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=True, description=MARK)
        schema.add_field("number", DataType.INT64, is_primary=True)
        schema.add_field("id", DataType.VARCHAR, max_length=LONGEST_ID)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.width)
        indexes = client.prepare_index_params()
        indexes.add_index(
            "vector", index_type=self.setting.index, metric_type="IP", params=dict(self.setting.parameters)
        )
        client.create_collection(name, schema=schema, index_params=indexes, consistency_level="Strong")
        client.load_collection(name)

    @property
    def knob(self) -> str | None:
        kind = self.setting.index
        return "nprobe" if kind.startswith("IVF") else "ef" if kind.startswith("HNSW") else None

    @property
    def exhaustive(self) -> bool:
        return self.setting.index == "FLAT"

    @property
    def most_effort(self) -> int:
        return self.setting.parameters.get("nlist", 4096) if self.knob == "nprobe" else 4096

    @property
    def effort(self) -> int | None:
        return self.setting.search.get(self.knob) if self.knob is not None else None

    def set_effort(self, effort: int) -> None:
        assert self.knob is not None, "an index type without a knob"
        self.setting = replace(self.setting, search={**self.setting.search, self.knob: effort})

    def __len__(self) -> int:
        rows = self._client.query(self.setting.collection, filter="", output_fields=["count(*)"])
        return int(rows[0]["count(*)"])

    def add(
        self, ids: Sequence[str], vectors: Floats, fields: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Add vectors, with fields to filter by; one whose id is already there takes its place."""
        self._check(ids, vectors)
        first = self.setting.following
        self._remove([number for _, number in self._numbers(ids)])
        rows = [
            {**(fields[i] if fields else {}), "number": first + i, "id": id, "vector": vector}
            for i, (id, vector) in enumerate(zip(ids, np.ascontiguousarray(vectors, np.float32)))
        ]
        for start in range(0, len(rows), BATCH):
            with _refusals():
                self._client.insert(self.setting.collection, rows[start : start + BATCH])
        self.setting = replace(self.setting, following=first + len(ids))

    def _check(self, ids: Sequence[str], vectors: Floats) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(f"vectors of shape {vectors.shape} do not match an index of width {self.width}")
        if not np.isfinite(vectors).all():
            raise DataError("a vector contains NaN or infinity", fix="check the model that made it")
        if len(set(ids)) < len(ids):
            raise DataError("an id occurs twice", fix="give every vector an id of its own")
        for id in ids:
            if len(id.encode()) > LONGEST_ID:
                raise DataError(
                    f"the id {id[:40]!r}... is longer than {LONGEST_ID} bytes", fix="use shorter ids"
                )

    def _numbers(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        """The ids that are there, with their numbers."""
        wanted, found = list(ids), []
        for start in range(0, len(wanted), BATCH):
            among = json.dumps(wanted[start : start + BATCH], ensure_ascii=False)
            rows = self._client.query(
                self.setting.collection, filter=f"id in {among}", output_fields=["id", "number"], limit=16384
            )
            found += [(row["id"], int(row["number"])) for row in rows]
        return found

    def _remove(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), BATCH):
            self._client.delete(self.setting.collection, ids=list(numbers[start : start + BATCH]))

    def delete(self, ids: Iterable[str]) -> list[str]:
        names = list(ids)
        numbers = self._numbers(names)
        self._remove([number for _, number in numbers])
        there = {id for id, _ in numbers}
        return [id for id in names if id not in there]

    def search(self, queries: Floats, k: int, filter: str = "") -> Ranked:
        """The k best of every query, among those a Milvus filter expression lets through."""
        exact_cpu.check(queries)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        numbers = np.full((len(queries), k), -1, np.int64)
        for start in range(0, len(queries), BATCH):
            part = np.ascontiguousarray(queries[start : start + BATCH], np.float32)
            with _refusals():
                results = self._client.search(
                    self.setting.collection,
                    data=part.tolist(),
                    anns_field="vector",
                    limit=k,
                    filter=filter,
                    output_fields=["id"],
                    search_params={"metric_type": "IP", "params": self._parameters(k)},
                )
            for q, hits in enumerate(results, start):
                for place, hit in enumerate(hits):
                    number = int(hit["number"])
                    scores[q, place], numbers[q, place] = hit["distance"], number
                    self._names[number] = hit["entity"]["id"]
        return best(scores, numbers, k)

    def _parameters(self, k: int) -> dict[str, int]:
        """Search parameters; a server refuses an ef below the number of hits."""
        parameters = dict(self.setting.search)
        return parameters | {"ef": max(parameters["ef"], k)} if "ef" in parameters else parameters

    def id(self, number: int) -> str:
        if number not in self._names:
            rows = self._client.query(
                self.setting.collection, filter=f"number == {number}", output_fields=["id"]
            )
            self._names[number] = rows[0]["id"]
        return self._names[number]

    def find(self, id: str) -> int | None:
        return next((number for _, number in self._numbers([id])), None)

    def save(self, folder: Path) -> None:
        self._client.flush(self.setting.collection)
        if self._home is not None:
            disconnect(self._client, str(self._home / FILES))
            shutil.rmtree(folder / FILES, ignore_errors=True)
            shutil.copytree(
                self._home / FILES, folder / FILES, ignore=shutil.ignore_patterns("LOCK", DERIVED)
            )
            self._closing.detach()
            self._connect()
            self._load()
        recall = asdict(self.recall) if self.recall is not None else None
        summary = {
            "kind": self.kind, "setting": asdict(self.setting), "about": dict(self.about), "recall": recall
        }  # fmt: skip
        workspace.atomic_write(folder / INDEX, (json.dumps(summary, indent=2) + "\n").encode())

    def info(self) -> dict[str, Any]:
        where = self.setting.uri or "embedded"
        recall = self.recall.measured if self.recall is not None else None
        return {
            "kind": self.kind,
            "vectors": len(self),
            "where": where,
            **asdict(self.setting),
            "recall": recall,
        }

    def close(self) -> None:
        """Let go of the connection, and of the copy of an embedded collection."""
        self._closing()


def connect(uri: str) -> Any:
    """A client of the server at an address, or of one inside this process for the path of a file.

    A client asks once whether its server is there. An embedded one is a thread that waits for the processor like
    others, so it gets more time, and another is started if it does not answer.
    """
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError:
        raise MissingDependency("pymilvus", "milvus", "a Milvus collection") from None
    embedded = _is_embedded(uri)
    if embedded and find_spec("milvus_lite") is None:
        raise MissingDependency("milvus-lite", "milvus", "an embedded Milvus collection")
    for _ in range(2 if embedded else 1):
        try:
            # A shared connection would stay when its server stops, and meet whatever gets the port next.
            return MilvusClient(uri, timeout=60 if embedded else 10, dedicated=embedded)
        except MilvusException as error:
            failure = error.message
            if embedded:
                _stop(uri)
    raise WorkspaceError(f"Milvus at {uri} does not answer: {failure}", fix="check the address")


def disconnect(client: Any, uri: str) -> None:
    """Close a connection, and stop the server if it is embedded, so that its file is at rest."""
    client.close()
    if _is_embedded(uri):
        _stop(uri)


def _is_embedded(uri: str) -> bool:
    return "://" not in uri


def _stop(uri: str) -> None:
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(uri)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what Milvus refuses (a type, a name, a filter) into one sentence for the user."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise RecipeError(
            f"Milvus rejected the request: {error.message}", fix="change the setting it names"
        ) from None


def _close(client: Any, uri: str, home: Path | None) -> None:
    disconnect(client, uri)
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)
