"""Rows of unequal length: what is copied equals what Python lists give."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from liebig.ragged import Ragged, Strings, gather, offsets_of, ranges, split_by_budget

rows_of = st.lists(st.lists(st.integers(0, 60_000), max_size=20), max_size=12)


@settings(max_examples=50)
@given(rows_of, st.sampled_from([np.uint16, np.int32, np.int64]))
def test_lists_come_back_with_their_lengths(rows: list[list[int]], dtype: type) -> None:
    ragged = Ragged.from_lists(rows, dtype)
    assert ragged.values.dtype == dtype
    assert ragged.to_lists() == rows
    assert [row.tolist() for row in ragged] == [ragged[i].tolist() for i in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert pickle.loads(pickle.dumps(ragged)).to_lists() == rows


def test_a_row_is_counted_from_the_end_and_refused_outside() -> None:
    ragged = Ragged.from_lists([[1], [2, 3]])
    assert ragged[-1].tolist() == [2, 3]
    with pytest.raises(IndexError):
        ragged[2]


@settings(max_examples=50)
@given(rows_of, st.data())
def test_rows_are_taken_in_the_order_given(rows: list[list[int]], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    taken = Ragged.from_lists(rows, np.int32).take(np.array(places, np.int64))
    assert taken.to_lists() == [rows[i] for i in places]
    assert taken.values.dtype == np.int32


@settings(max_examples=50)
@given(
    rows_of,
    st.lists(st.integers(0, 9), max_size=3),
    st.lists(st.integers(0, 9), max_size=3),
    st.integers(0, 25),
)
def test_rows_are_cut_and_wrapped(
    rows: list[list[int]], before: list[int], after: list[int], room: int
) -> None:
    wrapped = Ragged.from_lists(rows).wrap(before, after, room + len(before) + len(after))
    assert wrapped.to_lists() == [[*before, *row[:room], *after] for row in rows]


@settings(max_examples=50)
@given(st.lists(rows_of, max_size=4))
def test_parts_are_concatenated(parts: list[list[list[int]]]) -> None:
    joined = Ragged.concatenate((Ragged.from_lists(part) for part in parts), np.int32)
    assert joined.to_lists() == [row for part in parts for row in part]
    assert joined.values.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_gathered_rows_are_the_ranges_between_special_tokens(dtype: type) -> None:
    tokens = np.arange(100, 200).astype(dtype)
    tokens.setflags(write=False)  # as a mapped file
    spans = np.array([[[0, 3], [5, 6]], [[10, 10], [12, 14]]])
    assert gather(tokens, spans, [1, 2], [3]).to_lists() == [
        [1, 2, 100, 101, 102, 105, 3],
        [1, 2, 112, 113, 3],
    ]


def test_groups_hold_at_most_the_budget_longest_first() -> None:
    lengths = np.array([5, 40, 7, 7, 1, 12])
    assert [group.tolist() for group in split_by_budget(lengths, 20)] == [[1], [5, 2], [3, 0, 4]]
    assert split_by_budget(lengths[:0], 20) == []


def test_ranges_and_offsets_count_from_each_start() -> None:
    assert ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert offsets_of([2, 0, 3]).tolist() == [0, 2, 2, 5]
    assert offsets_of([]).tolist() == [0]


def test_strings_come_back_also_those_that_are_not_valid_utf8() -> None:
    texts = ["", "a", "Straße", "漢字", "\ud800"]
    packed = Strings.pack(texts)
    assert packed.to_list() == list(packed) == texts
    assert packed[2] == "Straße"
    assert not packed.utf8.values.flags.writeable
