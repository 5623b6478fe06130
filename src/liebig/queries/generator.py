"""A query generator: a seq2seq model with its tokenizer and settings, and the objective and batches that train it.

A folder is one of transformers (`AutoModelForSeq2SeqLM` loads it) with `generator.json` beside it: prefix, lengths, and
which labels it was trained on. No code from a folder is run.

B sequences, L tokens of the longest, V vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.base.records import Passage, Title
from liebig.base.rng import key
from liebig.methods.samplers import Sampler
from liebig.model.loading import load_weights, quiet, readable
from liebig.model.packed import Packed
from liebig.model.settings import check_folder, read_model_file
from liebig.queries.sampling import (
    Cache,
    Decoder,
    Marks,
    Memory,
    Rows,
    attend_own,
    attend_passage,
    passage_mask,
)
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective, Represented

# One step of a decoder: T5's from its own weights, any other seq2seq model's through transformers.
#
# Our own decoder gives the same numbers as that of transformers. The rows' new tokens go through all layers
# together; queries, keys and values of a layer come from one product, and so do the two halves of a gated
# feed-forward part. Keys and values of a passage are shared by all of its queries. Cost: the weights' products with N
# rows, and a pass over the keys and values that are kept.
#
# N rows, H heads, E head width, D width, V vocabulary.

T5_FAMILIES = ("t5", "mt5")


@dataclass(frozen=True, eq=False)
class T5Layer:
    """The weights of a layer, joined where one product serves."""

    norms: tuple[Tensor, Tensor, Tensor]
    qkv: Tensor
    own_out: Tensor
    query: Tensor
    keys_values: Tensor
    cross_out: Tensor
    wi: Tensor
    wo: Tensor
    gated: bool


class T5Decoder:
    """The decoder of T5, v1.1, flan and mT5 (not UMT5, which has a bias in every layer); the model must not change."""

    def __init__(self, model: Any) -> None:
        config, stack = model.config, model.decoder
        self.heads, self.width, self.eps = config.num_heads, config.d_kv, config.layer_norm_epsilon
        self.activation = stack.block[0].layer[2].DenseReluDense.act
        self.layers = [_t5_layer(block.layer) for block in stack.block]
        self.table = model.shared.weight.detach()
        self.norm = stack.final_layer_norm.weight.detach()
        self.head = model.lm_head.weight.detach()
        scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
        self.output_scale = config.d_model**-0.5 if scaled else 1.0
        bias = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
        self.bias_buckets = bias.float().T  # H x buckets
        self.max_distance = config.relative_attention_max_distance

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> Memory:
        """Keys and values of the passages, layer by layer."""
        keys, values = [], []
        for layer in self.layers:
            both = F.linear(states_PLD, layer.keys_values).unflatten(2, (2, self.heads, self.width))
            k, v = both.permute(2, 0, 3, 1, 4).contiguous().unbind(0)
            keys.append(k)
            values.append(v)
        return Memory(keys, values, passage_mask(lengths_P, states_PLD.shape[1], states_PLD.dtype))

    def begin(self, rows: int, length: int) -> Cache:
        """A cache for `rows` rows of at most `length` tokens."""
        self.bias_HT = self.bias_buckets[:, buckets(length, self.bias_buckets.shape[1], self.max_distance)]
        return Cache(len(self.layers), rows, self.heads, self.width, self.table)

    def step(self, tokens_N: Tensor, position: int, memory: Memory, cache: Cache, rows: Rows) -> Tensor:
        """Scores of the tokens that follow, N x V."""
        x = self.table[tokens_N]
        bias = self.bias_HT[:, : position + 1].flip(1)
        for number, layer in enumerate(self.layers):
            x = x + self._own(self._norm(x, layer.norms[0]), layer, number, position, cache, bias)
            x = x + self._cross(self._norm(x, layer.norms[1]), layer, number, memory, rows)
            x = x + self._forward(self._norm(x, layer.norms[2]), layer)
        x = self._norm(x, self.norm)
        return F.linear(x * self.output_scale if self.output_scale != 1.0 else x, self.head)

    def _norm(self, x_ND: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x_ND, weight.shape, weight, self.eps)

    def _own(
        self, x_ND: Tensor, layer: T5Layer, number: int, position: int, cache: Cache, bias: Tensor
    ) -> Tensor:
        q, k, v = F.linear(x_ND, layer.qkv).unflatten(1, (3, self.heads, self.width)).unbind(1)
        out = attend_own(q, *cache.put(number, position, k, v), bias)
        return F.linear(out.flatten(1), layer.own_out)

    def _cross(self, x_ND: Tensor, layer: T5Layer, number: int, memory: Memory, rows: Rows) -> Tensor:
        q = F.linear(x_ND, layer.query).unflatten(1, (self.heads, self.width))
        return F.linear(attend_passage(q, memory, number, rows).flatten(1), layer.cross_out)

    def _forward(self, x_ND: Tensor, layer: T5Layer) -> Tensor:
        x = F.linear(x_ND, layer.wi)
        if layer.gated:
            gate, straight = x.chunk(2, dim=1)
            return F.linear(self.activation(gate) * straight, layer.wo)
        return F.linear(self.activation(x), layer.wo)


def _t5_layer(parts: Any) -> T5Layer:
    own, cross, dense = parts[0].SelfAttention, parts[1].EncDecAttention, parts[2].DenseReluDense
    gated = hasattr(dense, "wi_0")
    wi = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
    return T5Layer(
        norms=tuple(part.layer_norm.weight.detach() for part in parts),
        qkv=_t5_joined(own.q, own.k, own.v),
        own_out=own.o.weight.detach(),
        query=cross.q.weight.detach(),
        keys_values=_t5_joined(cross.k, cross.v),
        cross_out=cross.o.weight.detach(),
        wi=_t5_joined(*wi),
        wo=dense.wo.weight.detach().to(dense.wi_0.weight.dtype if gated else dense.wi.weight.dtype),
        gated=gated,
    )


def _t5_joined(*linears: Any) -> Tensor:
    return torch.cat([linear.weight.detach() for linear in linears])


def buckets(length: int, n: int, max_distance: int) -> Tensor:
    """The bucket of each distance back, 0 … length - 1: one each at first, then ever wider ones (T5, 2.1)."""
    exact = n // 2
    numbers = []
    for distance in range(length):
        if distance >= exact:
            share = math.log(distance / exact) / math.log(max_distance / exact)
            distance = min(n - 1, exact + int(share * (n - exact)))
        numbers.append(distance)
    return torch.tensor(numbers)


@dataclass(eq=False)
class States:
    """The encoder's output of the passages."""

    states: Tensor  # P x L x D
    mask: Tensor  # P x L

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, passages: Tensor) -> None:
        """Nothing is read from here after the first step: the rows have their copies."""


