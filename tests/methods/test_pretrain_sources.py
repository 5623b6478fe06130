"""Sources, shapes and what is held out: every sequence is where it should be, whatever the step or process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from liebig.base.errors import DataError, RecipeError
from liebig.collection import Collection
from liebig.methods.cotmae import EncoderDecoder, EncoderDecoderOrder
from liebig.methods.held_out import hold_out
from liebig.methods.mlm import MaskedText, Masker
from liebig.methods.shapes import Maker
from liebig.methods.simclr import two_views
from liebig.methods.sources.base import Noisy
from liebig.methods.sources.batches import Batches
from liebig.methods.sources.blocks import BlockSource, ClozeSource
from liebig.methods.sources.crops import CropSource
from liebig.methods.sources.mixture import MixedBatches, shares
from liebig.methods.sources.pairs import PairSource, grouped
from liebig.methods.sources.spans import SpanSource
from liebig.methods.sources.token_rows import documents_of
from liebig.train.distributed import ALONE, World

LIMIT = 40


@pytest.fixture(scope="module")
def spans(store):
    return SpanSource(store, LIMIT)


@pytest.fixture(scope="module")
def queries(store, smoke):
    return PairSource.read(
        Collection(smoke / "collection"), "generated", store.tokenizer, LIMIT, anchor="passage"
    )


def drawn(source, n=12, epoch=0, seed=3):
    return source.draw(np.arange(n), epoch, seed)


def sequences(row):
    return row.tokens.to_lists()


def unmasked(side):
    """The tokens of a side with its labels put back."""
    tokens = side.packed.tokens.clone()
    tokens[side.targets] = side.labels
    return [part.tolist() for part in tokens.split(side.packed.lengths.tolist())]


def sources(store, queries):
    return {
        "blocks": BlockSource(store, LIMIT),
        "spans": SpanSource(store, LIMIT),
        "crops": CropSource(store, 30),
        "cloze": Noisy(ClozeSource(store, LIMIT), store.tokenizer, delete=0.1),
        "queries": queries,
    }


@pytest.mark.parametrize("kind", ["blocks", "spans", "crops", "cloze", "queries"])
def test_what_is_held_out_and_what_is_left_are_all_examples_once(store, queries, kind):
    source = sources(store, queries)[kind]
    train, held = hold_out(source, 0.1)
    numbers = np.concatenate([part.examples(np.arange(len(part))) for part in (train, held)])
    assert sorted(numbers.tolist()) == list(range(len(source)))
    assert len(held) == pytest.approx(0.1 * len(source), rel=0.3)
    assert sequences(drawn(held, 3)) == sequences(source.draw(held.examples(np.arange(3)), 0, 3))


def test_every_source_holds_out_the_same_documents(store, queries):
    held = {}
    for kind, source in sources(store, queries).items():
        if kind != "queries":
            train, rest = hold_out(source, 0.1)
            held[kind], kept = (set(documents_of(p, np.arange(len(p)), 0, 0).tolist()) for p in (rest, train))
            assert not held[kind] & kept
    assert set().union(*held.values()) == held["crops"]
    assert len(held["crops"]) == round(0.1 * len(store))


def test_nothing_is_held_out_where_nothing_is_asked_for(spans):
    assert hold_out(spans, 0.0) == (spans, None)


def test_masked_text_is_the_drawn_row_under_masks(store, spans):
    row = drawn(spans)
    batch = MaskedText(Masker.of(store.tokenizer), 0.3)(row)
    side = batch.sides["text"]
    assert unmasked(side) == sequences(row)
    assert batch.n == 12
    ordinary = (~store.tokenizer.special[row.tokens.values]).sum()
    assert len(side.targets) == pytest.approx(0.3 * ordinary, rel=0.1)


def test_two_views_are_the_two_sequences_of_each_example(spans):
    row = drawn(spans)
    batch = two_views(row)
    query, key = (batch.sides[name].packed for name in ("query", "key"))
    assert [part.tolist() for part in query.tokens.split(query.lengths.tolist())] == sequences(row)[0::2]
    assert [part.tolist() for part in key.tokens.split(key.lengths.tolist())] == sequences(row)[1::2]


def test_symmetric_pairs_go_both_ways_through_encoder_and_decoder(store, spans):
    plain = sequences(drawn(spans))
    row = drawn(EncoderDecoderOrder(spans, symmetric=True))
    batch = EncoderDecoder(Masker.of(store.tokenizer), 0.3, 0.45)(row)
    encoder, decoder = (unmasked(batch.sides[name]) for name in ("encoder", "decoder"))
    first, second = plain[0::2], plain[1::2]
    assert encoder == [text for pair in zip(first, second) for text in pair]
    assert decoder == [text for pair in zip(second, first) for text in pair]
    assert batch.sides["encoder"].owner.tolist() == [i for i in range(12) for _ in range(2)]


def test_one_text_is_masked_differently_for_encoder_and_decoder(store, spans):
    batch = EncoderDecoder(Masker.of(store.tokenizer), 0.3, 0.3)(
        drawn(EncoderDecoderOrder(spans, symmetric=True))
    )
    encoder, decoder = (batch.sides[name].packed for name in ("encoder", "decoder"))
    assert encoder.slice(0, 1).tokens.tolist() != decoder.slice(1, 2).tokens.tolist()


def test_of_passage_and_query_the_passage_is_encoded_and_the_query_decoded(store, queries):
    row = drawn(EncoderDecoderOrder(queries, symmetric=False))
    batch = EncoderDecoder(Masker.of(store.tokenizer), 0.3, None)(row)
    query_texts, passage_texts = sequences(drawn(queries))[0::2], sequences(drawn(queries))[1::2]
    assert unmasked(batch.sides["encoder"]) == passage_texts
    decoder = batch.sides["decoder"]
    assert decoder.packed.tokens.tolist() == [token for text in query_texts for token in text]
    assert decoder.labels.tolist() == [token for text in query_texts for token in text[1:]]


def test_each_visit_draws_one_of_a_passages_queries(store, smoke, queries):
    collection = Collection(smoke / "collection")
    wanted = {(j.query, j.passage) for j in collection.judgements("generated")}
    texts = {q.id: store.tokenizer.encode(q.text) for q in collection.queries()}
    passages = {p.id: store.tokenizer.encode(f"{p.title} {p.text}")[:LIMIT] for p in collection.passages()}
    allowed = {(tuple(texts[q]), tuple(passages[p])) for q, p in wanted}
    seen = set()
    for epoch in range(4):
        found = [tuple(s[1:-1]) for s in sequences(drawn(queries, 20, epoch))]
        assert set(zip(found[0::2], found[1::2])) <= allowed
        seen |= set(zip(found[0::2], found[1::2]))
    assert len(seen) > 20


def test_a_passage_keeps_at_most_so_many_partners():
    pairs = np.array([(1, 5), (0, 7), (1, 6), (1, 8)])
    anchors, partners = grouped(pairs, 2)
    assert (anchors.tolist(), partners.to_lists()) == ([0, 1], [[7], [5, 6]])


def test_a_split_without_pairs_is_a_sentence(store, smoke):
    with pytest.raises(DataError, match="no split 'train'"):
        PairSource.read(Collection(smoke / "collection"), "train", store.tokenizer, LIMIT, anchor="query")


def test_noise_deletes_a_share_and_leaves_the_frame(store):
    source = CropSource(store, 80, ratio=(0.5, 0.5))
    plain, noisy = drawn(source), drawn(Noisy(source, store.tokenizer, delete=0.3))
    assert len(noisy.tokens.values) == pytest.approx(0.7 * len(plain.tokens.values), rel=0.15)
    assert [s[0] for s in sequences(noisy)] == [store.tokenizer.cls] * len(noisy)
    assert [s[-1] for s in sequences(noisy)] == [store.tokenizer.sep] * len(noisy)


def test_noise_hides_and_replaces_in_place(store):
    source = CropSource(store, 80, ratio=(0.5, 0.5))
    plain = drawn(source)
    hidden = drawn(Noisy(source, store.tokenizer, mask=0.3)).tokens.values
    replaced = drawn(Noisy(source, store.tokenizer, replace=0.3)).tokens.values
    assert set(hidden[hidden != plain.tokens.values]) == {store.tokenizer.mask}
    assert 0.2 < (replaced != plain.tokens.values).mean() < 0.4


def test_two_processes_make_the_batch_of_one(store, spans):
    rows = Batches(spans, 10, seed=5)
    shape = MaskedText(Masker.of(store.tokenizer), 0.15)
    whole = Maker(rows, shape, ALONE)(7)
    parts = [Maker(rows, shape, World(rank, 2))(7) for rank in range(2)]
    sides = [part.sides["text"] for part in parts]
    assert torch.equal(torch.cat([s.packed.tokens for s in sides]), whole.sides["text"].packed.tokens)
    assert torch.equal(torch.cat([s.labels for s in sides]), whole.sides["text"].labels)
    assert sum(part.n for part in parts) == whole.n


def test_the_document_of_each_example_goes_along_on_request(store, queries):
    batch = Maker(Batches(queries, 8, seed=0), two_views, ALONE, frozenset({"document"}))(0)
    assert batch.extras["document"].shape == (8,)
    with pytest.raises(RecipeError, match="single source"):
        Maker(MixedBatches([queries, queries], [1, 1], 8, 0), two_views, ALONE, frozenset({"document"}))(0)


def test_shares_follow_weights_or_sizes():
    assert shares([None, None], [100, 300], 1.0) == [0.25, 0.75]
    assert shares([None, None], [100, 300], 0.0) == [0.5, 0.5]
    assert shares([3.0, 1.0], [1, 1], 1.0) == [0.75, 0.25]
    with pytest.raises(RecipeError, match="weight to all"):
        shares([3.0, None], [1, 1], 1.0)
