"""Random crops (Contriever): two independent pieces of one window of a document.

A document is cut into windows at a shift drawn anew every epoch; a document shorter than a window is one. With
`across`, windows are cut from the whole row of tokens and cross documents, as the released code does. Of a window
two crops are drawn (`text/views.py`). Cost: about 0.5 us an example.
"""

from __future__ import annotations

import numpy as np

from liebig import rng
from liebig.data.batch_row import Frame, Ints, Row, example_keys, packed
from liebig.data.batch_table import Table
from liebig.data.store import TokenStore
from liebig.errors import DataError
from liebig.text.views import two_crops

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
                f"no window of {window} tokens can be cut", file=store.path, fix="take a smaller one"
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
