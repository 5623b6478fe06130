"""A tiny T5, a tiny encoder, and passages with questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from liebig.base.records import Passage
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.queries.generator import Generator, GeneratorSettings
from liebig.text.tokenizer import Tokenizer

PLACES = ["Oslo", "Lima", "Cairo", "Kyoto", "Quebec", "Turin", "Accra", "Perth", "Riga", "Dakar"]
THINGS = ["bridge", "museum", "harbour", "garden", "library", "tower", "market", "temple", "castle", "school"]


def passage(i: int) -> Passage:
    place, thing = PLACES[i % 10], THINGS[(i * 3 + i // 10) % 10]
    text = f"The {thing} of {place} was built in {1700 + i * 7} by people of the town." + " It is old." * (
        i % 4
    )
    return Passage(f"p{i}", text, place, f"d{i // 2}")


def question(i: int) -> str:
    return f"when was the {THINGS[(i * 3 + i // 10) % 10]} of {PLACES[i % 10]} built"


def write_collection(folder: Path, n: int = 20) -> Path:
    (folder / "judgements").mkdir(parents=True)
    rows = [passage(i) for i in range(n)]
    _lines(
        folder / "passages.jsonl",
        [{"id": p.id, "title": p.title, "text": p.text, "doc": p.doc} for p in rows],
    )
    _lines(folder / "queries.jsonl", [{"id": f"q{i}", "text": question(i)} for i in range(n)])
    for split, some in (("train", range(10)), ("dev", range(10, n))):
        lines = "".join(f"q{i}\tp{i}\t1\n" for i in some)
        (folder / "judgements" / f"{split}.tsv").write_text(lines)
    return folder


def tokenizer() -> Tokenizer:
    texts = [passage(i).text + " " + question(i) for i in range(40)]
    return Tokenizer.train(texts, "wordpiece", 300, True)


def make_t5(folder: Path, seed: int = 1, **changes: object) -> Path:
    from transformers import T5Config, T5ForConditionalGeneration

    made = tokenizer()
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=made.vocab_size, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", relative_attention_num_buckets=8, relative_attention_max_distance=12,
        decoder_start_token_id=made.pad, pad_token_id=made.pad, eos_token_id=made.sep, tie_word_embeddings=False,
        **changes,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.randn(made.vocab_size, 32) * 0.4)
    Generator(model, made, GeneratorSettings(prefix="ask: ", passage_length=48, query_length=12)).save(folder)
    return folder


def make_encoder(folder: Path) -> Path:
    made = tokenizer()
    backbone = Backbone.create(2, 32, 4, made.vocab_size, max_positions=64, dropout=0.0, seed=3)
    Encoder(backbone, made).save(folder)
    return folder


def _lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
