"""Whole-word masking equals a plain loop, meets its target exactly, and never touches what it must not."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.rng import below, key, mix, uniform
from liebig.ragged import Ragged
from liebig.text.masking import mask_words
from tests.worlds.texts import CHINESE, ENGLISH, every

V, MASK = 50, 4
SPECIAL = np.arange(V) < 5
CONTINUES = np.arange(V) >= 30  # ids 5 … 29 begin words, 30 … 49 continue them
NOTHING_CONTINUES = np.zeros(V, dtype=np.bool_)


def row_of(sequences):
    return Ragged.from_lists(sequences)


def keys_of(n, seed=0):
    return np.array([key(seed, i) for i in range(n)], dtype=np.uint64)


def plain(sequence, sequence_key, continues, rate):
    """The rule of the module's head, word by word: positions that are chosen, and the tokens after masking."""
    words = []
    for p, t in enumerate(sequence):
        if SPECIAL[t]:
            words.append(None)
        elif continues[t] and words and words[-1] is not None:
            words[-1].append(p)
        else:
            words.append([p])
    words = [w for w in words if w is not None]
    length = sum(map(len, words))
    chosen = []
    if length and rate:
        target = max(1, round(rate * length))
        order, pool = mix(sequence_key, 1), list(words)
        for i in range(len(pool)):
            j = i + int(below(order, i, len(pool) - i))
            pool[i], pool[j] = pool[j], pool[i]
            if len(chosen) + len(pool[i]) <= target:
                chosen += pool[i]
    return sorted(chosen), hidden(sequence, chosen, mix(sequence_key, 2))


def hidden(sequence, chosen, pieces_key):
    out, ordinary = list(sequence), np.flatnonzero(~SPECIAL)
    for p in chosen:
        draw = uniform(pieces_key, 2 * p)
        if draw < 0.8:
            out[p] = MASK
        elif draw < 0.9:
            out[p] = int(ordinary[below(pieces_key, 2 * p + 1, len(ordinary))])
    return out


sequences = st.lists(st.lists(st.integers(0, V - 1), max_size=40), min_size=1, max_size=6)


@settings(max_examples=200)
@given(sequences, st.sampled_from([0.0, 0.15, 0.3, 0.5, 1.0]), st.integers(0, 2**32))
def test_masking_a_row_equals_a_plain_loop_over_its_sequences(rows, rate, seed):
    tokens = row_of(rows)
    keys = keys_of(len(rows), seed)
    masked = mask_words(tokens, keys, CONTINUES, SPECIAL, MASK, V, rate)
    targets, expected = [], []
    for start, sequence, sequence_key in zip(tokens.offsets, rows, keys):
        chosen, out = plain(sequence, sequence_key, CONTINUES, rate)
        targets += [int(start) + p for p in chosen]
        expected += out
    assert masked.targets.tolist() == targets
    assert masked.tokens.values.tolist() == expected
    assert masked.labels.tolist() == tokens.values[masked.targets].tolist()


@settings(max_examples=100)
@given(sequences, st.sampled_from([0.15, 0.3, 0.45, 1.0]))
def test_single_tokens_meet_the_target_exactly(rows, rate):
    tokens = row_of(rows)
    masked = mask_words(tokens, keys_of(len(rows)), NOTHING_CONTINUES, SPECIAL, MASK, V, rate)
    counts = (
        np.histogram(masked.targets, bins=tokens.offsets)[0] if len(tokens.values) else np.zeros(len(rows))
    )
    lengths = [sum(not SPECIAL[t] for t in row) for row in rows]
    assert [
        int(((masked.targets >= a) & (masked.targets < b)).sum())
        for a, b in itertools.pairwise(tokens.offsets)
    ] == [max(1, round(rate * n)) if n else 0 for n in lengths]
    assert counts.sum() == len(masked.targets)


