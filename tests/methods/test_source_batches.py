"""Batches: pure functions of (seed, step), the same for any number of processes, epochs that visit everything once."""

from __future__ import annotations

import numpy as np
import pytest

from liebig.base.errors import DataError
from liebig.methods.sources import mixture
from liebig.methods.sources.batches import Batches, share
from liebig.methods.sources.blocks import BlockSource, ClozeSource
from liebig.methods.sources.crops import CropSource
from liebig.methods.sources.mixture import MixedBatches
from liebig.methods.sources.spans import SpanSource
from liebig.methods.sources.token_rows import TokenRow, joined
from liebig.ragged import Ragged
from tests.worlds.store import store


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return store(tmp_path_factory.mktemp("batches") / "s")


SOURCES = {
    "spans": lambda s: SpanSource(s, 24),
    "spans once": lambda s: SpanSource(s, 60, once=True),
    "crops": lambda s: CropSource(s, 48),
    "crops across": lambda s: CropSource(s, 48, across=True),
    "blocks": lambda s: BlockSource(s, 24),
    "cloze": lambda s: ClozeSource(s, 40),
    "cloze by ratio": lambda s: ClozeSource(s, 40, ratio=(0.1, 0.5)),
}


@pytest.fixture(params=SOURCES)
def source(request, world):
    return SOURCES[request.param](world)


def same(a: TokenRow, b: TokenRow) -> bool:
    tokens = a.tokens.to_lists() == b.tokens.to_lists()
    return tokens and np.array_equal(a.owner, b.owner) and np.array_equal(a.keys, b.keys)


def stacked(rows: list[TokenRow], starts: list[int]) -> TokenRow:
    return joined(rows, [start + np.arange(row.owner.max() + 1) for row, start in zip(rows, starts)])


def test_a_batch_is_the_same_whenever_and_wherever_it_is_made(source):
    one, other = Batches(source, 7, seed=3), Batches(source, 7, seed=3)
    steps = [0, 5, 2, one.steps_per_epoch, 3 * one.steps_per_epoch + 1]
    first = {step: one(step) for step in steps}
    assert all(same(first[step], other(step)) for step in reversed(steps))
    assert not same(one(0), Batches(source, 7, seed=4)(0))


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_the_parts_of_all_processes_are_the_batch(source, world_size):
    batches = Batches(source, 10, seed=1)
    parts = [batches(4, rank, world_size) for rank in range(world_size)]
    starts = [share(10, rank, world_size)[0] for rank in range(world_size)]
    assert same(stacked(parts, starts), batches(4))


def test_an_example_looks_the_same_in_any_company(source):
    everything = source.draw(np.arange(12), 2, 9)
    alone = [source.draw(np.array([i]), 2, 9) for i in range(12)]
    assert same(stacked(alone, list(range(12))), everything)


