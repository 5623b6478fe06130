"""Two spans of a document (coCondenser, CoT-MAE): random, nearby, overlapping, in a window, or mixed.

An example is a document; how its spans are drawn is `text/views.py`, and only offsets are touched before the
tokens are copied. Cost: about 0.5 us a document and 3 ns a sentence of it.
"""

from __future__ import annotations

import numpy as np

from liebig.data.batch_row import Frame, Ints, Keys, Row, example_keys, packed
from liebig.data.batch_table import Table
from liebig.data.store import TokenStore
from liebig.errors import DataError
from liebig.text.views import Kind, two_sentence_spans, two_spans


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
