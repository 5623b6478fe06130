"""Words deleted, replaced and hidden: whole words, at their rate, never a special token."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.rng import key, mix
from liebig.text.masking import delete_words, hide_words, hit_words, replace_words

V, MASK = 50, 4
SPECIAL = np.arange(V) < 5
CONTINUES = np.arange(V) >= 30
rows = st.lists(st.lists(st.integers(0, V - 1), max_size=30), min_size=1, max_size=5)


def packed(sequences):
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sequences]))).astype(np.int64)
    return (
        np.array([t for s in sequences for t in s], dtype=np.int64),
        offsets,
        mix(key(1), np.arange(len(sequences))),
    )


@settings(max_examples=100)
@given(rows, st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_hits_are_whole_words_and_never_special(sequences, p, whole):
    tokens, offsets, keys = packed(sequences)
    hit = hit_words(tokens, offsets, keys, SPECIAL, p, CONTINUES if whole else None)
    assert not hit[SPECIAL[tokens]].any()
    assert p > 0 or not hit.any()
    assert p < 1 or (hit == ~SPECIAL[tokens]).all()
    if whole:
        inside = CONTINUES[tokens[1:]] & ~SPECIAL[tokens[:-1]]
        inside[offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(tokens))] - 1] = False
        assert (hit[1:][inside] == hit[:-1][inside]).all()


@settings(max_examples=100)
@given(rows, st.sampled_from([0.0, 0.3, 1.0]))
def test_deletion_removes_what_is_hit_and_leaves_a_word(sequences, p):
    tokens, offsets, keys = packed(sequences)
    hit = hit_words(tokens, offsets, keys, SPECIAL, p, CONTINUES, spare_one=True)
    row, bounds = delete_words(tokens, offsets, keys, SPECIAL, p, CONTINUES)
    for i, sequence in enumerate(sequences):
        flags = hit[offsets[i] : offsets[i + 1]]
        assert row[bounds[i] : bounds[i + 1]].tolist() == [t for t, h in zip(sequence, flags) if not h]
        words = [t for t in sequence if not SPECIAL[t]]
        assert not words or any(not SPECIAL[t] for t in row[bounds[i] : bounds[i + 1]])


def test_rates_are_those_asked_for():
    tokens, offsets, keys = packed([list(range(5, 25)) * 5] * 400)
    for p in (0.1, 0.2, 0.5):
        assert hit_words(tokens, offsets, keys, SPECIAL, p).mean() == pytest.approx(p, abs=0.01)


def test_replacements_are_ordinary_tokens_at_the_places_hit():
    tokens, offsets, keys = packed([[2, *range(5, 50), 3]] * 100)
    row = replace_words(tokens, offsets, keys, SPECIAL, 0.4, CONTINUES)
    hit = hit_words(tokens, offsets, keys, SPECIAL, 0.4, CONTINUES)
    assert (row[~hit] == tokens[~hit]).all()
    assert not SPECIAL[row[hit]].any()
    assert set(row[hit].tolist()) == set(range(5, 50))


def test_hidden_words_become_the_mask():
    tokens, offsets, keys = packed([[2, *range(5, 50), 3]] * 10)
    row = hide_words(tokens, offsets, keys, SPECIAL, 0.4, MASK, CONTINUES)
    hit = hit_words(tokens, offsets, keys, SPECIAL, 0.4, CONTINUES)
    assert (row == np.where(hit, MASK, tokens)).all()


def test_a_sequence_is_hit_alike_wherever_it_lies():
    tokens, offsets, keys = packed([[6, 30, 7], [8, 31, 9, 10]])
    alone = hit_words(tokens[3:], np.array([0, 4]), keys[1:], SPECIAL, 0.5, CONTINUES)
    assert (hit_words(tokens, offsets, keys, SPECIAL, 0.5, CONTINUES)[3:] == alone).all()
