"""Vectors that were made before, taken over where the same model made them of the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from liebig.model.settings import Floats, PackedRow, TokenSpans, nothing
from liebig.search.pieces import Ints
from liebig.search.token_windows import TextItem, Workers
from liebig.search.window_vectors import EncodingPlan, Model, PoolsSpans
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.vectors import Vectors

ROWS = 8192  # of a folder, read at a time


class KnownVectors:
    """A model that computes only the pieces whose vectors are not known yet; pieces are told apart by their tokens.

    What is known of a piece are rows: its own vector, and those of its sentences where these are known too.
    """

    pools_spans = True

    def __init__(self, model: Model, known: Mapping[bytes, Floats]) -> None:
        self._model, self._known, self.width = model, known, model.width

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """As every model; what is known is put in the place of what was not computed."""
        taken: dict[int, Floats] = {}
        bounds = None if spans is None else np.searchsorted(spans.piece, np.arange(count + 1))

        def rows_of(piece: Ints, number: int) -> Floats | None:
            rows = self._known.get(piece.tobytes())
            if rows is None or bounds is None:
                return rows
            return rows if len(rows) == 1 + bounds[number + 1] - bounds[number] else None

        def unknown() -> Iterator[PackedRow]:
            for tokens, numbers in packed:
                known = [rows_of(piece, number) for piece, number in zip(tokens, numbers.tolist())]
                new = np.array([i for i, rows in enumerate(known) if rows is None], np.int64)
                taken.update((n, rows) for n, rows in zip(numbers.tolist(), known) if rows is not None)
                rest = tokens.take(new)
                done(len(tokens.values) - len(rest.values))
                if len(new):
                    yield rest, numbers[new]

        if spans is None:
            computed = self._model.start(unknown(), count, done)
        else:
            assert isinstance(self._model, PoolsSpans), "`pools_sentences` says which models do"
            computed = self._model.start(unknown(), count, done, spans)

        def wait() -> Floats:
            vectors_PD = computed()
            for number, rows in taken.items():
                vectors_PD[number] = rows[0]
                if bounds is not None:
                    vectors_PD[count + bounds[number] : count + bounds[number + 1]] = rows[1:]
            return vectors_PD

        return wait


class FormerVectors(NamedTuple):
    """A folder of vectors, that of their sentences, and the texts they were made of, as they were cut."""

    folder: Path
    sentences: Path | None
    groups: Iterable[list[TextItem]]
    plan: EncodingPlan


def known_vectors(
    former: Iterable[FormerVectors], tokenizer: Tokenizer, layout: RoleLayout
) -> dict[bytes, Floats]:
    """The vectors of folders, by the tokens that they were made of.

    Rows of a piece: its own vector, then those of its sentences, if they were made with it.
    """
    known: dict[bytes, Floats] = {}
    for folder, sentences, groups, plan in former:
        vectors, inner = _all_vectors(folder), None if sentences is None else _all_vectors(sentences)
        start, first = 0, 0
        with Workers(tokenizer, None) as workers:
            for batch in workers.windows(groups, layout, sentences=sentences is not None):
                pieces = plan.pieces(batch)
                rows: dict[int, bytes] = {}
                stored = pieces.first if plan.long == "first" else np.ones(len(pieces.text), bool)
                places, spans = np.cumsum(stored) - 1, batch.spans(pieces, plan.frame)
                bounds = None if spans is None else np.searchsorted(spans.piece, np.arange(len(stored) + 1))
                for tokens, numbers in plan.packed(batch, pieces):
                    rows |= {n: row.tobytes() for row, n in zip(tokens, numbers.tolist()) if stored[n]}
                for n, piece in rows.items():
                    known[piece] = vectors[start + places[n], None]
                    if inner is not None and bounds is not None:
                        own = inner[first + bounds[n] : first + bounds[n + 1]]
                        known[piece] = np.concatenate([known[piece], own])
                start += int(stored.sum())
                first += 0 if spans is None else len(spans)
        assert start == len(vectors), "a vector for each piece"
    return known


def _all_vectors(path: Path) -> Floats:
    return np.concatenate([rows for _, rows in Vectors.open(path).chunks(ROWS)])
