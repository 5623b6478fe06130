"""Lines of a large file by query: where each query's lines begin is kept, the lines are read when asked for.

For runs and judgements of millions of queries: 16 bytes a query in memory, one read each. Lines of a query may stand
in several places.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import numpy as np

from liebig.data.lookup import OffsetIndex, hash64
from liebig.errors import DataError


class Blocks:
    """A file whose first column is the id of a query; columns end at white space, or at the separator given."""

    def __init__(self, path: Path, separator: bytes | None = None) -> None:
        self._path, self._separator = path, separator
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=path, fix="check the path") from None
        hashes, starts, last, at = array("Q"), array("Q"), b"", 0
        for line in self._file:
            query = line.split(separator, 1)[0] if line.strip() else last
            if query != last:
                hashes.append(hash64(query.decode("utf-8", "replace")))
                starts.append(at)
                last = query
            at += len(line)
        self._index = OffsetIndex.build(np.asarray(hashes), np.asarray(starts))

    def lines(self, query: str) -> list[list[str]]:
        """The columns of every line of a query, in the order of the file."""
        found, wanted = [], query.encode()
        for start in self._index.candidates(query):
            self._file.seek(start)
            for line in self._file:
                columns = line.rstrip(b"\r\n").split(self._separator)
                if line.strip() and columns[0] != wanted:
                    break
                if line.strip():
                    found.append([column.decode("utf-8", "replace") for column in columns])
        return found

    def hits(self, query: str) -> list[tuple[str, float]]:
        """Passages and scores of a TREC run, best first; of equal scores the one that stands first."""
        found = []
        for columns in self.lines(query):
            if len(columns) != 6:
                raise DataError(
                    f"a line of query {query!r} has {len(columns)} columns instead of 6",
                    file=self._path,
                    fix="give a TREC run",
                )
            found.append((columns[2], self._score(columns[4], query)))
        return sorted(found, key=lambda pair: -pair[1])

    def _score(self, text: str, query: str) -> float:
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise DataError(
                f"the score {text!r} of query {query!r} is no number", file=self._path, fix="give a TREC run"
            )
        return score
