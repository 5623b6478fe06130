"""doc2query: the queries generated for each passage, looked up while the passages are indexed.

The file has JSON lines `{"passage": id, "queries": [..]}` or `{"passage": id, "query": ".."}`, any number per passage,
in any order. Memory: 16 bytes per line for the offsets, no texts.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.errors import DataError
from liebig.base.records import Passage
from liebig.bm25.index import PassageWithQueries
from liebig.collection.lookup import OffsetIndex, hash64

FILE = "generated.jsonl"  # in the folder of liebig queries generate


class GeneratedQueries:
    """The generated queries of a file, by passage; `used` counts the lines that were looked up."""

    def __init__(self, path: Path) -> None:
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise DataError(
                "there are no generated queries", file=path, fix="generate them with liebig queries generate"
            )
        self._file = path.open("rb")
        self._path = path
        self.used = 0
        hashes, starts = array("Q"), array("Q")
        start = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                hashes.append(hash64(self._parse(line, number)["passage"]))
                starts.append(start)
            start += len(line)
        self._index = OffsetIndex.build(np.asarray(hashes), np.asarray(starts))

    def __len__(self) -> int:
        return len(self._index)

    def of(self, passage: str) -> tuple[str, ...]:
        """The queries of a passage, in the order of the file."""
        return tuple(query for _, query in self.numbered(passage))

    def numbered(self, passage: str) -> tuple[tuple[int, str], ...]:
        """The same with their numbers: those in the file, which show that some were dropped, else their places."""
        numbered: list[tuple[int, str]] = []
        for start in self._index.candidates(passage):
            self._file.seek(start)
            line = self._parse(self._file.readline(), 0)
            if line["passage"] == passage:
                queries = [line["query"]] if "query" in line else line["queries"]
                places = range(len(numbered), len(numbered) + len(queries))
                numbered += zip(line.get("numbers", places), queries, strict=True)
                self.used += 1
        return tuple(numbered)

    def expand(self, passages: Iterable[Passage]) -> Iterator[PassageWithQueries]:
        """Passages with their queries."""
        for passage in passages:
            yield passage, self.of(passage.id)

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"is not JSON: {error}", file=self._path, line=number) from None
        value = value if isinstance(value, dict) else {}
        queries = value.get("queries", [value.get("query")])
        numbers = value.get("numbers", queries)
        lists = isinstance(queries, list) and isinstance(numbers, list) and len(queries) == len(numbers)
        if (
            not isinstance(value.get("passage"), str)
            or not lists
            or not all(isinstance(q, str) for q in queries)
        ):
            raise DataError(
                "is not a line of generated queries",
                file=self._path,
                line=number,
                fix='each line should read {"passage": "id", "queries": ["..."]}',
            )
        return dict(value)