class OwnCache:
    """transformers' cache, and the rows' copies of their passages."""

    def __init__(self) -> None:
        self.past: Any = None
        self.states: Tensor | None = None
        self.mask: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        assert self.states is not None, "rows are dropped after a step"
        assert self.mask is not None, "rows are dropped after a step"
        self.past.batch_select_indices(rows)
        self.states, self.mask = self.states[rows], self.mask[rows]


class PlainDecoder:
    """transformers' own decoder and cache, for BART, BERT and every other seq2seq model.

    The passage's states are repeated for each of its queries, so it is slower than our own decoder.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> States:
        """The states, and which of them are real."""
        mask = torch.arange(states_PLD.shape[1], device=lengths_P.device) < lengths_P[:, None]
        return States(states_PLD, mask.long())

    def begin(self, rows: int, length: int) -> OwnCache:
        """A cache that makes itself in the first step."""
        return OwnCache()

    def step(self, tokens_N: Tensor, position: int, memory: States, cache: OwnCache, rows: Rows) -> Tensor:
        """Scores of the tokens that follow, N x V."""
        from transformers.modeling_outputs import BaseModelOutput

        if cache.states is None:
            cache.states = memory.states.repeat_interleave(rows.width, dim=0)
            cache.mask = memory.mask.repeat_interleave(rows.width, dim=0)
        out = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=cache.states),
            attention_mask=cache.mask,
            decoder_input_ids=tokens_N[:, None],
            past_key_values=cache.past,
            use_cache=True,
        )
        cache.past = out.past_key_values
        scores: Tensor = out.logits[:, -1]
        return scores


SETTINGS = "generator.json"


@dataclass(frozen=True)
class GeneratorSettings:
    """How texts become sequences; `labels` says which human labels the model has seen, for every table it enters."""

    prefix: str = ""
    passage_length: PositiveInt = 256
    query_length: PositiveInt = 64
    title: Title = "space"
    labels: tuple[str, ...] = ()


@dataclass(eq=False)
class Generator:
    """Model, tokenizer and settings."""

    model: Any
    tokenizer: Tokenizer
    settings: GeneratorSettings = field(default_factory=GeneratorSettings)

    @classmethod
    def load(cls, folder: Path) -> Generator:
        """From a folder of transformers; without generator.json the settings are the defaults."""
        path = folder / SETTINGS
        settings = read_model_file(path, GeneratorSettings) if path.is_file() else GeneratorSettings()
        return cls(load_seq2seq(folder), Tokenizer.from_folder(folder), settings)

    def save(self, folder: Path) -> None:
        """As transformers does, and the settings beside it."""
        config = self.model.config
        if config.model_type in T5_FAMILIES and self.model.lm_head.weight is not self.model.shared.weight:
            config.tie_word_embeddings = False  # transformers says true of every T5 that it has loaded
        with quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save(folder)
        (folder / SETTINGS).write_text(json.dumps(asdict(self.settings), indent=2) + "\n", encoding="utf-8")

    def with_settings(self, **changes: Any) -> Generator:
        """The same model, put to use in another way; None changes nothing."""
        told = {name: value for name, value in changes.items() if value is not None}
        return Generator(self.model, self.tokenizer, replace(self.settings, **told))

    @property
    def marks(self) -> Marks:
        return Marks(
            self._token("decoder_start_token_id"), self._token("eos_token_id"), self.settings.query_length
        )

    @property
    def pad(self) -> int:
        """What fills a padded batch."""
        return self._token("pad_token_id")

    @property
    def decoder(self) -> Decoder:
        """Our own decoder where there is one for the family, else transformers'."""
        is_t5 = self.model.config.model_type in T5_FAMILIES
        return T5Decoder(self.model) if is_t5 else PlainDecoder(self.model)

    def sources(self, passages: Sequence[Passage]) -> list[list[int]]:
        """Passages as the encoder takes them; what is too long is cut, special tokens are kept."""
        told = self.settings
        return RoleLayout(self.tokenizer, told.passage_length, told.prefix, told.title).lists(passages)

    def targets(self, queries: Sequence[str]) -> list[list[int]]:
        """Queries as the decoder writes them, with their end."""
        marks = self.marks
        room = marks.length - 1
        ids = self.tokenizer.encode_batch(list(queries))
        before = [t for t in self.tokenizer.template.before if t != marks.start]
        return [[*[*before, *one][:room], marks.end] for one in ids]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        decoded = self.tokenizer.core.decode_batch([list(row) for row in rows], skip_special_tokens=True)
        return [" ".join(text.split()) for text in decoded]

    def _token(self, name: str) -> int:
        config = self.model.config
        value = getattr(config, name, None)
        if value is None:
            value = getattr(self.model.generation_config, name, None)
        value = value[0] if isinstance(value, list) else value
        if value is None:
            raise ModelError(f"config.json has no {name}", fix="add it: it is part of every seq2seq model")
        return int(value)


