"""Pairs that a collection names: labelled queries with their passages, passages with generated queries.

The texts of a collection that occur in pairs are tokenised once into one flat row; an example is an anchor (a query, or
a passage) and its partner is drawn among those it has, anew at each visit. Sequences come as (query, passage).
Cost: the tokens in memory, 4 bytes each, and 1 ns a token to copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.progress import track
from liebig.base.records import Passage, Title
from liebig.collection.collection import Collection
from liebig.ragged import Ragged
from liebig.store.pair_sources import Frame, Row, example_keys, packed
from liebig.text.layout import Record, RoleLayout
from liebig.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]
PARTNER = 0  # the numbered draw of an example's key that picks the partner


@dataclass(frozen=True)
class PairSource:
    """Queries, passages, and for each anchor its partners; `anchor` says which of the two an example is."""

    texts: Ragged  # tokens of all queries, then of all passages, without special ones
    n_queries: int
    passage_documents: Ints
    anchor: Literal["query", "passage"]
    partners: Ragged  # numbers of each anchor's partners
    anchors: Ints  # numbers of the anchors
    frame: Frame

    @classmethod
    def read(
        cls,
        collection: Collection,
        split: str,
        tokenizer: Tokenizer,
        limit: int,
        *,
        anchor: Literal["query", "passage"],
        most: int | None = None,
        title: Title = "space",
    ) -> Self:
        """The relevant pairs of a split; `most` bounds how many partners an anchor keeps, the first ones."""
        named = list(_named(collection, split))
        if not named:
            raise DataError(f"the split {split!r} has no relevant pairs", file=collection.path)
        query_ids = {name: i for i, name in enumerate(dict.fromkeys(query for query, _ in named))}
        passage_ids = {name: i for i, name in enumerate(dict.fromkeys(passage for _, passage in named))}
        queries = {query.id: query for query in collection.queries() if query.id in query_ids}
        passages, documents = _passages(collection, passage_ids)
        pairs = np.array([(query_ids[q], passage_ids[p]) for q, p in named], np.int64)
        anchors, partners = grouped(pairs if anchor == "query" else pairs[:, ::-1], most)
        records = [*_in_order(queries, query_ids), *_in_order(passages, passage_ids)]
        texts = RoleLayout(tokenizer, limit, title=title, bare=True).all_ids(records)
        return cls(texts, len(query_ids), documents, anchor, partners, anchors, Frame.of(tokenizer))

    def __len__(self) -> int:
        return len(self.anchors)

    def chosen(self, examples: Ints, epoch: int, seed: int) -> tuple[Ints, Ints]:
        """The query and the passage of each example at this visit."""
        first = self.partners.offsets[examples]
        count = self.partners.offsets[examples + 1] - first
        pick = rng.integers(example_keys(examples, epoch, seed), PARTNER, count)
        anchors, partners = self.anchors[examples], self.partners.values[first + pick]
        return (anchors, partners) if self.anchor == "query" else (partners, anchors)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """The document that each example's passage comes from."""
        return self.passage_documents[self.chosen(examples, epoch, seed)[1]]

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row: query and passage of each example in turn."""
        queries, passages = self.chosen(examples, epoch, seed)
        texts = np.stack((queries, passages + self.n_queries), axis=1).reshape(-1)
        spans = np.stack((self.texts.offsets[texts], self.texts.offsets[texts + 1]), axis=1)[:, None]
        owner = np.repeat(np.arange(len(examples)), 2)
        return packed(self.texts.values, spans, self.frame, owner, example_keys(examples, epoch, seed))


def grouped(pairs: Ints, most: int | None) -> tuple[Ints, Ragged]:
    """Anchors and the partners of each, from (anchor, partner) rows in order."""
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    begins = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))
    if most is not None:
        place = np.arange(len(pairs)) - np.repeat(begins, np.diff(begins, append=len(pairs)))
        return grouped(pairs[place < most], None)
    return pairs[begins, 0], Ragged(pairs[:, 1], np.append(begins, len(pairs)))


def _named(collection: Collection, split: str) -> Iterator[tuple[str, str]]:
    """Each (query, passage) once, from judgements and groups."""
    judged = ((j.query, j.passage) for j in collection.judgements(split) if j.relevance > 0)
    grouped = ((g.query, p) for g in collection.groups(split) for p in g.positives)
    yield from dict.fromkeys([*judged, *grouped])


def _passages(collection: Collection, ids: Mapping[str, int]) -> tuple[dict[str, Passage], Ints]:
    """Passages by id, and a number for each document."""
    passages, names = {}, {}
    for passage in track(collection.passages(), "reading passages", unit="passages"):
        if passage.id in ids:
            passages[passage.id] = passage
            names[passage.id] = passage.doc or passage.id
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names.values()))}
    return passages, np.array([numbers[names[p]] for p in ids if p in names], np.int64)


def _in_order(records: Mapping[str, Record], ids: Iterable[str]) -> Iterator[Record]:
    for name in ids:
        if name not in records:
            raise DataError(f"a pair names {name!r}, which the collection does not have")
        yield records[name]
