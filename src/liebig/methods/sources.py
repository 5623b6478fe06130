"""From a recipe to what batches are drawn from: every source over every store, with its share.

Several stores and the parts of a mixture end in one flat list of sources; a batch, or each of its examples, comes
from one of them. Without weights they count by size to the power of a coefficient: 1 gives every example the same
chance, 0 every source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError, RecipeError
from liebig.base.progress import track
from liebig.base.records import Passage, Title
from liebig.collection.collection import Collection
from liebig.methods import source_configs as recipes
from liebig.methods.building import start_folder
from liebig.methods.held_out import documents_of, hold_out
from liebig.methods.objective_configs import CotmaeConfig, Objective
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.teacher import Taught, TextSource
from liebig.ragged import bounds as offsets_of
from liebig.store.batches import Batches, MixedBatches, Stepped
from liebig.store.pair_sources import (
    BlockSource,
    ClozeSource,
    CropSource,
    Frame,
    Row,
    Source,
    SpanSource,
    example_keys,
    packed,
)
from liebig.store.store import TokenStore
from liebig.text.layout import Layout, Record, RoleLayout
from liebig.text.masking import delete_words, hide_words, replace_words
from liebig.text.tokenizer import Tokenizer

# Pairs that somebody or something named: labelled queries with their passages, passages with generated
# queries.
#
# The texts of a collection that occur in pairs are tokenised once into one flat row; an example is an
# anchor (a query, or a passage) and its partner is drawn among those it has, anew at each visit. Sequences
# come as (query, passage). Cost: the tokens in memory, 4 bytes each, and 1 ns a token to copy.

Ints = NDArray[np.int64]
PARTNER = 0  # the numbered draw of an example's key that picks the partner


@dataclass(frozen=True)
class Texts:
    """Tokenised texts: text i is tokens[offsets[i]:offsets[i+1]]."""

    tokens: NDArray[np.uint32]
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[Record], tokenizer: Tokenizer, limit: int, title: Title = "space") -> Texts:
        """Tokenise, and cut every text at `limit` tokens; special tokens come around it in the batch."""
        parts, sizes = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
        for row, offsets in RoleLayout(tokenizer, limit, title=title, bare=True).parts(texts):
            parts.append(row.astype(np.uint32))
            sizes.append(np.diff(offsets))
        return cls(np.concatenate(parts), offsets_of(np.concatenate(sizes)))


@dataclass(frozen=True)
class PairSource:
    """Queries, passages, and for each anchor its partners; `anchor` says which of the two an example is."""

    texts: Texts  # all queries, then all passages
    n_queries: int
    passage_documents: Ints
    anchor: Literal["query", "passage"]
    partners: Ints  # numbers of partners, anchor after anchor
    bounds: Ints  # where each anchor's partners begin, and the last one's end
    anchors: Ints  # numbers of the anchors
    frame: Frame

    def __len__(self) -> int:
        return len(self.anchors)

    def chosen(self, examples: Ints, epoch: int, seed: int) -> tuple[Ints, Ints]:
        """The query and the passage of each example at this visit."""
        first = self.bounds[examples]
        count = self.bounds[examples + 1] - first
        pick = rng.integers(example_keys(examples, epoch, seed), PARTNER, count)
        anchors, partners = self.anchors[examples], self.partners[first + pick]
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
        return packed(self.texts.tokens, spans, self.frame, owner, example_keys(examples, epoch, seed))


def read_pairs(
    collection: Collection,
    split: str,
    tokenizer: Tokenizer,
    limit: int,
    *,
    anchor: Literal["query", "passage"],
    most: int | None = None,
    title: Title = "space",
) -> PairSource:
    """The relevant pairs of a split; `most` bounds how many partners an anchor keeps, the first ones."""
    named = list(_named(collection, split))
    if not named:
        raise DataError(f"the split {split!r} names no relevant pair", file=collection.path)
    query_ids = {name: i for i, name in enumerate(dict.fromkeys(query for query, _ in named))}
    passage_ids = {name: i for i, name in enumerate(dict.fromkeys(passage for _, passage in named))}
    queries = {query.id: query for query in collection.queries() if query.id in query_ids}
    passages, documents = _passages(collection, passage_ids)
    pairs = np.array([(query_ids[q], passage_ids[p]) for q, p in named], np.int64)
    anchors, bounds, partners = grouped(pairs if anchor == "query" else pairs[:, ::-1], most)
    records = [*_in_order(queries, query_ids), *_in_order(passages, passage_ids)]
    texts = Texts.of(records, tokenizer, limit, title)
    return PairSource(
        texts, len(query_ids), documents, anchor, partners, bounds, anchors, Frame.of(tokenizer)
    )


def grouped(pairs: Ints, most: int | None) -> tuple[Ints, Ints, Ints]:
    """Anchors, where each one's partners begin and end, and the partners, from (anchor, partner) rows in order."""
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    begins = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))
    if most is not None:
        place = np.arange(len(pairs)) - np.repeat(begins, np.diff(begins, append=len(pairs)))
        return grouped(pairs[place < most], None)
    return pairs[begins, 0], np.append(begins, len(pairs)), pairs[:, 1]


