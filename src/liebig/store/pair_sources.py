"""Where pre-training pairs come from: blocks, inverse cloze, two spans, crops, and pairs that a collection names.

A source decides *where* its sequences lie in the store (one or more ranges of tokens each); `packed` copies them with
their special tokens into one `Row`. Everything random is drawn from the key of an example, so a batch is a pure
function of seed and step, in any process.

- `BlockSource`, `ClozeSource`: sentences are added to a block while it stays within its target (Condenser's data).
- `SpanSource`: two spans of a document (coCondenser, CoT-MAE), drawn by `text/views.py`.
- `CropSource`: two crops of a window (Contriever); windows are shifted anew every epoch.
- `PairSource`: labelled or generated queries with their passages.

The document of an example is looked up in a running count kept for every 64th document. Cost: one pass over the offsets
at the start (3 ns per sentence, 20 ns per document), then under 1 us per example and 1 ns per token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.progress import track
from liebig.base.records import Passage, Title
from liebig.base.rng import below, mix, uniform
from liebig.collection import Collection
from liebig.ragged import Ragged, gather
from liebig.store import TokenStore
from liebig.text.layout import Record, RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.text.views import (
    Kind,
    cloze_sentence,
    cloze_span,
    truncate,
    two_crops,
    two_sentence_spans,
    two_spans,
)

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
SEQUENCE = 1 << 32  # the counter of a sequence's own key, far above those of the draws of its example


@dataclass(frozen=True)
class Row:
    """B sequences of tokens, special ones included; `owner` says which example of the batch each belongs to."""

    tokens: Ragged  # B
    owner: Ints  # B, never decreasing
    keys: Keys  # B

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, sequences: Ints) -> Row:
        """The given sequences, in the given order, with the owners they have."""
        return Row(self.tokens.take(sequences), self.owner[sequences], self.keys[sequences])


class Source(Protocol):
    """Where sequences come from: a number of examples, and what each looks like in an epoch."""

    def __len__(self) -> int:
        """How many examples an epoch has."""

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """The sequences of these examples; a pure function of its arguments, example by example."""


class Frame(NamedTuple):
    """The special tokens before and after a sequence."""

    before: Ints
    after: Ints

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
        """What the tokenizer puts around one sequence."""
        template = tokenizer.template
        return cls(np.array(template.before, np.int64), np.array(template.after, np.int64))


def example_keys(examples: Ints, epoch: int, seed: int) -> Keys:
    """A key for everything random in an example in this epoch."""
    return np.asarray(rng.mix(rng.key(seed, epoch), examples), np.uint64)


def packed(tokens: NDArray[Any], spans: Ints, frame: Frame, owner: Ints, keys: Keys) -> Row:
    """The row of the sequences at `spans` [sequence, part, (begin, end)]; `keys` are those of the examples."""
    row = gather(tokens, spans, frame.before, frame.after)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    number = np.arange(len(owner)) - np.repeat(first, np.diff(first, append=len(owner)))
    return Row(row, owner, np.asarray(rng.mix(keys[owner], SEQUENCE + number), np.uint64))


def joined(rows: Sequence[Row], owners: Sequence[Ints]) -> Row:
    """Rows drawn apart as one batch: example k of row r becomes example `owners[r][k]` of the batch, in order."""
    owner = np.concatenate([places[row.owner] for row, places in zip(rows, owners)])
    tokens = Ragged.concatenate(row.tokens for row in rows)
    whole = Row(tokens, owner, np.concatenate([row.keys for row in rows]))
    return whole.take(np.argsort(owner, kind="stable"))


GROUP = 64


class Levels(NamedTuple):
    """The offsets of a store, in the form that kernels take."""

    documents: Ints
    sections: Ints
    paragraphs: Ints
    sentences: Ints

    @classmethod
    def of(cls, store: TokenStore) -> Levels:
        """The four levels of a store."""
        return cls(store.documents, store.sections, store.paragraphs, store.sentences)


class ExamplePlaces(NamedTuple):
    """The document of each example, and the number of its window there."""

    documents: Ints
    windows: Ints


class Table:
    """Examples of the documents of at least `minimum` tokens: one each, or one for every `window` tokens."""

    def __init__(self, store: TokenStore, minimum: int, window: int = 0) -> None:
        self._levels, self._minimum, self._window = Levels.of(store), max(minimum, 1), window
        sums, self.skipped = _survey(self._levels, self._minimum, window)
        self._ends = np.cumsum(sums)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def find(self, examples: Ints) -> ExamplePlaces:
        """Where these examples lie."""
        return ExamplePlaces(*_find(self._levels, self._ends, examples, self._minimum, self._window))


@njit(nogil=True, cache=True)
def first_sentence(levels: Any, document: int) -> int:
    """The first sentence of a document, which is the end of the one before."""
    return levels.paragraphs[levels.sections[levels.documents[document]]]


@njit(nogil=True, cache=True)
def _examples(levels: Any, document: int, minimum: int, window: int) -> int:
    """How many examples a document gives."""
    first, last = first_sentence(levels, document), first_sentence(levels, document + 1)
    tokens = levels.sentences[last] - levels.sentences[first]
    if tokens < minimum:
        return 0
    return max(1, tokens // window) if window > 0 else 1


@njit(nogil=True, cache=True)
def _survey(levels: Any, minimum: int, window: int) -> Any:
    """Examples in each group of documents, and how many documents give none."""
    documents, skipped = len(levels.documents) - 1, 0
    sums = np.zeros((documents + GROUP - 1) // GROUP, np.int64)
    for document in range(documents):
        count = _examples(levels, document, minimum, window)
        sums[document // GROUP] += count
        skipped += count == 0
    return sums, skipped


@njit(nogil=True, cache=True)
def _find(levels: Any, ends: Any, examples: Any, minimum: int, window: int) -> Any:
    documents, windows = np.empty(len(examples), np.int64), np.empty(len(examples), np.int64)
    for i in range(len(examples)):
        group = np.searchsorted(ends, examples[i], side="right")
        left = examples[i] - (ends[group - 1] if group > 0 else 0)
        document = group * GROUP
        count = _examples(levels, document, minimum, window)
        while left >= count:
            left -= count
            document += 1
            count = _examples(levels, document, minimum, window)
        documents[i], windows[i] = document, left
    return documents, windows


STRETCH = 256


class BlockSource:
    """One sequence an example: a block of at most `limit` tokens, the special ones not counted.

    `layout` is the seed that the short targets are drawn from. A sentence longer than the limit is a block of its
    own, of which a random window is drawn at each visit. `least` leaves out blocks of fewer sentences.
    """

    def __init__(
        self, store: TokenStore, limit: int, *, short: float = 0.1, layout: int = 0, least: int = 1
    ) -> None:
        self.store, self.limit, self.short, self.least = store, limit, short, least
        self._key = rng.key(layout)
        self._levels, self._frame = Levels.of(store), Frame.of(store.tokenizer)
        self._starts, counts, self.tokens = _survey_blocks(self._levels, self._key, limit, short, least)
        self._ends = np.cumsum(counts)
        if len(self) == 0:
            raise DataError(
                f"no block of at least {least} sentences and at most {limit} tokens can be cut",
                file=store.path,
            )

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def per_batch(self, tokens: int) -> int:
        """How many blocks make a batch of about this many tokens, special ones included."""
        mean = self.tokens / len(self) + len(self._frame.before) + len(self._frame.after)
        return max(1, round(tokens / mean))

    def blocks(self, examples: Ints) -> Ints:
        """First sentence, and one past the last, of each example's block."""
        return _find_block(
            self._levels, self._key, self._starts, self._ends, examples, self.limit, self.short, self.least
        )

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the block of each example."""
        keys = example_keys(examples, epoch, seed)
        bounds = self.store.sentences[self.blocks(examples)]
        spans = np.stack(truncate(bounds[:, 0], bounds[:, 1], keys, self.limit), axis=1)[:, None]
        return packed(self.store.tokens, spans, self._frame, np.arange(len(examples)), keys)


class ClozeSource:
    """The inverse cloze task: a sentence of a block (sequence 2i), and the block without it (2i+1).

    With probability `keep` the sentence stays in the block as well (10 % in ICT's paper, Lee et al. 2019). With
    `ratio` the query is a span of that share of the block's tokens instead of a sentence, as Contriever has it.
    """

    def __init__(
        self,
        store: TokenStore,
        limit: int,
        *,
        keep: float = 0.1,
        ratio: tuple[float, float] | None = None,
        short: float = 0.1,
        layout: int = 0,
    ) -> None:
        self._blocks = BlockSource(store, limit, short=short, layout=layout, least=2)
        self.store, self.limit, self.keep, self.ratio = store, limit, keep, ratio
        self._frame = Frame.of(store.tokenizer)

    def __len__(self) -> int:
        return len(self._blocks)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the query and the rest of each example's block."""
        keys = example_keys(examples, epoch, seed)
        blocks, sentences = self._blocks.blocks(examples), self.store.sentences
        if self.ratio is None:
            parts = cloze_sentence(sentences, blocks[:, 0], blocks[:, 1], keys, self.keep, self.limit)
        else:
            bounds = sentences[blocks]
            parts = cloze_span(bounds[:, 0], bounds[:, 1], keys, *self.ratio, self.keep, self.limit)
        spans = parts[:, [0, 0, 1, 2]].reshape(-1, 2, 2)
        spans[::2, 1] = 0
        return packed(self.store.tokens, spans, self._frame, np.repeat(np.arange(len(examples)), 2), keys)


@njit(nogil=True, cache=True)
def _block_end(sentences: Any, begin: Any, last: Any, target: Any) -> Any:
    """One past the last sentence of the block that begins at `begin`."""
    end = begin + 1
    while end < last and sentences[end + 1] - sentences[begin] <= target:
        end += 1
    return end


@njit(nogil=True, cache=True)
def _target(key: Any, begin: Any, limit: Any, short: Any) -> Any:
    """The target of the block that begins at this sentence."""
    own = mix(key, begin)
    return 1 + below(own, 1, limit) if uniform(own, 0) < short else limit


@njit(nogil=True, cache=True)
def _next_block(levels: Any, key: Any, begin: Any, stop: Any, document: Any, limit: Any, short: Any) -> Any:
    """The end of the block at `begin`, and the document it lies in; a block ends with its document and stretch."""
    while first_sentence(levels, document + 1) <= begin:
        document += 1
    last = min(stop, first_sentence(levels, document + 1))
    return _block_end(levels.sentences, begin, last, _target(key, begin, limit, short)), document


@njit(nogil=True, cache=True)
def _survey_blocks(levels: Any, key: Any, limit: Any, short: Any, least: Any) -> Any:
    """For every stretch the document it begins in and the number of its blocks; and the tokens in all of them."""
    total = len(levels.sentences) - 1
    stretches = (total + STRETCH - 1) // STRETCH
    starts, counts, tokens = np.empty(stretches, np.int64), np.zeros(stretches, np.int64), 0
    document = 0
    for stretch in range(stretches):
        begin, stop = stretch * STRETCH, min((stretch + 1) * STRETCH, total)
        while first_sentence(levels, document + 1) <= begin:
            document += 1
        starts[stretch] = document
        while begin < stop:
            end, document = _next_block(levels, key, begin, stop, document, limit, short)
            if end - begin >= least:
                counts[stretch] += 1
                tokens += min(levels.sentences[end] - levels.sentences[begin], limit)
            begin = end
    return starts, counts, tokens


@njit(nogil=True, cache=True)
def _find_block(
    levels: Any, key: Any, starts: Any, ends: Any, examples: Any, limit: Any, short: Any, least: Any
) -> Any:
    out = np.empty((len(examples), 2), np.int64)
    total = len(levels.sentences) - 1
    for i in range(len(examples)):
        stretch = np.searchsorted(ends, examples[i], side="right")
        left = examples[i] - (ends[stretch - 1] if stretch > 0 else 0)
        begin, stop = stretch * STRETCH, min((stretch + 1) * STRETCH, total)
        document = starts[stretch]
        while True:
            end, document = _next_block(levels, key, begin, stop, document, limit, short)
            if end - begin >= least:
                if left == 0:
                    break
                left -= 1
            begin = end
        out[i, 0], out[i, 1] = begin, end
    return out


class SpanSource:
    """Pairs of spans; the sequences of example i are 2i and 2i+1.

    `limit` counts tokens without the special ones. With probability `short` a span's limit is drawn from
    1..limit instead (10 % in the papers' data). A document of at most `limit` tokens has not two spans: it is
    skipped (`skipped` counts them), or with `once` gives the one span it is, so that `owner` shows it once.
    `sentences=False` cuts anywhere instead of between sentences.
    """

    def __init__(
        self,
        store: TokenStore,
        limit: int,
        *,
        kind: Kind = "random",
        short: float = 0.1,
        sentences: bool = True,
        once: bool = False,
    ) -> None:
        self.store, self.limit, self.kind, self.short = store, limit, kind, short
        self.sentences, self.once = sentences, once
        self._frame, self._table = Frame.of(store.tokenizer), Table(store, 1 if once else limit + 1)
        self.skipped = self._table.skipped
        if len(self) == 0:
            raise DataError(
                f"no document has two spans of at most {limit} tokens",
                file=store.path,
                fix="take shorter spans (max_length), or for masked terms alone use such documents once "
                "(source.single = 'once')",
            )

    def __len__(self) -> int:
        return len(self._table)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the spans of each example."""
        keys = example_keys(examples, epoch, seed)
        first, last = self.store.sentence_ranges(self._table.find(examples).documents)
        starts, ends = self.store.sentences[first], self.store.sentences[last]
        double = ends - starts > self.limit
        spans = np.stack((starts, ends, starts, ends), axis=1).reshape(-1, 2, 2)
        spans[double] = self._pairs(first[double], last[double], keys[double])
        kept = np.stack((np.ones_like(double), double), axis=1).ravel()
        owner = np.repeat(np.arange(len(examples)), 2)[kept]
        return packed(self.store.tokens, spans.reshape(-1, 1, 2)[kept], self._frame, owner, keys)

    def _pairs(self, first: Ints, last: Ints, keys: Keys) -> Ints:
        """Two spans of each document, [document, span, (begin, end)]."""
        sentences = self.store.sentences
        if self.sentences:
            return two_sentence_spans(sentences, first, last, keys, self.limit, self.kind, self.short)
        return two_spans(sentences[first], sentences[last], keys, self.limit, self.kind, self.short)


_SHIFT = 1 << 33  # the counter of a document's shift, above those of examples


class CropSource:
    """Pairs of crops, each a share of the window from U(ratio); the sequences of example i are 2i and 2i+1.

    Documents under `minimum` tokens are left out (`skipped` counts them).
    """

    def __init__(
        self,
        store: TokenStore,
        window: int = 256,
        *,
        ratio: tuple[float, float] = (0.05, 0.5),
        across: bool = False,
        minimum: int = 2,
    ) -> None:
        self.store, self.window, self.ratio, self.across = store, window, ratio, across
        self._frame = Frame.of(store.tokenizer)
        self._table = None if across else Table(store, minimum, window)
        self.skipped = 0 if self._table is None else self._table.skipped
        if len(self) == 0:
            raise DataError(
                f"no window of {window} tokens can be cut", file=store.path, fix="use a smaller one"
            )

    def __len__(self) -> int:
        if self._table is None:
            return max(len(self.store.tokens) // self.window - 1, 0)
        return len(self._table)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """One row with the two crops of each example."""
        keys = example_keys(examples, epoch, seed)
        begin, end = self._windows(examples, rng.key(seed, epoch))
        spans = two_crops(begin, end, keys, *self.ratio).reshape(-1, 1, 2)
        return packed(self.store.tokens, spans, self._frame, np.repeat(np.arange(len(examples)), 2), keys)

    def _windows(self, examples: Ints, key: np.uint64) -> tuple[Ints, Ints]:
        """Begin and end in tokens of each example's window in this epoch."""
        if self._table is None:
            begin = examples * self.window + rng.below(key, _SHIFT, self.window)
            return begin, begin + self.window
        found = self._table.find(examples)
        starts, ends = self.store.token_ranges(found.documents)
        slack = (ends - starts) % self.window * (ends - starts >= self.window)
        begin = starts + found.windows * self.window + rng.below(key, _SHIFT + found.documents, slack + 1)
        return begin, np.minimum(begin + self.window, ends)


# Pairs that a collection names: labelled queries with their passages, passages with generated queries.
#
# The texts of a collection that occur in pairs are tokenised once into one flat row; an example is an anchor (a
# query, or a passage) and its partner is drawn among those it has, anew at each visit. Sequences come as (query,
# passage). Cost: the tokens in memory, 4 bytes each, and 1 ns a token to copy.

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
