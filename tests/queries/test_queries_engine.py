"""The decoding loop: equal to transformers, whatever the batch, on decoders of our own and on transformers'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from liebig.base import rng
from liebig.base.errors import ResourceError
from liebig.collection.lookup import hash_all
from liebig.queries import sampling as cache
from liebig.queries.decoder_steps import PlainDecoder
from liebig.queries.decoding import Decoding, Engine, by_padded_budget, passage_keys, uniform
from liebig.queries.generator import Generator, GeneratorSettings, from_encoder
from tests.worlds.queries import passage, tokenizer

CPU = torch.device("cpu")
PASSAGES = [passage(i) for i in range(12)]
KEYS = passage_keys(5, hash_all(p.id for p in PASSAGES))
METHODS = [
    Decoding(4),
    Decoding(1, top_k=1),
    Decoding(3, top_k=None, top_p=1.0, temperature=0.5),
]


@pytest.fixture(params=["t5", "bert"])
def generator(request, t5: Path, encoder: Path) -> Generator:
    if request.param == "t5":
        return Generator.load(t5)
    model = from_encoder(encoder, tokenizer(), None, seed=0)
    return Generator(model, tokenizer(), GeneratorSettings(passage_length=48, query_length=12))


def written(
    generator: Generator, method: Decoding, budget: int, plain: bool = False, count: int = len(PASSAGES)
) -> list:
    engine = Engine(generator, CPU, budget=budget)
    if plain:
        engine.decoder = PlainDecoder(generator.model)
    return engine.write(generator.sources(PASSAGES[:count]), KEYS[:count], method)


@pytest.mark.parametrize("method", METHODS, ids=["sampled", "greedy", "all tokens"])
def test_queries_do_not_depend_on_the_batch(generator, method):
    together = written(generator, method, budget=10_000)
    assert written(generator, method, budget=120) == together
    assert written(generator, method, budget=1, count=4) == together[:4], "alone"


@pytest.mark.parametrize("method", METHODS[:2], ids=["sampled", "greedy"])
def test_our_decoder_writes_what_transformers_decoder_writes(t5, method):
    generator = Generator.load(t5)
    assert type(generator.decoder) is not PlainDecoder
    assert written(generator, method, 200) == written(generator, method, 200, plain=True)


def test_greedy_decoding_equals_generate_of_transformers(generator):
    sources, marks = generator.sources(PASSAGES), generator.marks
    rows = [torch.tensor(source) for source in sources]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=generator.pad)
    mask = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    out = generator.model.generate(
        input_ids=tokens,
        attention_mask=mask.long(),
        max_new_tokens=marks.length,
        do_sample=False,
        num_beams=1,
    )
    cut = [row[1:].tolist() for row in out]
    cut = [row[: row.index(marks.end)] if marks.end in row else row for row in cut]
    assert cut == [row for rows in written(generator, Decoding(1, top_k=1), 500) for row in rows]


def test_scores_equal_a_whole_forward_pass(generator):
    """Teacher forcing through the cache against one pass over the whole query, in float64."""
    generator.model.double()
    source, target = generator.sources(PASSAGES[:1])[0], [7, 30, 12, 9]
    engine = Engine(generator, CPU)
    engine.model = generator.model.double()
    decoder = generator.decoder
    states = engine.encoder(input_ids=torch.tensor([source])).last_hidden_state
    memory = decoder.remember(states, torch.tensor([len(source)]))
    fed = [generator.marks.start, *target]
    kept = decoder.begin(1, len(fed))
    steps = [
        decoder.step(torch.tensor([token]), i, memory, kept, cache.Rows(1, 1)) for i, token in enumerate(fed)
    ]
    whole = generator.model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([fed])).logits[0]
    assert torch.allclose(torch.cat(steps), whole, atol=1e-6)
    generator.model.float()


def test_any_other_seq2seq_model_writes_through_transformers_decoder(tmp_path):
    from transformers import BartConfig, BartForConditionalGeneration

    made = tokenizer()
    torch.manual_seed(2)
    config = BartConfig(
        vocab_size=made.vocab_size, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, init_std=0.4,
        pad_token_id=made.pad, bos_token_id=made.cls, eos_token_id=made.sep, decoder_start_token_id=made.sep,
        forced_eos_token_id=None,
    )  # fmt: skip
    Generator(
        BartForConditionalGeneration(config), made, GeneratorSettings(passage_length=48, query_length=12)
    ).save(tmp_path)
    generator = Generator.load(tmp_path)
    assert type(generator.decoder) is PlainDecoder
    assert generator.targets(["of"])[0][0] == made.cls  # BART begins with its end, and then its beginning
    alone = written(generator, Decoding(3), budget=1)
    assert written(generator, Decoding(3), budget=500) == alone
    assert len({tuple(row) for rows in alone for row in rows}) > 12


def test_random_numbers_belong_to_seed_passage_query_and_position():
    found = uniform(KEYS, count=3, length=5)
    key = rng.key(5, int(hash_all(["p2"])[0]), 1)
    assert found[2, 1].tolist() == [float(rng.uniform(key, i)) for i in range(5)]
    assert len(set(found.flatten().tolist())) == found.numel()


def test_batches_hold_every_passage_once_and_keep_to_their_budget():
    lengths = np.array([3, 9, 4, 4, 20, 1])
    groups = [group.tolist() for group in by_padded_budget(lengths, 10)]
    assert sorted(i for group in groups for i in group) == list(range(6))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= 10 for g in groups)


def test_rows_beyond_what_a_kernel_can_number_are_divided(t5, monkeypatch):
    generator = Generator.load(t5)
    expected = written(generator, Decoding(4), budget=10_000)
    monkeypatch.setattr(cache, "PRODUCTS", 20)  # 4 heads: 5 rows at once
    assert written(generator, Decoding(4), budget=10_000) == expected


def test_a_batch_that_does_not_fit_is_halved_and_writes_the_same(t5, monkeypatch):
    generator, sizes = Generator.load(t5), []
    batch = Engine._batch

    def small(self, sources, *rest):
        sizes.append(len(sources))
        if len(sources) > 4:
            raise torch.OutOfMemoryError("as if")
        return batch(self, sources, *rest)

    expected = written(generator, Decoding(2), budget=10_000)
    monkeypatch.setattr(Engine, "_batch", small)
    assert written(generator, Decoding(2), budget=10_000) == expected
    assert sizes == [12, 6, 3, 3, 6, 3, 3]
    monkeypatch.setattr(Engine, "_batch", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("as if")))
    with pytest.raises(ResourceError, match="one passage does not fit"):
        written(generator, Decoding(2), budget=1)


def test_a_generator_is_saved_and_loaded_with_its_untied_output(t5, tmp_path):
    first = Generator.load(t5)
    first.with_settings(prefix="other: ", labels=("some, train: 3 pairs",)).save(tmp_path)
    again = Generator.load(tmp_path)
    assert not torch.equal(again.model.lm_head.weight, again.model.shared.weight)
    assert again.settings.labels == ("some, train: 3 pairs",)
    sources = first.sources(PASSAGES)
    assert Engine(first, CPU).write(sources, KEYS, Decoding(2)) == Engine(again, CPU).write(
        sources, KEYS, Decoding(2)
    )