@settings(max_examples=100)
@given(st.lists(st.integers(5, V - 1), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_no_word_that_would_still_fit_is_left_out(sequence, rate):
    tokens = row_of([sequence])
    masked = mask_words(tokens, keys_of(1), CONTINUES, SPECIAL, MASK, V, rate)
    chosen = np.zeros(len(sequence), dtype=bool)
    chosen[masked.targets] = True
    starts = [p for p, t in enumerate(sequence) if p == 0 or not CONTINUES[t]]
    words = [range(a, b) for a, b in zip(starts, [*starts[1:], len(sequence)])]
    target = max(1, round(rate * len(sequence)))
    assert all(len({bool(chosen[p]) for p in word}) == 1 for word in words)
    assert len(masked.targets) <= target
    assert all(len(masked.targets) + len(word) > target for word in words if not chosen[word[0]])


def test_a_sequence_is_masked_alike_wherever_it_lies_in_a_row():
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, V, n).tolist() for n in (7, 0, 30, 12)]
    keys = keys_of(4)
    tokens = row_of(rows)
    together = mask_words(tokens, keys, CONTINUES, SPECIAL, MASK, V, 0.3)
    for i, row in enumerate(rows):
        alone = mask_words(row_of([row]), keys[i : i + 1], CONTINUES, SPECIAL, MASK, V, 0.3)
        assert together.tokens[i].tolist() == alone.tokens[0].tolist()


def test_four_fifths_are_hidden_a_tenth_is_random_a_tenth_stays():
    rng = np.random.default_rng(0)
    vocab = 30_000
    special, continues = np.arange(vocab) < 5, rng.random(vocab) < 0.3
    rows = [rng.integers(5, vocab, 128).tolist() for _ in range(2000)]
    tokens = row_of(rows)
    masked = mask_words(tokens, keys_of(2000), continues, special, MASK, vocab, 0.15)
    now = masked.tokens.values[masked.targets]
    n = len(now)
    hidden, same = (now == MASK).mean(), (now == masked.labels).mean()
    for share, expected in ((hidden, 0.8), (same, 0.1), (1 - hidden - same, 0.1)):
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    assert not special[now[now != MASK]].any()
    assert n / len(tokens.values) == pytest.approx(0.15, abs=0.01)


def test_every_word_is_chosen_equally_often():
    sequence = list(range(5, 25))
    n = 4000
    tokens = row_of([sequence] * n)
    masked = mask_words(tokens, keys_of(n), CONTINUES, SPECIAL, MASK, V, 0.25)
    counts = np.bincount(masked.targets % 20, minlength=20)
    assert counts.sum() == 5 * n
    assert (abs(counts - n / 4) < 5 * np.sqrt(n * 0.25 * 0.75)).all()


def test_special_tokens_are_neither_counted_nor_chosen():
    tokens = row_of([[2, 6, 7, 8, 9, 10, 3, 0, 0, 0]] * 50)
    masked = mask_words(tokens, keys_of(50), CONTINUES, SPECIAL, MASK, V, 0.4)
    assert not SPECIAL[masked.labels].any()
    assert len(masked.targets) == 2 * 50  # round(0.4 × 5)


def test_one_token_is_always_chosen_and_an_empty_sequence_gives_nothing():
    tokens = row_of([[7], [], [2, 3], [8]])
    masked = mask_words(tokens, keys_of(4), CONTINUES, SPECIAL, MASK, V, 0.15)
    assert masked.targets.tolist() == [0, 3]
    empty = mask_words(row_of([[]]), keys_of(1), CONTINUES, SPECIAL, MASK, V, 0.15)
    assert len(empty.tokens.values) == len(empty.targets) == 0


def test_a_rate_of_one_chooses_everything():
    tokens = row_of([[2, *range(5, 50), 3]])
    masked = mask_words(tokens, keys_of(1), CONTINUES, SPECIAL, MASK, V, 1.0)
    assert masked.targets.tolist() == list(range(1, 46))


def test_the_input_row_is_left_alone():
    tokens = row_of([list(range(5, 50))])
    before = tokens.values.copy()
    mask_words(tokens, keys_of(1), CONTINUES, SPECIAL, MASK, V, 0.5)
    assert (tokens.values == before).all()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
def test_words_of_real_tokenizers_are_masked_whole(kind):
    tokenizer = every()[kind]
    sequence = tokenizer.wrap(tokenizer.encode(ENGLISH + " " + CHINESE))
    tokens = row_of([sequence] * 200)
    args = (tokenizer.continues, tokenizer.special, tokenizer.mask, tokenizer.vocab_size, 0.3)
    masked = mask_words(tokens, keys_of(200), *args)
    chosen = np.zeros(len(tokens.values), dtype=bool)
    chosen[masked.targets] = True
    inside = tokenizer.continues[tokens.values[1:]] & ~tokenizer.special[tokens.values[:-1]]
    assert (chosen[1:][inside] == chosen[:-1][inside]).all()
    assert not tokenizer.special[masked.labels].any()
    assert chosen.mean() > 0.2
