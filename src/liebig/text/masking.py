"""Masked language modelling: which tokens of a packed row are hidden, and behind what.

Whole words (Devlin et al.'s scheme as Condenser's code runs it): the target is max(1, round(rate × length)) with
the length of the sequence as the model sees it, so masking comes *after* truncation. Words are tried in an order
that is a function of the sequence's key alone; a word that would pass the target is skipped and the next tried.
Each chosen piece becomes [MASK] (80 %), a random ordinary token (10 %) or stays (10 %), and is a label.
Special tokens are neither counted nor chosen nor drawn. Cost: about 20 ns a token, one core.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base.rng import below, mix, uniform
from liebig.ragged import Ragged, offsets_of

_WORDS, _PIECES = np.uint64(1), np.uint64(2)  # streams of a key: the order of words, what becomes of a piece
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the chosen pieces, as in BERT


class Masked(NamedTuple):
    """A masked row, the positions to predict (ascending) and what stood there."""

    tokens: Ragged
    targets: NDArray[np.int64]
    labels: NDArray[np.int64]


def mask_words(
    tokens: Ragged,
    keys: NDArray[np.uint64],
    continues: NDArray[np.bool_],
    special: NDArray[np.bool_],
    mask_id: int,
    vocab_size: int,
    rate: float,
) -> Masked:
    """Whole-word masking of sequences, each under its own key.

    A word is a piece and the pieces after it that continue it; the first piece after a special token begins a
    word. Where every word is longer than the target, nothing is chosen, as in the reference.
    """
    assert len(keys) == len(tokens), "one key for each sequence"
    assert keys.dtype == np.uint64, "keys are uint64"
    assert 0 <= rate <= 1, "a rate is a share"
    row, offsets = tokens.values.astype(np.int64), tokens.offsets
    chosen = np.zeros(len(row), dtype=np.bool_)
    _choose_words(row, offsets, keys, continues, special, rate, chosen)
    targets = np.flatnonzero(chosen)
    labels = row[targets]
    ordinary = np.flatnonzero(~special[:vocab_size])
    _replace(row, offsets, keys, chosen, ordinary, mask_id)
    return Masked(Ragged(row, offsets), targets, labels)


@njit(nogil=True, cache=True)
def _choose_words(
    row: Any, offsets: Any, keys: Any, continues: Any, special: Any, rate: float, chosen: Any
) -> None:
    longest = 0
    for b in range(len(keys)):
        longest = max(longest, offsets[b + 1] - offsets[b])
    starts = np.empty(longest + 1, np.int64)
    ends = np.empty(longest + 1, np.int64)
    for b in range(len(keys)):
        words, length = _words(row, offsets[b], offsets[b + 1], continues, special, starts, ends)
        if length == 0 or rate == 0.0:
            continue
        target = max(1, int(np.rint(rate * length)))
        _choose(mix(keys[b], _WORDS), words, target, starts, ends, chosen)


@njit(nogil=True, cache=True)
def _words(row: Any, start: int, end: int, continues: Any, special: Any, starts: Any, ends: Any) -> Any:
    """The words of a sequence into `starts` and `ends`; returns how many, and how many pieces they have."""
    words, length = 0, 0
    inside = False
    for p in range(start, end):
        piece = row[p]
        if special[piece]:
            inside = False
            continue
        if inside and continues[piece]:
            ends[words - 1] = p + 1
        else:
            starts[words], ends[words] = p, p + 1
            words += 1
        inside = True
        length += 1
    return words, length


@njit(nogil=True, cache=True)
def _choose(key: Any, words: int, target: int, starts: Any, ends: Any, chosen: Any) -> None:
    """Fisher and Yates's shuffle, only as far as it is needed."""
    taken = 0
    for i in range(words):
        if taken == target:
            break
        j = i + below(key, i, words - i)
        start, end = starts[j], ends[j]
        starts[j], ends[j] = starts[i], ends[i]
        if taken + end - start <= target:
            chosen[start:end] = True
            taken += end - start


