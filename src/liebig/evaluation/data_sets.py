"""The data that the papers' tables need: size, source and checks of each set, from `data_sets.toml`."""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from liebig.base.records import Document, Judgement, Passage, Query, ScoredPair
from liebig.evaluation.suites import BY_NAME
from liebig.formats import detect
from liebig.formats.items import Options, split_in

BEIR = "public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
SHORT = 200.0  # tokens of a text whose length nobody states


@dataclass(frozen=True)
class DataSet:
    """A folder below data/: what a source states of it; `estimated` numbers serve for plans alone."""

    folder: str
    title: str
    get: str
    files: tuple[str, ...] = ()
    passages: int = 0
    documents: int = 0
    examples: int = 0
    tokens: float = SHORT
    splits: Mapping[str, int] = field(default_factory=dict)
    md5: Mapping[str, str] = field(default_factory=dict)
    estimated: bool = False

    @property
    def texts(self) -> int:
        return self.passages or self.documents or self.examples


@cache
def data_sets() -> dict[str, DataSet]:
    text = (resources.files("liebig.evaluation") / "data_sets.toml").read_text(encoding="utf-8")
    tree = tomllib.loads(text)
    archives = tree.pop("beir")
    made = {
        folder: DataSet(folder, **{**fields, "files": tuple(fields.get("files", ()))})
        for folder, fields in tree.items()
    }
    for name, md5 in archives.items():
        suite = BY_NAME.get(f"beir/{name}")
        size: dict[str, Any] = (
            {} if suite is None else {"passages": suite.passages, "splits": {"test": suite.queries}}
        )
        title, get = f"BEIR, {name}", f"{BEIR}/{name}.zip, unpacked"
        folder = f"data/beir/{name}"
        made[folder] = DataSet(folder, title, get, md5={f"{name}.zip": md5}, **size)
    return made


def known(path: Path) -> DataSet | None:
    """The set that a folder holds, by the end of its path: `/disk/data/beir/nq`, `beir/nq`."""
    ends = ["/".join(path.absolute().parts[-n:]) for n in (2, 1)]
    folders = {folder.removeprefix("data/"): one for folder, one in data_sets().items()}
    return next((folders[end] for end in ends if end in folders), None)


@dataclass(frozen=True)
class DataCheck:
    """One thing that was compared with what a source states."""

    name: str
    what: str
    good: bool = True


def check(path: Path, expected: DataSet) -> Iterator[DataCheck]:
    """Files, hashes and counts of a folder; what no source states is said to be unknown."""
    for name in expected.files:
        there = (path / name).is_file()
        yield DataCheck(name, "is there" if there else "is missing", there)
    for name, md5 in expected.md5.items():
        file = next((place / name for place in (path, path.parent) if (place / name).is_file()), None)
        if file is not None:
            actual = _md5(file)
            yield DataCheck(
                name, f"md5 {actual}" + ("" if actual == md5 else f", expected {md5}"), actual == md5
            )
        else:
            yield DataCheck(name, "not kept, so its md5 was not compared")
    if expected.files:  # a model
        return
    counts, queries = _count(path)
    for kind, stated in (("passages", expected.passages), ("documents", expected.documents)):
        if stated and not expected.estimated:
            yield DataCheck(kind, f"{counts[kind]:,} of {stated:,}", counts[kind] == stated)
        elif counts[kind]:
            yield DataCheck(kind, f"{counts[kind]:,}; the right number is unknown")
    for split, stated in expected.splits.items():
        yield DataCheck(f"split {split}", f"{queries[split]:,} of {stated:,}", queries[split] == stated)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _count(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Texts by kind, and judged queries, questions or pairs by split."""
    counts: Counter[str] = Counter()
    judged: dict[str, set[str]] = {}
    others: Counter[str] = Counter()
    for source in detect(path):
        for item in source.items(Options()):
            split = item.split or split_in(source.source.name) or "test"
            record = item.record
            if isinstance(record, Passage | Document):
                counts["passages" if isinstance(record, Passage) else "documents"] += 1
            elif isinstance(record, Judgement):
                judged.setdefault(split, set()).add(record.query)
            elif isinstance(record, ScoredPair) or (isinstance(record, Query) and record.answers):
                others[split] += 1
    return counts, others | Counter({split: len(queries) for split, queries in judged.items()})
