"""The backbone: any Hugging Face encoder, run on packed rows, with access to every layer.

Embeddings, layers and masked-LM head are the model's own modules; attention runs per sequence through
`attention.py`. Families that do not follow transformers' attention interface run padded, and `describe` says so.
Layers run by Hugging Face's own forward or by a lean form with the same numbers; compiled functions are made for any
number of tokens and shared by all layers of one shape. `own_attentions` is the model's own padded forward. Cost: what
the encoder's matrix products cost on real tokens; nothing is spent on padding.

T packed tokens, B sequences, L longest length, D width, V vocabulary, M masked positions, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.base.hub import model_folder
from liebig.losses.mlm import MaskedLoss, mlm
from liebig.model import attention
from liebig.model.families import Extras, Family, PaddedFamily, family_of
from liebig.model.kernels import plain
from liebig.model.kernels.captured import Captures
from liebig.model.kernels.lean import LEAN, is_plain, lean_form, run_lean, triton_is_here
from liebig.model.loading import BackboneConfig, load_model, new_model
from liebig.model.packed import Packed
from liebig.text.tokenizer import Tokenizer

LayerCall = Callable[[Any, Tensor, Mapping[str, Any], Mapping[str, Any]], Tensor]


def run_stack(
    layers: Sequence[nn.Module],
    x_TD: Tensor,
    extras: Extras,
    route: Mapping[str, Any],
    taps: frozenset[int],
    call: LayerCall,
) -> tuple[Tensor, dict[int, Tensor]]:
    """States after all layers, and after the layers in `taps` (the first is 1)."""
    kept = {}
    for i, layer in enumerate(layers, 1):
        x_TD = call(layer, x_TD, extras[getattr(layer, "attention_type", "")], route)
        if i in taps:
            kept[i] = x_TD
    return x_TD, kept


def plain_layer(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """A layer's own forward; what is in `route` reaches `attention.packed_attention`."""
    out = layer(x_TD.unsqueeze(0), attention_mask=None, **extra, **route)
    states: Tensor = out[0] if isinstance(out, tuple) else out
    return states.squeeze(0)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function compiled for any sizes, with its own code object and so its own cache of compiled forms.

    Forms differ by layer type, training or not, gradient or not, autocast or not: more than torch's limit of 8.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    made: Callable[..., Any] = torch.compile(own, dynamic=True, **options)
    return made


def padded_inputs(packed: Packed, pad: int) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and `token_type_ids` as transformers wants them, B x L."""
    real_BL = torch.arange(packed.max_length, device=packed.device)[None, :] < packed.lengths[:, None]
    tokens_BL = torch.full(real_BL.shape, pad, device=packed.device).masked_scatter(real_BL, packed.tokens)
    inputs = {"input_ids": tokens_BL, "attention_mask": real_BL.long()}
    if packed.segments is not None:
        inputs["token_type_ids"] = torch.zeros_like(tokens_BL).masked_scatter(real_BL, packed.segments)
    return inputs


def own_attentions(model: Any, packed: Packed) -> list[Tensor]:
    """Attention probabilities of each sequence from the model's own forward, layers x H x L x L."""
    inputs = padded_inputs(packed, getattr(model.config, "pad_token_id", None) or 0)
    with own_attention(model, "eager"):
        layers = model.base_model(**inputs, output_attentions=True, return_dict=True).attentions
    shares = torch.stack(list(layers), dim=1)
    return [shares[i, :, :, :n, :n] for i, n in enumerate(packed.lengths.tolist())]