@njit(nogil=True, cache=True)
def _replace(row: Any, offsets: Any, keys: Any, chosen: Any, ordinary: Any, mask_id: int) -> None:
    """Most of the chosen pieces become [MASK], some a random ordinary token, and the others stay."""
    for b in range(len(keys)):
        key = mix(keys[b], _PIECES)
        start = offsets[b]
        for p in range(start, offsets[b + 1]):
            if chosen[p]:
                draw = uniform(key, 2 * (p - start))
                if draw < MASK_SHARE:
                    row[p] = mask_id
                elif draw < MASK_SHARE + RANDOM_SHARE and len(ordinary) > 0:
                    row[p] = ordinary[below(key, 2 * (p - start) + 1, len(ordinary))]


# Noise (Contriever 3.1.2, "additional data augmentation"): each piece of a word, as in Contriever's code, is hit with
# probability p under the key of its sequence. Special tokens are never hit. Deletion keeps at least the piece with the
# highest draw. Cost: about 5 ns per token.

_NOISE_HITS, _NOISE_PIECES = np.uint64(3), np.uint64(4)  # streams of a key, apart from those of masking


def delete_tokens(tokens: Ragged, keys: NDArray[np.uint64], special: NDArray[np.bool_], p: float) -> Ragged:
    """The sequences without the tokens that were hit."""
    hit = hit_tokens(tokens, keys, special, p, spare_one=True)
    return Ragged(tokens.values.astype(np.int64)[~hit], offsets_of(~hit)[tokens.offsets])


def replace_tokens(tokens: Ragged, keys: NDArray[np.uint64], special: NDArray[np.bool_], p: float) -> Ragged:
    """Every token that was hit becomes a random ordinary one."""
    row = tokens.values.astype(np.int64)
    hit = hit_tokens(tokens, keys, special, p)
    _replace_hit(row, tokens.offsets, keys, hit, np.flatnonzero(~special))
    return Ragged(row, tokens.offsets)


def hide_tokens(
    tokens: Ragged, keys: NDArray[np.uint64], special: NDArray[np.bool_], p: float, mask_id: int
) -> Ragged:
    """Every token that was hit becomes [MASK]."""
    hit = hit_tokens(tokens, keys, special, p)
    return Ragged(np.where(hit, np.int64(mask_id), tokens.values.astype(np.int64)), tokens.offsets)


def hit_tokens(
    tokens: Ragged, keys: NDArray[np.uint64], special: NDArray[np.bool_], p: float, spare_one: bool = False
) -> NDArray[np.bool_]:
    """Which tokens are hit."""
    assert 0 <= p <= 1, "a probability"
    assert len(keys) == len(tokens), "one key for each sequence"
    assert keys.dtype == np.uint64, "keys are uint64"
    hit = np.zeros(len(tokens.values), dtype=np.bool_)
    _hit(tokens.values, tokens.offsets, keys, special, p, spare_one, hit)
    return hit


@njit(nogil=True, cache=True)
def _hit(row: Any, offsets: Any, keys: Any, special: Any, p: float, spare_one: bool, hit: Any) -> None:
    for b in range(len(keys)):
        key = mix(keys[b], _NOISE_HITS)
        number, highest, best, all_hit = 0, -1.0, 0, True
        for t in range(offsets[b], offsets[b + 1]):
            if special[row[t]]:
                continue
            draw = uniform(key, number)
            number += 1
            if draw > highest:
                highest, best = draw, t
            hit[t] = draw < p
            all_hit = all_hit and hit[t]
        if spare_one and number > 0 and all_hit:
            hit[best] = False


@njit(nogil=True, cache=True)
def _replace_hit(row: Any, offsets: Any, keys: Any, hit: Any, ordinary: Any) -> None:
    for b in range(len(keys)):
        key = mix(keys[b], _NOISE_PIECES)
        for t in range(offsets[b], offsets[b + 1]):
            if hit[t]:
                row[t] = ordinary[below(key, t - offsets[b], len(ordinary))]
