"""Pairs that a collection names: labelled queries with their passages, passages with generated queries.

The texts of a collection that occur in pairs are tokenised once into one flat row; an example is an anchor (a query, or
a passage) and its partner is drawn among those it has, anew at each visit. Sequences come as (query, passage). Cost:
the tokens in memory, 4 bytes each, and 1 ns a token to copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from liebig.base import rng
from liebig.base.config import InputPath
from liebig.base.errors import DataError
from liebig.base.progress import track
from liebig.base.records import Passage, Title
from liebig.collection import GENERATED, Collection
from liebig.methods.base import PretrainRecipe
from liebig.methods.sources.base import Views
from liebig.methods.sources.token_rows import (
    ExampleSource,
    Ints,
    SpecialTokens,
    TokenRow,
    example_keys,
    packed,
)
from liebig.ragged import Ragged
from liebig.store import TokenStore
from liebig.text.layout import Record, RoleLayout
from liebig.text.tokenizer import Tokenizer

PARTNER = 0  # the numbered draw of an example's key that picks the partner


class CollectionSource(Views):
    """What sources over a collection share; a pair is a query and a passage."""

    collection: InputPath = Field(description="Collection with queries, passages and judgements.")
    reads_store: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False

    @abstractmethod
    def read_pairs(self, recipe: PretrainRecipe, tokenizer: Tokenizer) -> PairSource:
        """The pairs of the collection."""

    def open(
        self, recipe: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, ExampleSource]]:
        return [(self.collection.name, self.read_pairs(recipe, tokenizer))]


@dataclass(frozen=True)
class PairSource:
    """Queries, passages, and for each anchor its partners; `anchor` says which of the two an example is."""

    class Config(CollectionSource):
        """Labelled pairs of a collection: a query and one of its relevant passages."""

        kind: Literal["pairs"] = "pairs"
        split: str = Field(default="train", description="Split of the judgements.")

        def read_pairs(self, recipe: PretrainRecipe, tokenizer: Tokenizer) -> PairSource:
            return PairSource.read(
                Collection(self.collection),
                self.split,
                tokenizer,
                recipe.room(tokenizer),
                anchor="query",
                title=recipe.title_rule(),
            )

    texts: Ragged  # tokens of all queries, then of all passages, without special ones
    n_queries: int
    passage_documents: Ints
    anchor: Literal["query", "passage"]
    partners: Ragged  # numbers of each anchor's partners
    anchors: Ints  # numbers of the anchors
    frame: SpecialTokens

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
        return cls(texts, len(query_ids), documents, anchor, partners, anchors, SpecialTokens.of(tokenizer))

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

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row: query and passage of each example in turn."""
        queries, passages = self.chosen(examples, epoch, seed)
        texts = np.stack((queries, passages + self.n_queries), axis=1).reshape(-1)
        spans = np.stack((self.texts.offsets[texts], self.texts.offsets[texts + 1]), axis=1)[:, None]
        owner = np.repeat(np.arange(len(examples)), 2)
        return packed(self.texts.values, spans, self.frame, owner, example_keys(examples, epoch, seed))


class QuerySource(PairSource):
    """Generated queries: an example is a passage, and one of its queries is drawn."""

    class Config(CollectionSource):
        """A passage and one of the queries generated for it (query-as-context)."""

        kind: Literal["queries"] = "queries"
        collection: InputPath = Field(description="Collection with passages and generated queries.")
        split: str = Field(
            default=GENERATED, description="Split of the judgements that link queries to passages."
        )
        per_passage: int | None = Field(
            default=None, ge=1, description="Maximum number of queries per passage [default: all]."
        )

        def read_pairs(self, recipe: PretrainRecipe, tokenizer: Tokenizer) -> PairSource:
            return QuerySource.read(
                Collection(self.collection),
                self.split,
                tokenizer,
                recipe.room(tokenizer),
                anchor="passage",
                most=self.per_passage,
                title=recipe.title_rule(),
            )


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