@contextmanager
def own_attention(model: Any, name: str) -> Iterator[None]:
    """The model with one of transformers' own attention implementations for a while."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


@dataclass(frozen=True, eq=False)
class Hidden:
    """States after the last layer and after the requested layers (0 is the embedding output), T x D each."""

    last: Tensor
    layers: Mapping[int, Tensor] = field(default_factory=dict)


class Backbone(nn.Module):
    """An encoder with its masked-LM head."""

    def __init__(self, model: Any, *, fresh_mlm_head: bool = False, source: str = "") -> None:
        super().__init__()
        attention.register()
        self.model = model
        self.source = source
        self.fresh_mlm_head = fresh_mlm_head
        self.kind = family_of(model.config.model_type)
        if getattr(model.config, "is_decoder", False):
            raise ModelError("the model is set up as a decoder, not as an encoder", file=source or None)
        if self.kind.packed:
            model.config._attn_implementation = attention.NAME
        for part in self.kind.score_dropouts(model):
            part.p = 0.0
        self._dropout: float | None = None
        self._embed: Callable[..., Tensor] = call_embed
        self._layer: LayerCall = plain_layer  # compiled, for rows that go to the variable-length kernel
        self._captures: Captures | None = None  # recorded layers, for rows that the host launches too slowly
        self._logits: Callable[..., Tensor] = call_logits
        self._loss: Callable[..., MaskedLoss] = call_loss
        self._transform: Callable[..., Tensor] = call_transform

    @classmethod
    def load(cls, source: str | Path) -> Backbone:
        """From a folder, or by name from the Hugging Face hub. Runs no code and unpickles nothing."""
        loaded = load_model(model_folder(source))
        return cls(loaded.model.eval(), fresh_mlm_head=loaded.fresh_mlm_head, source=str(source))

    @classmethod
    def create(
        cls,
        layers: int,
        width: int,
        heads: int,
        vocab_size: int,
        family: str = "bert",
        *,
        intermediate: int | None = None,
        max_positions: int = 512,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        pad: int = 0,
        seed: int | None = None,
    ) -> Backbone:
        """From scratch, by size. With a seed the weights are a function of the sizes and the seed."""
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            model = new_model(
                family,
                layers=layers,
                width=width,
                heads=heads,
                vocab_size=vocab_size,
                intermediate=intermediate or 4 * width,
                max_positions=max_positions,
                dropout=dropout,
                initializer_range=initializer_range,
                pad=pad,
            )
        return cls(model.eval(), source=f"a new {family}")

    @property
    def body(self) -> Any:
        return self.model.base_model

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def family(self) -> str:
        return str(self.config.model_type)

    @property
    def packed(self) -> bool:
        """Whether rows run without padding; False means padded, by the model's own attention."""
        return self.kind.packed

    @property
    def width(self) -> int:
        return int(self.config.hidden_size)

    @property
    def n_layers(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def heads(self) -> int:
        return int(self.config.num_attention_heads)

    @property
    def max_positions(self) -> int:
        return self.kind.room(self.body.config)

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def dtype(self) -> torch.dtype:
        weight = self.body.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight.dtype

    def forward(self, packed: Packed, layers: Sequence[int] = ()) -> Hidden:
        """States of a packed row; `layers` also returns those after the given layers (0: embeddings)."""
        self._check(packed, layers)
        if isinstance(self.kind, PaddedFamily):
            states = self.kind.whole(self.body, packed)
            return Hidden(states[-1], {i: states[i] for i in layers})
        x_TD = self.embed(packed)
        last, kept = self._run(self.kind.layers(self.body), x_TD, packed, frozenset(layers) - {0})
        last = self.kind.finish(self.body, last)
        kept |= {0: x_TD, self.n_layers: last}
        return Hidden(last, {i: kept[i] for i in layers})

    def class_logits(self, packed: Packed) -> Tensor:
        """Logits of a sequence classifier, B x labels, from the family's own head."""
        if isinstance(self.kind, PaddedFamily):
            self._check(packed, ())
            return self.kind.classify_whole(self.model, packed)
        return self.kind.classify(self.model, self(packed).last, packed)

    def embed(self, packed: Packed) -> Tensor:
        return self._embed(self.kind, self.body, packed.tokens, packed.positions, packed.segments)

    def run_layers(self, layers: Sequence[nn.Module], x_TD: Tensor, packed: Packed) -> Tensor:
        """Other layers of this family (see `new_layers`) over a packed row, T x D."""
        return self._run(layers, x_TD, packed, frozenset())[0]

    def finish(self, x_TD: Tensor) -> Tensor:
        """What this family does after its last layer (ModernBERT's norm); states are then fit for `mlm_logits`."""
        return self.kind.finish(self.body, x_TD)

    def new_layers(self, n: int) -> nn.ModuleList:
        """Fresh layers of this family's own class, initialised by its own initialiser."""
        made = nn.ModuleList([self.kind.fresh_layer(self.body) for _ in range(n)])
        made.apply(self.model._init_weights)
        for part in self.kind.score_dropouts(made):
            part.p = 0.0
        if self._dropout is not None:
            self._set_dropout(made, self._dropout)
        return made.to(device=self.body.device, dtype=self.dtype)

    def mlm_logits(self, states_MD: Tensor) -> Tensor:
        """Scores over the vocabulary of the given states only, M x V, from the family's whole head."""
        self._check_head()
        return self._logits(self.kind, self.model, states_MD)

    def mlm_loss(self, states_MD: Tensor, labels_M: Tensor) -> MaskedLoss:
        """Summed cross entropy of the given states; the same number as `losses.mlm` of `mlm_logits`, faster on CUDA."""
        self._check_head()
        if not self._fuses_loss(states_MD.device):
            return self._loss(self.kind, self.model, states_MD, labels_M)
        from liebig.model.kernels.cross_entropy import LinearCrossEntropy  # needs Triton

        half, decoder = attention.compute_dtype(states_MD.device, self.dtype), self.kind.decoder(self.model)
        states_MD = self._transform(self.kind, self.model, states_MD, half)
        with torch.cuda.device_of(states_MD):  # Triton launches on the current device
            return MaskedLoss(*LinearCrossEntropy.apply(states_MD, decoder.weight, decoder.bias, labels_M))

    @torch.no_grad()
    def attentions(self, packed: Packed) -> list[Tensor]:
        """Attention probabilities of each sequence, layers x H x L x L, for analysis."""
        self._check(packed, ())
        if not self.kind.packed:
            return own_attentions(self.model, packed)
        record: list[list[Tensor]] = []
        route = {"packed_plan": packed.plan, "packed_record": record}
        x_TD, layers = self.embed(packed), self.kind.layers(self.body)
        run_stack(layers, x_TD, self.kind.extras(self.body, x_TD, packed), route, frozenset(), plain_layer)
        return [torch.stack([layer[i] for layer in record]) for i in range(len(packed))]

    def set_dropout(self, p: float) -> None:
        """Dropout of embeddings and layers (new layers too). On attention probabilities it is 0 always."""
        self._dropout = p
        self._set_dropout(self.model, p)

    def compile(self, **options: Any) -> None:  # type: ignore[override]
        """Compiles embeddings and masked-LM head, and layers that have no lean form (CUDA; a CPU gains nothing).

        One layer is compiled and shared by all, for any number of tokens. Longest lengths are rounded to powers of
        two, so that changing batches do not compile again. Layers that have a lean form are recorded where rows are
        small (`kernels/captured.py`).
        """
        if not self.packed:
            return
        self._layer = compiled(plain_layer, **options)
        self._captures = Captures()
        self._embed = compiled(call_embed, **options)
        self._logits = compiled(call_logits, **options)
        self._loss = compiled(call_loss, **options)
        self._transform = compiled(call_transform, **options)

    def describe(self) -> str:
        """What was loaded, in sentences, with everything a user may not expect."""
        size = f"{self.n_layers} layers of width {self.width}, {self.heads} heads, {self.vocab_size} tokens"
        said = [f"{self.family}: {size}"]
        if not self.packed:
            said.append(f"{self.family} has attention of its own, so it runs padded and slower")
        said.append("dropout on attention probabilities is 0")
        if torch.cuda.is_available() and self.family in LEAN and not triton_is_here():
            said.append("Triton is missing, so layers run by their own forward on a GPU, and slower")
        if self.fresh_mlm_head:
            said.append("the checkpoint has no masked-LM head, so a fresh one was made")
        return "; ".join(said) + "."

    def _run(
        self, layers: Sequence[nn.Module], x_TD: Tensor, packed: Packed, taps: frozenset[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        route = self._route(packed)
        if "packed_offsets" not in route:
            extras = self.kind.extras(self.body, x_TD, packed)
            return run_stack(layers, x_TD, extras, route, taps, plain_layer)
        forms = {lean_form(self.family, layer) for layer in layers}
        form = forms.pop() if len(forms) == 1 else None
        if form is None or (x_TD.is_cuda and not triton_is_here()):
            extras = self.kind.extras(self.body, x_TD, packed)
            return run_stack(layers, x_TD, extras, route, taps, self._layer)
        dropping = any(layer.training for layer in layers)
        noise = plain.draw_noise(len(layers), x_TD.device) if dropping else None
        x_TD = x_TD.to(attention.compute_dtype(packed.device, self.dtype)).contiguous()
        each = sorted(taps)
        with torch.cuda.device_of(x_TD):  # Triton launches on the current device
            records = x_TD.is_cuda and torch.is_grad_enabled()
            run = self._captures.run if self._captures is not None and records else run_lean
            last, *kept = run([form(layer) for layer in layers], x_TD, route, noise, each)
        return last, dict(zip(each, kept))

    def _route(self, packed: Packed) -> dict[str, Any]:
        """Keyword arguments that carry the row's sequences to attention."""
        seen = attention.compute_dtype(packed.device, self.dtype)
        if self.packed and attention.varlen_runs(packed.device, seen, self.width // self.heads):
            longest = attention.rounded_longest(packed.max_length)
            return {"packed_offsets": packed.offsets, "packed_longest": longest}
        return {"packed_plan": packed.plan}

    def _fuses_loss(self, device: torch.device) -> bool:
        """Whether `cross_entropy.py` computes the loss: on CUDA, in half precision, of a plain decoder."""
        half = attention.compute_dtype(device, self.dtype) in attention.HALF
        if device.type != "cuda" or not half or isinstance(self.kind, PaddedFamily) or not triton_is_here():
            return False
        return is_plain(self.kind.decoder(self.model))

    def _check_head(self) -> None:
        if self.model.base_model is self.model:
            raise ModelError(f"the family {self.family!r} has no masked-LM head", file=self.source)

    def _set_dropout(self, module: nn.Module, p: float) -> None:
        fixed = set(map(id, self.kind.score_dropouts(module)))
        for part in module.modules():
            if isinstance(part, nn.Dropout) and id(part) not in fixed:
                part.p = p

    def _check(self, packed: Packed, layers: Sequence[int]) -> None:
        if packed.max_length > self.max_positions:
            raise ModelError(
                f"a sequence has {packed.max_length} tokens, but the model has {self.max_positions} positions",
                fix="cut sequences to the model's length",
            )
        assert all(0 <= i <= self.n_layers for i in layers), f"no such layer among {list(layers)}"


def call_embed(
    kind: Family, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None
) -> Tensor:
    """The family's embeddings; a separate function so that it can be compiled."""
    return kind.embed(body, tokens_T, places_T, segments_T)


def call_logits(kind: Family, model: Any, states_MD: Tensor) -> Tensor:
    """The family's whole masked-LM head."""
    return kind.decoder(model)(kind.transform(model, states_MD))


def call_transform(kind: Family, model: Any, states_MD: Tensor, dtype: torch.dtype) -> Tensor:
    """The masked-LM head up to its decoder, in the dtype of the decoder's product."""
    return kind.transform(model, states_MD).to(dtype)


def call_loss(kind: Family, model: Any, states_MD: Tensor, labels_M: Tensor) -> MaskedLoss:
    """Head and cross entropy together; on CUDA the vocabulary is padded to whole tiles of the matrix units."""
    states_MD, decoder = kind.transform(model, states_MD), kind.decoder(model)
    if not states_MD.is_cuda:
        return mlm(decoder(states_MD), labels_M)
    extra = -decoder.out_features % 64
    weight = F.pad(decoder.weight, (0, 0, 0, extra))
    bias = decoder.bias if decoder.bias is not None else decoder.weight.new_zeros(decoder.out_features)
    return mlm(F.linear(states_MD, weight, F.pad(bias, (0, extra), value=float("-inf"))), labels_M)


def make_backbone(config: BackboneConfig, tokenizer: Tokenizer, seed: int) -> Backbone:
    """The backbone of a recipe: from a folder, from the hub, or new with weights that follow from the seed.

    Its vocabulary must have room for the tokenizer's.
    """
    if config.source is not None:
        backbone = Backbone.load(config.source)
    else:
        sizes = config.model_dump(exclude={"kind"})
        backbone = Backbone.create(**sizes, vocab_size=tokenizer.vocab_size, pad=tokenizer.pad, seed=seed)
    if tokenizer.vocab_size > backbone.vocab_size:
        raise ModelError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the backbone only {backbone.vocab_size}",
            fix="prepare the corpus with the backbone's own tokenizer",
        )
    return backbone