def _named(collection: Collection, split: str) -> Iterator[tuple[str, str]]:
    """Each (query, passage) once, from judgements and groups."""
    judged = ((j.query, j.passage) for j in collection.judgements(split) if j.relevance > 0)
    grouped = ((g.query, p) for g in collection.groups(split) for p in g.positives)
    yield from dict.fromkeys([*judged, *grouped])


def _passages(collection: Collection, wanted: Mapping[str, int]) -> tuple[dict[str, Passage], Ints]:
    """Passages by id, and a number for each document."""
    found, names = {}, {}
    for passage in track(collection.passages(), "reading passages", unit="passages"):
        if passage.id in wanted:
            found[passage.id] = passage
            names[passage.id] = passage.doc or passage.id
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names.values()))}
    return found, np.array([numbers[names[p]] for p in wanted if p in names], np.int64)


def _in_order(records: Mapping[str, Record], wanted: Iterable[str]) -> Iterator[Record]:
    for name in wanted:
        if name not in records:
            raise DataError(f"a pair names {name!r}, which the collection does not have")
        yield records[name]


# Sources around sources: tokens deleted, replaced or hidden, and pairs put in the order an objective reads
# them.
#
# Each is a source itself, so that mixtures and held-out parts need not know. Cost: 5 ns a token for each
# noise.


@dataclass(frozen=True)
class Noisy:
    """A source whose sequences lose, swap or hide tokens at random."""

    source: Source
    tokenizer: Tokenizer
    delete: float = 0.0
    replace: float = 0.0
    mask: float = 0.0

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """The inner source's row, changed token by token under each sequence's key."""
        row = self.source.draw(examples, epoch, seed)
        tokens, offsets, special = row.tokens, row.offsets, self.tokenizer.special
        if self.delete:
            tokens, offsets = delete_words(tokens, offsets, row.keys, special, self.delete)
        if self.replace:
            tokens = replace_words(tokens, offsets, _other(row, 1), special, self.replace)
        if self.mask:
            tokens = hide_words(tokens, offsets, _other(row, 2), special, self.mask, self.tokenizer.mask)
        return Row(tokens, offsets, row.owner, row.keys)

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """The documents of the inner source's examples."""
        return documents_of(self.source, examples, epoch, seed)


def _other(row: Row, stream: int) -> NDArray[np.uint64]:
    """Keys of their own, so that deletion and replacement hit independently."""
    return np.asarray(rng.mix(row.keys, stream), np.uint64)


@dataclass(frozen=True)
class Arranged:
    """A source of pairs as CoT-MAE reads them: for the encoder, for the decoder, and so on in turn.

    A symmetric pair (a, b) goes both ways: a, b, b, a. Of (query, passage) the passage is encoded and the query
    decoded.
    """

    source: Source
    symmetric: bool

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """The inner source's pairs, put in order."""
        row = self.source.draw(examples, epoch, seed)
        order = np.array([0, 1, 1, 0]) if self.symmetric else np.array([1, 0])
        return row.take((np.arange(0, len(row), 2)[:, None] + order[None, :]).reshape(-1))

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """The documents of the inner source's examples."""
        return documents_of(self.source, examples, epoch, seed)


SAMPLE = 512


@dataclass(frozen=True)
class Weighted:
    """A source and its share of the training."""

    source: Source
    share: float
    name: str
    skipped: int = 0


def build(config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer) -> list[Weighted]:
    """All sources of a resolved recipe; shares add up to 1."""
    made = [_part(part, config, stores, tokenizer) for part in recipes.parts(config.source)]
    given = (
        [p.weight for p in config.source.parts]
        if isinstance(config.source, recipes.MixtureConfig)
        else [None]
    )
    outer = shares(given, [sum(len(w.source) for w in part) for part in made], config.coefficient)
    return [
        Weighted(w.source, w.share * share, w.name, w.skipped)
        for part, share in zip(made, outer)
        for w in part
    ]


def shares(given: Sequence[float | None], sizes: Sequence[int], coefficient: float) -> list[float]:
    """Shares that add up to 1: the weights given, or size^coefficient."""
    known = [weight for weight in given if weight is not None]
    if known and len(known) != len(given):
        raise RecipeError(
            "some have a weight and others none", fix="give a weight to all of them, or to none"
        )
    weights = np.array(known if known else np.array(sizes, np.float64) ** coefficient, np.float64)
    return [float(share) for share in weights / weights.sum()]


