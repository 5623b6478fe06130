"""A segment: the postings of some passages, never changed once written.

Files: the terms in order, where each one's postings start, the documents and term frequencies of the postings, how
many terms each field of a document has, the ids, and the texts for showing what was found. All are mapped; only the
terms are read, into a dictionary, when the first query comes. Deleted documents are a list kept beside the segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.data import npy
from liebig.data.ids import Ids, all_strings, read_strings
from liebig.data.store import Strings
from liebig.errors import CorruptError
from liebig.lexical.kernels import Int32s, Longs

FIELDS = ("title", "body", "queries")


@dataclass(frozen=True)
class Segment:
    """D passages, V terms, P postings."""

    path: Path
    starts: Longs  # V+1, into docs and tf
    docs: Int32s  # P, rising for each term
    tf: NDArray[Any]  # P, weighted term frequency
    lengths: Int32s  # D x FIELDS, terms of each field
    ids: Ids
    titles: Strings | None
    texts: Strings | None
    deleted: Longs  # numbers of the passages that are no longer there, rising

    @classmethod
    def open(cls, path: Path, deleted: Longs | None = None) -> Segment:
        """Map a segment whose files have been checked."""
        has_texts = (path / "texts.npy").is_file()
        segment = cls(
            path=path,
            starts=npy.load(path / "starts.npy"),
            docs=npy.load(path / "docs.npy"),
            tf=npy.load(path / "tf.npy"),
            lengths=npy.load(path / "lengths.npy"),
            ids=Ids.open(path),
            titles=read_strings(path, "titles") if has_texts else None,
            texts=read_strings(path, "texts") if has_texts else None,
            deleted=np.zeros(0, np.int64) if deleted is None else deleted,
        )
        if len(segment.ids) != len(segment) or segment.starts[-1] != len(segment.docs):
            raise CorruptError("the files of the segment do not fit each other", file=path, fix="index again")
        return segment

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def terms(self) -> dict[str, int]:
        """Term -> its number here."""
        return {term: number for number, term in enumerate(all_strings(read_strings(self.path, "terms")))}

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Which passages are there."""
        live = np.ones(len(self), bool)
        live[self.deleted] = False
        return live

    @cached_property
    def totals(self) -> Longs:
        """Terms of each field, over the passages that are there."""
        lengths = self.lengths[self.live] if len(self.deleted) else self.lengths
        return lengths.sum(0, dtype=np.int64)

    def frequency(self, term: int) -> int:
        """In how many passages that are there a term occurs."""
        documents = self.docs[self.starts[term] : self.starts[term + 1]]
        return int(self.live[documents].sum()) if len(self.deleted) else len(documents)