def load_seq2seq(folder: Path) -> Any:
    """The seq2seq model of a folder, in float32."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    check_folder(folder)
    with quiet(), readable(folder):
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        if not getattr(config, "is_encoder_decoder", False):
            raise ModelError(
                "the model has no decoder",
                file=folder,
                fix="name a seq2seq model, or start from an encoder with model.kind = 'encoder'",
            )
        model, missing = load_weights(AutoModelForSeq2SeqLM, folder, config)
    if missing:
        raise ModelError(f"{len(missing)} weights are missing, the first is {min(missing)!r}", file=folder)
    return model.eval()


FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def from_encoder(folder: Path, tokenizer: Tokenizer, decoder_layers: int | None, seed: int) -> Any:
    """An encoder–decoder whose halves are the encoder in a folder, so that no download is needed (BERT2BERT,
    Rothe et al., 2020).

    Both halves start from the encoder's weights; cross-attention is new. The decoder is the encoder's own family as
    transformers has it, with a causal mask; its output is the masked-LM head. With fewer decoder layers, evenly spaced
    ones are kept.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, EncoderDecoderModel

    check_folder(folder)
    with quiet(), readable(folder), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(seed, 2) >> 1))
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        _check(config, folder)
        told = {"trust_remote_code": False, "weights_only": True, "local_files_only": True}
        encoder = AutoModel.from_pretrained(str(folder), dtype=torch.float32, **told)
        config.is_decoder = config.add_cross_attention = True
        decoder = AutoModelForCausalLM.from_pretrained(
            str(folder), config=config, dtype=torch.float32, **told
        )
        _keep(decoder, decoder_layers)
        model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.eos_token_id = tokenizer.cls, tokenizer.sep
        config.pad_token_id = tokenizer.pad
    return model.eval()