def _part(
    part: recipes.Single, config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
) -> list[Weighted]:
    """One source of the recipe over all stores it reads."""
    if isinstance(part, recipes.PairsConfig | recipes.QueriesConfig):
        made: list[tuple[str, Any]] = [(part.collection.name, _collected(part, config, tokenizer))]
        given: list[float | None] = [None]
    else:
        made = [(store.path.name, _stored(part, config, store)) for store in stores]
        given = [store.weight for store in config.stores]
    inner = shares(given, [len(source) for _, source in made], config.coefficient)
    return [
        Weighted(
            _wrapped(source, part, config.objective, tokenizer),
            share,
            f"{part.kind} of {name}",
            getattr(source, "skipped", 0),
        )
        for (name, source), share in zip(made, inner)
    ]


def room(config: PretrainConfig, tokenizer: Tokenizer) -> int:
    """Tokens of a sequence without its special ones."""
    frame = Frame.of(tokenizer)
    return config.max_length - len(frame.before) - len(frame.after)


def _stored(part: recipes.Single, config: PretrainConfig, store: TokenStore) -> Source:
    limit = room(config, store.tokenizer)
    if isinstance(part, recipes.BlocksConfig):
        return BlockSource(store, limit, short=part.short)
    if isinstance(part, recipes.TextsConfig):
        taught = Taught.open(part.vectors)
        taught.check(store)
        return TextSource(store, taught, limit, part.group)
    if isinstance(part, recipes.SpansConfig):
        return SpanSource(store, limit, kind=part.choice, short=part.short, once=part.single == "once")
    if isinstance(part, recipes.CropsConfig):
        return _crops(part, limit, config.max_length, store)
    assert isinstance(part, recipes.ClozeConfig), "every kind has its branch"
    ratio = None if part.longest is None else (part.shortest or 0.0, part.longest)
    return ClozeSource(store, limit, keep=part.keep, ratio=ratio, short=part.short)


def _crops(part: recipes.CropsConfig, limit: int, max_length: int, store: TokenStore) -> CropSource:
    longest = int(part.window * part.longest)
    if longest > limit:
        raise RecipeError(
            f"crops of up to {longest} tokens do not fit into max_length = {max_length}",
            fix=f"set max_length = {max_length + longest - limit}, or a smaller source.window",
        )
    ratio = (0.0 if part.shortest is None else part.shortest, part.longest)
    return CropSource(store, part.window, ratio=ratio, across=part.across)


def _collected(
    part: recipes.PairsConfig | recipes.QueriesConfig, config: PretrainConfig, tokenizer: Tokenizer
) -> Source:
    anchor: Literal["query", "passage"] = "query" if isinstance(part, recipes.PairsConfig) else "passage"
    most = part.per_passage if isinstance(part, recipes.QueriesConfig) else None
    collection = Collection(part.collection)
    limit, title = room(config, tokenizer), title_of(config)
    return read_pairs(collection, part.split, tokenizer, limit, anchor=anchor, most=most, title=title)


def title_of(config: PretrainConfig) -> Title:
    """What stands between title and text: as said, else as the start was trained."""
    folder = start_folder(config)
    return config.title or (Layout() if folder is None else Layout.load(folder)).title


def _wrapped(source: Source, part: recipes.Single, objective: Objective, tokenizer: Tokenizer) -> Source:
    """With its noise, and in the order the objective reads."""
    if isinstance(part, recipes.Views) and (part.delete or part.replace or part.mask):
        source = Noisy(source, tokenizer, part.delete or 0.0, part.replace, part.mask)
    if isinstance(objective, CotmaeConfig):
        source = Arranged(source, symmetric=isinstance(part, recipes.SpansConfig | recipes.CropsConfig))
    return source


def divide(found: Sequence[Weighted], share: float) -> tuple[list[Weighted], list[Weighted]]:
    """What is trained on, and what is held out."""
    kept, held = [], []
    for one in found:
        train, rest = hold_out(one.source, share)
        kept.append(Weighted(train, one.share, one.name, one.skipped))
        if rest is not None:
            held.append(Weighted(rest, one.share, one.name))
    return kept, held


def tokens_per_example(found: Sequence[Weighted]) -> float:
    """Mean tokens of an example, special ones included, measured on a sample from all over each source."""
    total = 0.0
    for one in found:
        sample = np.linspace(0, len(one.source) - 1, min(SAMPLE, len(one.source))).astype(np.int64)
        total += one.share * len(one.source.draw(sample, 0, 0).tokens) / len(sample)
    return total


def batches(
    found: Sequence[Weighted], size: int, seed: int, per: Literal["batch", "example"], together: int = 1
) -> Stepped:
    """Batches of `size` examples from all sources, `together` of them neighbours."""
    if len(found) == 1:
        return Batches(found[0].source, size, seed, together)
    return MixedBatches([w.source for w in found], [w.share for w in found], size, seed, per, together)


def epoch_steps(found: Sequence[Weighted], size: int) -> int:
    """Steps in which as many examples are seen as there are."""
    return max(1, sum(len(w.source) for w in found) // size)
