"""The generated queries of a file, by passage.

The file has JSON lines `{"passage": id, "queries": [..]}` or `{"passage": id, "query": ".."}`, any number per passage,
in any order. Memory: 16 bytes per line for the offsets, no texts.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.errors import DataError
from liebig.collection.lookup import hash64
from liebig.collection.offset_index import OffsetIndex

GENERATED = "generated.jsonl"  # in the folder of liebig queries generate


class GeneratedQueries:
    """The generated queries of a file, by passage."""

    def __init__(self, path: Path) -> None:
        path = path / GENERATED if path.is_dir() else path
        if not path.is_file():
            raise DataError(
                "there are no generated queries", file=path, fix="generate them with liebig queries generate"
            )
        self._file = path.open("rb")
        self._path = path
        hashes, starts = array("Q"), array("Q")
        start = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                hashes.append(hash64(self._parse(line, number)["passage"]))
                starts.append(start)
            start += len(line)
        self._index = OffsetIndex.build(np.asarray(hashes), np.asarray(starts))

    def of(self, passage: str) -> list[str]:
        """The queries of a passage, from all its lines."""
        queries: list[str] = []
        for start in self._index.candidates(passage):
            self._file.seek(start)
            line = self._parse(self._file.readline(), 0)
            if line["passage"] == passage:
                queries += [line["query"]] if "query" in line else line["queries"]
        return queries

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"is not JSON: {error}", file=self._path, line=number) from None
        value = value if isinstance(value, dict) else {}
        queries = value.get("queries", [value.get("query")])
        texts = isinstance(queries, list) and all(isinstance(query, str) for query in queries)
        if not isinstance(value.get("passage"), str) or not texts:
            raise DataError(
                "is not a line of generated queries",
                file=self._path,
                line=number,
                fix='each line should read {"passage": "id", "queries": ["..."]}',
            )
        return dict(value)
