from __future__ import annotations

import numpy as np
import pytest
import torch

from liebig.model.packed import Packed
from liebig.ragged import Ragged
from tests.worlds.models import random_row


def test_positions_and_sequences_follow_from_the_offsets() -> None:
    packed = Packed.from_lists([[7, 8, 9], [5], [6, 6]])
    assert packed.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.sequence.tolist() == [0, 0, 0, 1, 2, 2]
    assert packed.firsts.tolist() == [0, 3, 4]
    assert (len(packed), packed.total, packed.max_length) == (3, 6, 3)


def test_joined_slices_are_the_whole() -> None:
    whole = random_row(segments=True)
    joined = Packed.join([whole.slice(0, 2), whole.slice(2, 3), whole.slice(3, 6)])
    assert torch.equal(joined.tokens, whole.tokens)
    assert torch.equal(joined.offsets, whole.offsets)
    assert torch.equal(joined.segment_ids, whole.segment_ids)
    assert np.array_equal(joined.bounds, whole.bounds)
    assert joined.max_length == whole.max_length


def test_a_slice_knows_its_own_longest_sequence() -> None:
    part = random_row((3, 9, 2, 5)).slice(2, 4)
    assert part.max_length == 5
    assert part.offsets.tolist() == [0, 2, 7]


def test_the_host_copy_is_made_from_the_device_when_it_is_missing() -> None:
    packed = Packed(torch.arange(4), torch.tensor([0, 1, 4], dtype=torch.int32), 3)
    assert packed.bounds.tolist() == [0, 1, 4]


@pytest.mark.parametrize("offsets", [[0, 2], [1, 4], [0, 2, 2, 4]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(AssertionError):
        Packed.from_ragged(Ragged(np.arange(4), np.array(offsets)))
