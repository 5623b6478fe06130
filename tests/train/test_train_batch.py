"""Batches: slices hold whole examples, chunks keep to their budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from liebig.base.errors import TrainingError
from liebig.train.batch import cuts, joined, unweave, weave, woven
from liebig.train.distributed import World
from tests.worlds.toy import groups, spans

COSTS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def test_a_slice_is_the_examples_with_everything_counted_from_their_start() -> None:
    batch = spans(6)
    part, side = batch.slice(2, 5).sides["text"], batch.sides["text"]
    start = int(side.packed.bounds[4])
    assert part.owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(part.packed.tokens[part.targets], part.labels)
    inside = [t for t in side.targets.tolist() if start <= t < int(side.packed.bounds[10])]
    assert (part.targets + start).tolist() == inside


def test_extras_follow_their_examples() -> None:
    batch = groups(5)
    assert torch.equal(batch.slice(1, 4).extras["teacher"], batch.extras["teacher"][1:4])


@given(COSTS, st.integers(1, 120))
def test_cuts_cover_all_examples_within_the_budget(costs: list[int], budget: int) -> None:
    ranges = cuts(np.array(costs), budget)
    assert [i for a, b in ranges for i in range(a, b)] == list(range(len(costs)))
    assert all(sum(costs[a:b]) <= budget or b - a == 1 for a, b in ranges)


@given(COSTS, st.integers(50, 120))
def test_cuts_are_no_more_than_filling_one_after_the_other(costs: list[int], budget: int) -> None:
    filled, room = 1, budget
    for cost in costs:
        filled, room = (filled, room - cost) if cost <= room else (filled + 1, budget - cost)
    assert len(cuts(np.array(costs), budget)) <= filled


def test_costs_are_the_tokens_of_each_example_on_all_sides() -> None:
    batch = groups(5)
    assert batch.costs.tolist() == [batch.slice(i, i + 1).tokens for i in range(5)]
    assert batch.costs.sum() == batch.tokens


def test_weaving_chunk_by_chunk_joins_to_the_whole_and_comes_apart_again() -> None:
    batch = groups(7)
    rows = {name: side.packed.firsts[:, None].double() for name, side in batch.sides.items()}
    whole = weave(batch, rows)
    back = unweave(batch, whole, ("query", "passage"))
    assert all(torch.equal(back[name], rows[name]) for name in rows)
    parts, at = [], dict.fromkeys(rows, 0)
    for chunk in batch.chunks(30):
        piece = {}
        for name, side in chunk.sides.items():
            piece[name] = rows[name][at[name] : at[name] + len(side.packed)]
            at[name] += len(side.packed)
        parts.append(weave(chunk, piece))
    assert torch.equal(torch.cat(parts), whole)


def test_shares_are_contiguous_and_differ_by_one_at_the_most() -> None:
    shares = [World(rank, 4).share(10) for rank in range(4)]
    assert [i for a, b in shares for i in range(a, b)] == list(range(10))
    assert {b - a for a, b in shares} == {2, 3}


def test_a_batch_smaller_than_the_processes_is_refused() -> None:
    with pytest.raises(TrainingError, match="3 examples cannot be shared by 4"):
        World(0, 4).share(3)


def test_sides_joined_in_one_row_weave_to_the_same_rows() -> None:
    batch = groups(5)
    names = ("query", "passage")
    rows = {name: torch.randn(len(batch.sides[name].packed), 3) for name in names}
    row = joined(batch, names)
    assert [row.slice(i, i + 1).tokens.tolist() for i in range(len(row))] == [
        side.packed.slice(i, i + 1).tokens.tolist()
        for side in (batch.sides[name] for name in names)
        for i in range(len(side.packed))
    ]
    together = torch.cat([rows[name] for name in names])
    assert torch.equal(woven(batch, together, names), weave(batch, rows))


def test_a_copy_keeps_the_extras_that_lie_in_host_memory() -> None:
    batch = groups(5)
    copy = batch.to("meta")
    kept = copy.on_host("teacher")
    assert kept is not None
    assert torch.equal(kept, batch.extras["teacher"])
    assert copy.on_host("nothing") is None
