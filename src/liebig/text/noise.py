"""Words deleted, replaced or hidden at random in a packed row (Contriever 3.1.2, "additional data augmentation").

Each word, or each piece where no `continues` table is given (as in Contriever's code), is hit with probability p,
under the key of its sequence. Special tokens are never hit. Deletion leaves every sequence at least the word
with the highest draw. Cost: about 5 ns a token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.rng import below, mix, uniform

_WORDS, _PIECES = np.uint64(3), np.uint64(4)  # streams of a key, apart from those of masking


def delete_words(
    tokens: NDArray[Any],
    offsets: NDArray[Any],
    keys: NDArray[np.uint64],
    special: NDArray[np.bool_],
    p: float,
    continues: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row and offsets without the words that were hit."""
    hit = hit_words(tokens, offsets, keys, special, p, continues, spare_one=True)
    left = np.concatenate(([0], np.cumsum(~hit)))
    return tokens.astype(np.int64)[~hit], left[offsets]


def replace_words(
    tokens: NDArray[Any],
    offsets: NDArray[Any],
    keys: NDArray[np.uint64],
    special: NDArray[np.bool_],
    p: float,
    continues: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Every piece that was hit becomes a random ordinary token."""
    row = tokens.astype(np.int64)
    hit = hit_words(tokens, offsets, keys, special, p, continues)
    _replace(row, offsets, keys, hit, np.flatnonzero(~special))
    return row


def hide_words(
    tokens: NDArray[Any],
    offsets: NDArray[Any],
    keys: NDArray[np.uint64],
    special: NDArray[np.bool_],
    p: float,
    mask_id: int,
    continues: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Every piece that was hit becomes [MASK]."""
    hit = hit_words(tokens, offsets, keys, special, p, continues)
    return np.where(hit, np.int64(mask_id), tokens.astype(np.int64))


def hit_words(
    tokens: NDArray[Any],
    offsets: NDArray[Any],
    keys: NDArray[np.uint64],
    special: NDArray[np.bool_],
    p: float,
    continues: NDArray[np.bool_] | None = None,
    spare_one: bool = False,
) -> NDArray[np.bool_]:
    """Which tokens are hit: all pieces of a word or none."""
    assert 0 <= p <= 1, "a probability"
    assert len(keys) == len(offsets) - 1, "one key for each sequence"
    assert keys.dtype == np.uint64, "keys are uint64"
    joined = np.zeros(len(special), dtype=np.bool_) if continues is None else continues
    hit = np.zeros(len(tokens), dtype=np.bool_)
    _hit(tokens, offsets, keys, joined, special, p, spare_one, hit)
    return hit


@njit(nogil=True, cache=True)
def _hit(
    row: Any, offsets: Any, keys: Any, continues: Any, special: Any, p: float, spare_one: bool, hit: Any
) -> None:
    for b in range(len(keys)):
        key = mix(keys[b], _WORDS)
        word, inside, draw = 0, False, 0.0
        highest, best, all_hit = -1.0, 0, True
        for t in range(offsets[b], offsets[b + 1]):
            piece = row[t]
            if special[piece]:
                inside = False
                continue
            if not (inside and continues[piece]):
                draw = uniform(key, word)
                word += 1
                if draw > highest:
                    highest, best = draw, t
            inside = True
            hit[t] = draw < p
            all_hit = all_hit and hit[t]
        if spare_one and word > 0 and all_hit:
            hit[best] = False
            t = best + 1
            while t < offsets[b + 1] and continues[row[t]] and not special[row[t]]:
                hit[t] = False
                t += 1


@njit(nogil=True, cache=True)
def _replace(row: Any, offsets: Any, keys: Any, hit: Any, ordinary: Any) -> None:
    for b in range(len(keys)):
        key = mix(keys[b], _PIECES)
        for t in range(offsets[b], offsets[b + 1]):
            if hit[t]:
                row[t] = ordinary[below(key, t - offsets[b], len(ordinary))]
