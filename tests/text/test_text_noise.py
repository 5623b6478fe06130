"""Words deleted, replaced and hidden: whole words, at their rate, never a special token."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.rng import key, mix
from liebig.ragged import Ragged
from liebig.text.masking import delete_words, hide_words, hit_words, replace_words

V, MASK = 50, 4
SPECIAL = np.arange(V) < 5
CONTINUES = np.arange(V) >= 30
sequences_of = st.lists(st.lists(st.integers(0, V - 1), max_size=30), min_size=1, max_size=5)


def packed(sequences):
    return Ragged.from_lists(sequences), mix(key(1), np.arange(len(sequences)))


@settings(max_examples=100)
@given(sequences_of, st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_hits_are_whole_words_and_never_special(sequences, p, whole):
    rows, keys = packed(sequences)
    hit = hit_words(rows, keys, SPECIAL, p, CONTINUES if whole else None)
    tokens, offsets = rows.values, rows.offsets
    assert not hit[SPECIAL[tokens]].any()
    assert p > 0 or not hit.any()
    assert p < 1 or (hit == ~SPECIAL[tokens]).all()
    if whole:
        inside = CONTINUES[tokens[1:]] & ~SPECIAL[tokens[:-1]]
        inside[offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(tokens))] - 1] = False
        assert (hit[1:][inside] == hit[:-1][inside]).all()


@settings(max_examples=100)
@given(sequences_of, st.sampled_from([0.0, 0.3, 1.0]))
def test_deletion_removes_what_is_hit_and_leaves_a_word(sequences, p):
    rows, keys = packed(sequences)
    hit = hit_words(rows, keys, SPECIAL, p, CONTINUES, spare_one=True)
    left = delete_words(rows, keys, SPECIAL, p, CONTINUES)
    for i, sequence in enumerate(sequences):
        flags = hit[rows.offsets[i] : rows.offsets[i + 1]]
        assert left[i].tolist() == [t for t, h in zip(sequence, flags) if not h]
        words = [t for t in sequence if not SPECIAL[t]]
        assert not words or any(not SPECIAL[t] for t in left[i])


def test_rates_are_those_asked_for():
    rows, keys = packed([list(range(5, 25)) * 5] * 400)
    for p in (0.1, 0.2, 0.5):
        assert hit_words(rows, keys, SPECIAL, p).mean() == pytest.approx(p, abs=0.01)


def test_replacements_are_ordinary_tokens_at_the_places_hit():
    rows, keys = packed([[2, *range(5, 50), 3]] * 100)
    row = replace_words(rows, keys, SPECIAL, 0.4, CONTINUES).values
    hit = hit_words(rows, keys, SPECIAL, 0.4, CONTINUES)
    assert (row[~hit] == rows.values[~hit]).all()
    assert not SPECIAL[row[hit]].any()
    assert set(row[hit].tolist()) == set(range(5, 50))


def test_hidden_words_become_the_mask():
    rows, keys = packed([[2, *range(5, 50), 3]] * 10)
    row = hide_words(rows, keys, SPECIAL, 0.4, MASK, CONTINUES).values
    hit = hit_words(rows, keys, SPECIAL, 0.4, CONTINUES)
    assert (row == np.where(hit, MASK, rows.values)).all()


def test_a_sequence_is_hit_alike_wherever_it_lies():
    rows, keys = packed([[6, 30, 7], [8, 31, 9, 10]])
    alone = hit_words(rows.take(np.array([1])), keys[1:], SPECIAL, 0.5, CONTINUES)
    assert (hit_words(rows, keys, SPECIAL, 0.5, CONTINUES)[3:] == alone).all()
