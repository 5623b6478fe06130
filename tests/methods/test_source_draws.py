"""Sources: what they draw lies where the papers say it should."""

from __future__ import annotations

import numpy as np
import pytest

from liebig.base.errors import DataError
from liebig.methods.sources.batches import Batches
from liebig.methods.sources.blocks import BlockSource, ClozeSource
from liebig.methods.sources.crops import CropSource
from liebig.methods.sources.spans import SpanSource
from tests.worlds.store import store


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return store(tmp_path_factory.mktemp("sources") / "s")


def bodies(row):
    return [list(tokens[1:-1]) for tokens in row.tokens]


def contains(whole, part):
    n = len(part)
    return any(list(whole[i : i + n]) == part for i in range(len(whole) - n + 1))


def lengths(world):
    starts, ends = world.token_ranges(np.arange(len(world)))
    return ends - starts


@pytest.mark.parametrize("kind", ["random", "nearby", "overlap", "mixed"])
def test_both_spans_come_from_the_document_of_the_example(world, kind):
    source = SpanSource(world, 24, kind=kind)
    long = np.flatnonzero(lengths(world) > 24)
    row = source.draw(np.arange(len(source)), 0, 0)
    assert len(long) == len(source)
    assert np.array_equal(row.owner, np.repeat(np.arange(len(source)), 2))
    for span, owner in zip(bodies(row), row.owner):
        assert 1 <= len(span) <= 24
        assert contains(world.document(long[owner]), span)


def test_short_documents_are_skipped_and_counted(world):
    source = SpanSource(world, 60)
    short = int((lengths(world) <= 60).sum())
    assert short > 3
    assert (source.skipped, len(source)) == (short, len(world) - short)


def test_used_once_a_short_document_gives_the_one_span_it_is(world):
    source = SpanSource(world, 60, once=True)
    full = np.flatnonzero(lengths(world) > 0)
    row = source.draw(np.arange(len(source)), 0, 0)
    assert source.skipped == len(world) - len(full) == 1
    counts = np.bincount(row.owner)
    for example, document in enumerate(full):
        is_long = lengths(world)[document] > 60
        assert counts[example] == (2 if is_long else 1)
        if not is_long:
            assert bodies(row)[np.flatnonzero(row.owner == example)[0]] == list(world.document(document))


def test_no_document_with_two_spans_is_an_error_with_the_limit(world):
    with pytest.raises(DataError, match="at most 100000 tokens"):
        SpanSource(world, 100_000)


def test_blocks_without_short_ones_are_the_greedy_packing_of_every_document(world):
    source = BlockSource(world, 24, short=0.0)
    wanted = []
    first, last = world.sentence_ranges(np.arange(len(world)))
    for begin, end in zip(first, last):
        block = []
        for s in range(begin, end):
            tokens = list(world.tokens[world.sentences[s] : world.sentences[s + 1]])
            if block and (len(block) + len(tokens) > 24 or s % 256 == 0):
                wanted.append(block)
                block = []
            block = block + tokens
        wanted += [block] if block else []
    found = bodies(source.draw(np.arange(len(source)), 0, 0))
    assert len(found) == len(wanted)
    for block, whole in zip(found, wanted):
        assert block == whole if len(whole) <= 24 else contains(whole, block) and len(block) == 24


def test_blocks_partition_the_corpus_and_one_in_ten_has_a_shorter_target(world):
    source = BlockSource(world, 40)
    blocks = source.blocks(np.arange(len(source)))
    assert blocks[0, 0] == 0
    assert blocks[-1, 1] == len(world.sentences) - 1
    assert np.array_equal(blocks[1:, 0], blocks[:-1, 1])
    assert len(source) > len(BlockSource(world, 40, short=0.0))


def test_a_batch_by_tokens_has_about_as_many(world):
    source = BlockSource(world, 24)
    batches = Batches(source, source.per_batch(400), seed=0)
    sizes = [len(batches(step).tokens.values) for step in range(batches.steps_per_epoch)]
    assert np.mean(sizes) == pytest.approx(400, rel=0.1)


def test_a_cloze_query_and_its_rest_make_up_the_block(world):
    source = ClozeSource(world, 40, keep=0.0)
    blocks = BlockSource(world, 40, least=2)
    whole = bodies(blocks.draw(np.arange(len(blocks)), 0, 0))
    found = bodies(source.draw(np.arange(len(source)), 0, 0))
    assert len(whole) == len(source)
    sentences = [list(s) for s in np.split(world.tokens, world.sentences[1:-1])]
    for block, query, rest in zip(whole, found[::2], found[1::2]):
        assert query in sentences
        assert len(query) + len(rest) == len(block)
        assert any(block[:i] + block[i + len(query) :] == rest for i in range(len(rest) + 1))


def test_a_kept_cloze_query_stays_in_its_block(world):
    source = ClozeSource(world, 40, keep=1.0, ratio=(0.2, 0.4))
    found = bodies(source.draw(np.arange(len(source)), 0, 0))
    assert all(contains(rest, query) for query, rest in zip(found[::2], found[1::2]))


def test_windows_of_a_document_do_not_overlap_and_lie_inside_it(world):
    source = CropSource(world, 48, ratio=(1.0, 1.0))
    row = source.draw(np.arange(len(source)), 3, 0)
    windows = bodies(row)[::2]
    documents = [
        d for d in range(len(world)) for _ in range(max(1, lengths(world)[d] // 48)) if lengths(world)[d] > 1
    ]
    assert len(documents) == len(windows)
    for document in set(documents):
        mine = [w for w, d in zip(windows, documents) if d == document]
        assert contains(world.document(document), [t for w in mine for t in w]), "one after the other"
        assert all(len(w) == min(48, lengths(world)[document]) for w in mine)


def test_windows_move_from_epoch_to_epoch(world):
    source = CropSource(world, 48, ratio=(1.0, 1.0))
    last = np.array([len(source) - 1])
    assert len({tuple(source.draw(last, epoch, 0).tokens.values) for epoch in range(8)}) > 3


@pytest.mark.parametrize("across", [False, True])
def test_both_crops_come_from_the_same_window_with_the_lengths_asked_for(world, across):
    ratio = (0.25, 0.5)
    crops = bodies(CropSource(world, 48, ratio=ratio, across=across).draw(np.arange(20), 0, 0))
    windows = bodies(CropSource(world, 48, ratio=(1.0, 1.0), across=across).draw(np.arange(20), 0, 0))
    for i in range(40):
        window = windows[i // 2 * 2]
        assert contains(window, crops[i])
        assert max(1, int(0.25 * len(window))) <= len(crops[i]) <= max(1, 0.5 * len(window))


def test_windows_across_documents_cover_the_row_without_gaps(world):
    source = CropSource(world, 48, ratio=(1.0, 1.0), across=True)
    row = source.draw(np.arange(len(source)), 1, 0)
    assert contains(world.tokens, [t for w in bodies(row)[::2] for t in w])