def _check(config: Any, folder: Path) -> None:
    if config.model_type not in FAMILIES:
        raise ModelError(
            f"transformers has no decoder of the family {config.model_type!r}",
            file=folder,
            fix=f"start from one of {', '.join(FAMILIES)}",
        )


def _keep(decoder: Any, n: int | None) -> None:
    """Evenly spaced layers, the first and the last among them."""
    layers = decoder.base_model.encoder.layer
    if n is None or n == len(layers):
        return
    if n > len(layers):
        raise ModelError(f"the encoder has {len(layers)} layers, so the decoder cannot have {n}")
    kept = np.linspace(0, len(layers) - 1, n).round().astype(int) if n > 1 else [len(layers) - 1]
    decoder.base_model.encoder.layer = torch.nn.ModuleList([layers[i] for i in kept])
    decoder.config.num_hidden_layers = n
    for number, layer in enumerate(decoder.base_model.encoder.layer):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = number


TERM = "tokens-of-queries"


class GeneratorObjective(Objective):
    """Cross entropy of each token of a query, given the passage and the tokens before it."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator, self.model = generator, generator.model
        self._pad, self._start = generator.pad, generator.marks.start

    def counts(self, batch: Batch) -> dict[str, int]:
        return {TERM: batch.sides["query"].packed.total}

    def represent(self, chunk: Batch) -> Represented:
        passages, queries = chunk.sides["passage"].packed, chunk.sides["query"].packed
        tokens_BL, real_BL = padded(passages, self._pad)
        labels_BL, written_BL = padded(queries, self._pad)
        start = labels_BL.new_full((len(labels_BL), 1), self._start)
        logits_BLV = self.model(
            input_ids=tokens_BL,
            attention_mask=real_BL.long(),
            decoder_input_ids=torch.cat((start, labels_BL[:, :-1]), dim=1),
            use_cache=False,
        ).logits
        loss = F.cross_entropy(logits_BLV[written_BL].float(), labels_BL[written_BL], reduction="sum")
        return Represented(None, {TERM: loss})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.model.compile(dynamic=True)


def padded(packed: Packed, pad: int) -> tuple[Tensor, Tensor]:
    """A packed row as a rectangle, and which of its places are real."""
    shape = (len(packed), packed.max_length)
    tokens = packed.tokens.new_full(shape, pad)
    real = torch.zeros(shape, dtype=torch.bool, device=packed.device)
    tokens[packed.sequence, packed.positions] = packed.tokens
    real[packed.sequence, packed.positions] = True
    return tokens, real


@dataclass(frozen=True)
class GeneratorBatches:
    """This process's share of the batch of a step.

    Examples are sorted by length, so that the chunks of the step hold texts of similar length and little padding.
    """

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    passage_of: Sequence[int]  # of each pair
    sampler: Sampler
    world: World

    def __call__(self, step: int) -> Batch:
        chosen = self.sampler(step)
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        mine = sorted(chosen[first:last].tolist(), key=lambda i: len(self.sources[self.passage_of[i]]))
        owner = torch.arange(len(mine))
        passages = Packed.from_lists([self.sources[self.passage_of[i]] for i in mine])
        queries = Packed.from_lists([self.targets[i] for i in mine])
        return Batch({"passage": Side(passages, owner), "query": Side(queries, owner)}, len(mine))