def test_an_epoch_visits_every_example_at_most_once_and_nearly_all(source):
    batches = Batches(source, 4, seed=0)
    for epoch in (0, 2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        seen = np.concatenate([batches.examples(step) for step in steps])
        assert len(np.unique(seen)) == len(seen) > len(source) - 4
        assert seen.min() >= 0
        assert seen.max() < len(source)


class Counted:
    """Numbers instead of text, and which of them were drawn in each epoch."""

    def __init__(self, n: int) -> None:
        self.n, self.drawn = n, {}

    def __len__(self) -> int:
        return self.n

    def draw(self, examples, epoch, seed):
        self.drawn.setdefault(epoch, []).extend(examples.tolist())
        n = len(examples)
        return TokenRow(Ragged(examples, np.arange(n + 1)), np.arange(n), examples.astype(np.uint64))


@pytest.mark.parametrize("size", [3, 5, 7, 8, 11])
def test_batches_repeat_nothing_within_an_epoch(size):
    alone, pair = Counted(47), [Counted(29), Counted(38)]
    batches = Batches(alone, size, seed=2)
    mixed = MixedBatches(pair, [0.6, 0.4], size, seed=2, per="example")
    for step in range(60):
        batches(step), mixed(step)
    for source in (alone, *pair):
        for epoch, examples in source.drawn.items():
            assert sorted(set(examples)) == sorted(examples)
            assert max(examples) < source.n
            if epoch < max(source.drawn):
                assert len(examples) > source.n - 1 - (size if source is alone else 0)


def test_epochs_differ_in_order_and_in_what_an_example_looks_like(world):
    batches = Batches(SpanSource(world, 24), 8, seed=0)
    assert not np.array_equal(batches.examples(0), batches.examples(batches.steps_per_epoch))
    source = SpanSource(world, 24)
    assert not same(source.draw(np.arange(8), 0, 0), source.draw(np.arange(8), 1, 0))


def test_every_sequence_has_its_frame_and_its_own_key(source, world):
    row = Batches(source, 16, seed=0)(1)
    tokenizer = world.tokenizer
    assert all(tokens[0] == tokenizer.cls for tokens in row.tokens)
    assert all(tokens[-1] == tokenizer.sep for tokens in row.tokens)
    assert row.tokens.lengths.min() >= 3
    assert len(np.unique(row.keys)) == len(row) == len(row.owner)
    assert (np.diff(row.owner) >= 0).all()


def test_a_batch_larger_than_the_source_is_refused_with_both_numbers(world):
    with pytest.raises(DataError, match=r"1,000 examples is larger than the data: \d+"):
        Batches(SpanSource(world, 24), 1000, seed=0)


def test_take_keeps_tokens_owners_and_keys(world):
    row = Batches(SpanSource(world, 24), 6, seed=0)(0)
    second = row.take(np.arange(1, 12, 2))
    assert second.tokens.to_lists() == row.tokens.to_lists()[1::2]
    assert np.array_equal(second.owner, np.arange(6))
    assert np.array_equal(second.keys, row.keys[1::2])


@pytest.fixture(scope="module")
def pair(world):
    return [BlockSource(world, 24), CropSource(world, 48)]


@pytest.mark.parametrize("per", ["batch", "example"])
def test_a_mixture_is_pure_and_divides_over_processes(pair, per):
    one = MixedBatches(pair, [0.3, 0.7], 9, seed=5, per=per)
    rows = [one(step) for step in range(12)]
    for step in (11, 3, 7):
        assert same(MixedBatches(pair, [0.3, 0.7], 9, seed=5, per=per)(step), rows[step]), (
            "resumed = uninterrupted"
        )
        parts = [one(step, rank, 2) for rank in range(2)]
        assert same(stacked(parts, [0, 4]), rows[step])


def test_a_mixture_takes_each_source_through_its_own_epochs(pair):
    mixed = MixedBatches(pair, [0.5, 0.5], 9, seed=5)
    alone = [Batches(source, 9, each.seed) for source, each in zip(pair, mixed._each)]
    at = [0, 0]
    for step in range(20):
        drawn = [i for i in range(2) if same(mixed(step), alone[i](at[i]))]
        assert len(drawn) == 1
        at[drawn[0]] += 1
    assert min(at) > 4


@pytest.mark.parametrize("per", ["batch", "example"])
def test_the_shares_of_a_mixture_are_its_probabilities(pair, per):
    mixed = MixedBatches(pair, [1.0, 3.0], 8, seed=2, per=per)
    counts = mixed._before(20_000)
    assert counts[1] / 20_000 == pytest.approx(0.75, abs=0.01)
    assert counts.sum() == 20_000


def test_counting_on_from_a_mark_is_counting_from_the_start(pair, monkeypatch):
    monkeypatch.setattr(mixture, "STRIDE", 16)
    mixed = MixedBatches(pair, [0.4, 0.6], 8, seed=2)
    drawn = mixed._draws(0, 400)
    for unit in (0, 3, 170, 16, 399, 160, 1, 256):
        assert np.array_equal(mixed._before(unit), np.bincount(drawn[:unit], minlength=2))


def test_an_example_mixture_draws_the_next_of_each_source_across_epochs(pair):
    mixed = MixedBatches(pair, [0.5, 0.5], 20, seed=5, per="example")
    seen = {0: [], 1: []}
    for step in range(60):
        drawn = mixed._draws(step * 20, (step + 1) * 20)
        row = mixed(step)
        counts = np.bincount(row.owner, minlength=20)
        assert np.array_equal(counts, np.where(drawn == 0, 1, 2)), (
            "a block has one sequence, a pair of crops two"
        )
        for number in seen:
            seen[number].append((drawn == number).sum())
    assert sum(seen[0]) > len(pair[0]), "the epoch ended on the way"


def test_probabilities_that_are_none_are_refused(pair):
    for wrong in ([0.5], [0.0, 0.0], [-1.0, 2.0]):
        with pytest.raises(DataError, match="probabilities"):
            MixedBatches(pair, wrong, 4, seed=0)
