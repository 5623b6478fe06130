"""Views: inside their documents, apart where they must be, uniform where they say so, and functions of their key."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.rng import key, mix, uniform
from liebig.text import views
from liebig.text.passages import pack_sentences

KINDS = ("random", "nearby", "overlap", "window", "mixed")
documents = st.lists(st.integers(2, 400), min_size=1, max_size=8)
sentence_lengths = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=5)


def keys_of(n, seed=0):
    return mix(key(seed), np.arange(n))


def bounds(lengths):
    ends = np.cumsum(lengths)
    return ends - lengths, ends


def store(lengths):
    """Sentence offsets, and first and last sentence of each document that has two tokens."""
    lengths = [group for group in lengths if sum(group) >= 2] or [[1, 1]]
    counts = np.concatenate(([0], np.cumsum([len(group) for group in lengths])))
    sentences = np.concatenate(([0], np.cumsum([n for group in lengths for n in group])))
    return sentences, counts[:-1], counts[1:]


def overlap(spans):
    a, b = spans
    return min(a[1], b[1]) - max(a[0], b[0])


def test_mixed_is_each_of_the_three_contexts_a_third_of_the_time():
    sentences, zeros = np.arange(0, 2001, 5), np.zeros(9000, int)
    found = views.two_sentence_spans(sentences, zeros, zeros + 400, keys_of(9000), 50, "mixed", window=20)
    shared = np.minimum(found[:, 0, 1], found[:, 1, 1]) - np.maximum(found[:, 0, 0], found[:, 1, 0])
    near = 2 / 40  # of `window`, about: those that are neighbours by chance
    assert abs((shared > 0).mean() - 1 / 3) < 0.03
    assert abs((shared == 0).mean() - (1 + near) / 3) < 0.03
    assert abs((shared < 0).mean() - (1 - near) / 3) < 0.03


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(sentence_lengths, st.integers(1, 60), st.integers(0, 2**40), st.sampled_from([0.0, 0.5]))
def test_sentence_spans_lie_inside_and_keep_their_distance(kind, lengths, longest, seed, short):
    sentences, first, last = store(lengths)
    found = views.two_sentence_spans(sentences, first, last, keys_of(len(first), seed), longest, kind, short)
    for spans, start, end in zip(found.tolist(), sentences[first], sentences[last]):
        assert all(start <= a < b <= end and b - a <= longest for a, b in spans)
        assert spans[0] != spans[1]
        if kind in ("random", "nearby", "window"):
            assert overlap(spans) <= 0


@settings(max_examples=60)
@given(sentence_lengths, st.integers(40, 60))
def test_sentence_spans_are_whole_sentences_where_no_sentence_is_too_long(lengths, longest):
    sentences, first, last = store(lengths)
    many = np.array(
        [i for i in range(len(first)) if sentences[last[i]] - sentences[first[i]] > longest], dtype=int
    )
    found = views.two_sentence_spans(sentences, first[many], last[many], keys_of(len(many)), longest, "mixed")
    assert np.isin(found, sentences).all()


def test_random_sentence_spans_are_two_different_spans_each_as_likely():
    sentences = np.arange(0, 50, 10)
    draws = 12_000
    zeros = np.zeros(draws, int)
    found = views.two_sentence_spans(sentences, zeros, zeros + 4, keys_of(draws), 10)
    pairs = Counter((a[0], b[0]) for a, b in found.tolist())
    assert len(pairs) == 12
    assert all(abs(count - 1000) < 5 * np.sqrt(1000) for count in pairs.values())


def test_nearby_and_window_spans_are_as_near_as_they_say():
    sentences = np.arange(0, 1010, 10)
    zeros = np.zeros(3000, int)
    for kind, window in (("nearby", 1), ("window", 7)):
        found = views.two_sentence_spans(
            sentences, zeros, zeros + 100, keys_of(3000), 10, kind, window=window
        )
        distance = abs(found[:, 0, 0] - found[:, 1, 0]) // 10
        assert distance.min() == 1
        assert distance.max() == window


def test_overlapping_sentence_spans_share_at_most_half_and_go_on():
    sentences = np.arange(0, 401, 4)
    zeros = np.zeros(2000, int)
    found = views.two_sentence_spans(sentences, zeros, zeros + 100, keys_of(2000), 40, "overlap")
    shared = np.array([overlap(spans) for spans in found.tolist()])
    assert set(shared.tolist()) == {4, 8, 12, 16, 20}
    assert (found[:, 1, 1] - found[:, 1, 0] == 40).all()


def test_a_document_of_one_span_is_halved_between_sentences():
    sentences = np.array([0, 3, 9, 12])
    found = views.two_sentence_spans(sentences, np.array([0]), np.array([3]), keys_of(1), 100)
    assert sorted(found[0].tolist()) == [[0, 3], [3, 12]]
    alone = views.two_sentence_spans(np.array([0, 9]), np.array([0]), np.array([1]), keys_of(1), 100)
    assert sorted(alone[0].tolist()) == [[0, 4], [4, 9]]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_crops_have_the_length_of_the_paper_and_lie_inside(lengths, a, b):
    low, high = sorted((a, b))
    starts, ends = bounds(np.array(lengths))
    keys = keys_of(len(lengths))
    found = views.two_crops(starts, ends, keys, low, high)
    assert found.shape == (len(lengths), 2, 2)
    for view in (0, 1):
        ratio = low + (high - low) * uniform(keys, 2 * view)
        sizes = [max(1, int(n * r)) for n, r in zip(lengths, ratio)]
        assert (found[:, view, 1] - found[:, view, 0]).tolist() == sizes
        assert (found[:, view, 0] >= starts).all()
        assert (found[:, view, 1] <= ends).all()


def test_crops_start_everywhere_and_the_two_are_independent():
    draws = 40_000
    found = views.two_crops(np.zeros(draws, int), np.full(draws, 10), keys_of(draws), 0.3, 0.3)
    pairs = Counter((a[0], b[0]) for a, b in found.tolist())
    assert len(pairs) == 64
    assert all(abs(count - 625) < 5 * 25 for count in pairs.values())


@settings(max_examples=100)
@given(
    documents, st.floats(0, 1), st.integers(1, 100), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2**40)
)
def test_cloze_is_a_span_and_what_is_around_it(lengths, high, longest, keep, seed):
    starts, ends = bounds(np.array(lengths))
    found = views.cloze_span(starts, ends, keys_of(len(lengths), seed), 0.0, high, keep, longest)
    check_cloze(found, starts, ends, longest, keep)


@settings(max_examples=100)
@given(sentence_lengths, st.integers(1, 100), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2**40))
def test_cloze_of_a_sentence_is_the_rest_of_its_document(lengths, longest, keep, seed):
    sentences, first, last = store([[n for n in group if n] for group in lengths])
    found = views.cloze_sentence(sentences, first, last, keys_of(len(first), seed), keep, longest)
    check_cloze(found, sentences[first], sentences[last], longest, keep)
    assert np.isin(found[:, 0, 0], sentences[:-1]).all()


def check_cloze(found, starts, ends, longest, keep):
    for (query, left, right), start, end in zip(found.tolist(), starts, ends):
        passage = [i for a, b in (left, right) for i in range(a, b)]
        inside = set(range(*query)) & set(passage)
        assert start <= query[0] < query[1] <= end
        assert 1 <= len(passage) <= longest
        assert start <= passage[0]
        assert passage[-1] < end
        assert inside in (set(), set(range(*query)))
        assert bool(inside) == (right[0] == right[1] == left[1]) or not inside
        rest = (end - start) - (query[1] - query[0])
        if keep == 0.0 and rest:
            assert not inside
            assert len(passage) == min(longest, rest)
        if keep == 1.0:
            assert inside


def test_cloze_keeps_the_sentence_as_often_as_asked():
    draws = 20_000
    zeros = np.zeros(draws, int)
    found = views.cloze_sentence(np.arange(0, 60, 10), zeros, zeros + 5, keys_of(draws), 0.1, 100)
    kept = found[:, 2, 0] == found[:, 2, 1]
    edge = (found[:, 0, 1] == 50) & (found[:, 1, 1] == found[:, 0, 0])
    assert (kept & ~edge).mean() == pytest.approx(0.1, abs=0.01)
    assert np.bincount(found[:, 0, 0] // 10).min() > 0.9 * draws / 5


@settings(max_examples=60)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(1, 100))
def test_truncation_keeps_a_window_of_the_right_length(lengths, longest):
    starts, ends = bounds(np.array(lengths))
    left, right = views.truncate(starts, ends, keys_of(len(lengths)), longest)
    assert (left >= starts).all()
    assert (right <= ends).all()
    assert (right - left).tolist() == np.minimum(lengths, longest).tolist()


def test_truncation_drops_any_share_on_the_left():
    left, _ = views.truncate(np.zeros(5000, int), np.full(5000, 12), keys_of(5000), 10)
    assert set(left.tolist()) == {0, 1, 2}
    assert np.bincount(left).min() > 1500


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_is_a_function_of_its_key_alone(kind):
    rng = np.random.default_rng(0)
    lengths = [rng.integers(1, 40, rng.integers(2, 30)).tolist() for _ in range(40)]
    sentences, first, last = store(lengths)
    keys = keys_of(len(first))
    together = views.two_sentence_spans(sentences, first, last, keys, 50, kind)
    order = rng.permutation(len(first))
    again = views.two_sentence_spans(sentences, first[order], last[order], keys[order], 50, kind)
    assert (together[order] == again).all()
    assert (together != views.two_sentence_spans(sentences, first, last, keys + np.uint64(1), 50, kind)).any()


@settings(max_examples=150)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 60))
def test_blocks_are_greedy_and_lose_nothing(lengths, longest):
    sentences = np.cumsum([0, *lengths])
    blocks = pack_sentences(sentences, longest).T.tolist()
    assert [i for a, b in blocks for i in range(a, b)] == list(range(sentences[-1]))
    assert all(0 < b - a <= longest for a, b in blocks)
    for a, b in blocks[:-1]:  # the next sentence, or the next piece of a long one, would not have fitted
        after = sentences[sentences > b][0]
        assert after - b > longest or after - a > longest
