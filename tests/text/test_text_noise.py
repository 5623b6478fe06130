"""Tokens deleted, replaced and hidden: at their rate, never a special one."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.rng import key, mix
from liebig.ragged import Ragged
from liebig.text.masking import delete_tokens, hide_tokens, hit_tokens, replace_tokens

V, MASK = 50, 4
SPECIAL = np.arange(V) < 5
sequences_of = st.lists(st.lists(st.integers(0, V - 1), max_size=30), min_size=1, max_size=5)


def packed(sequences):
    return Ragged.from_lists(sequences), mix(key(1), np.arange(len(sequences)))


@settings(max_examples=100)
@given(sequences_of, st.sampled_from([0.0, 0.3, 1.0]))
def test_special_tokens_are_never_hit(sequences, p):
    rows, keys = packed(sequences)
    hit = hit_tokens(rows, keys, SPECIAL, p)
    assert not hit[SPECIAL[rows.values]].any()
    assert p > 0 or not hit.any()
    assert p < 1 or (hit == ~SPECIAL[rows.values]).all()


@settings(max_examples=100)
@given(sequences_of, st.sampled_from([0.0, 0.3, 1.0]))
def test_deletion_removes_what_is_hit_and_leaves_one(sequences, p):
    rows, keys = packed(sequences)
    hit = hit_tokens(rows, keys, SPECIAL, p, spare_one=True)
    left = delete_tokens(rows, keys, SPECIAL, p)
    for i, sequence in enumerate(sequences):
        flags = hit[rows.offsets[i] : rows.offsets[i + 1]]
        assert left[i].tolist() == [t for t, h in zip(sequence, flags) if not h]
        words = [t for t in sequence if not SPECIAL[t]]
        assert not words or any(not SPECIAL[t] for t in left[i])


def test_rates_are_those_asked_for():
    rows, keys = packed([list(range(5, 25)) * 5] * 400)
    for p in (0.1, 0.2, 0.5):
        assert hit_tokens(rows, keys, SPECIAL, p).mean() == pytest.approx(p, abs=0.01)


def test_replacements_are_ordinary_tokens_at_the_places_hit():
    rows, keys = packed([[2, *range(5, 50), 3]] * 100)
    row = replace_tokens(rows, keys, SPECIAL, 0.4).values
    hit = hit_tokens(rows, keys, SPECIAL, 0.4)
    assert (row[~hit] == rows.values[~hit]).all()
    assert not SPECIAL[row[hit]].any()
    assert set(row[hit].tolist()) == set(range(5, 50))


def test_hidden_tokens_become_the_mask():
    rows, keys = packed([[2, *range(5, 50), 3]] * 10)
    row = hide_tokens(rows, keys, SPECIAL, 0.4, MASK).values
    hit = hit_tokens(rows, keys, SPECIAL, 0.4)
    assert (row == np.where(hit, MASK, rows.values)).all()


def test_a_sequence_is_hit_alike_wherever_it_lies():
    rows, keys = packed([[6, 30, 7], [8, 31, 9, 10]])
    alone = hit_tokens(rows.take(np.array([1])), keys[1:], SPECIAL, 0.5)
    assert (hit_tokens(rows, keys, SPECIAL, 0.5)[3:] == alone).all()
