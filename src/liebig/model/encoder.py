"""Text to vectors: backbone, pooling, what follows it, prompts and maximum length, as one value.

`forward` is the vectors of a packed row, for training; `encode_texts` sorts texts by length, packs them up to a
budget of tokens and returns numpy. What it loads from a sentence-transformers folder gives that library's own vectors.
Cost: the backbone's on real tokens, and the tokens of all texts in memory; `search/embed.py` streams any number of
texts, and shares `row_vectors`.

T packed tokens, B sequences, D width of the vectors, N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.model.settings import TOKENS_CPU, Similarity, TextReader
from liebig.ragged import Ragged, split_by_budget
from liebig.text.layout import Layout, Record, RoleLayout
from liebig.text.tokenizer import Tokenizer


def pool(states_TD: Tensor, packed: Packed, kind: str = "cls", skip: int = 0) -> Tensor:
    """B x D. `skip` leaves out the first tokens of every sequence (a prompt that is not to be pooled)."""
    if kind not in POOLINGS:
        raise ModelError(f"unknown pooling {kind!r}", fix=f"use one of {', '.join(POOLINGS)}")
    return POOLINGS[kind](states_TD, packed, skip)


def cls(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The state of the first token."""
    rows = packed.firsts + skip * (packed.lengths > skip) if skip else packed.firsts
    return wide(states_TD.index_select(0, rows))


def last(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The state of the last token."""
    return wide(states_TD.index_select(0, packed.offsets[1:].long() - 1))


def mean(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The mean of all tokens' states, special tokens included."""
    x_TD = wide(states_TD)
    return segment_sum(kept(x_TD, packed, skip), packed) / counts(x_TD, packed, skip)


def mean_sqrt(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The sum of all states over the root of their number."""
    x_TD = wide(states_TD)
    return segment_sum(kept(x_TD, packed, skip), packed) / counts(x_TD, packed, skip).sqrt()


def weighted_mean(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The mean with weights 1, 2, 3, ... along the sequence."""
    weight_T1 = kept((packed.positions + 1).to(wide(states_TD).dtype)[:, None], packed, skip)
    return segment_sum(wide(states_TD) * weight_T1, packed) / segment_sum(weight_T1, packed).clamp_min(1e-9)


def largest(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The largest value of each column over the sequence."""
    x_TD = wide(states_TD)
    if skip:
        x_TD = x_TD.masked_fill((packed.positions < skip)[:, None], float("-inf"))
    index_TD = packed.sequence[:, None].expand_as(x_TD)
    start_BD = x_TD.new_full((len(packed), x_TD.shape[1]), float("-inf"))
    return start_BD.scatter_reduce(0, index_TD, x_TD, reduce="amax")


def segment_sum(x_TD: Tensor, packed: Packed) -> Tensor:
    """The sum of each sequence's rows, B x D."""
    if x_TD.is_cuda:
        return torch.segment_reduce(x_TD, "sum", offsets=packed.offsets.long(), axis=0, unsafe=True)
    return x_TD.new_zeros(len(packed), x_TD.shape[1]).index_add(0, packed.sequence, x_TD)


def kept(x_TD: Tensor, packed: Packed, skip: int) -> Tensor:
    """The row with the first `skip` tokens of every sequence set to 0."""
    return x_TD * (packed.positions >= skip)[:, None] if skip else x_TD


def counts(x_TD: Tensor, packed: Packed, skip: int) -> Tensor:
    """Tokens pooled in each sequence, B x 1."""
    return (packed.lengths - skip).clamp_min(0).to(x_TD.dtype).clamp_min(1e-9)[:, None]


def wide(x: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


POOLINGS: dict[str, Callable[[Tensor, Packed, int], Tensor]] = {
    "cls": cls,
    "mean": mean,
    "max": largest,
    "mean_sqrt_len_tokens": mean_sqrt,
    "weightedmean": weighted_mean,
    "lasttoken": last,
}


TOKENS, TOKENS_CUDA = 4_096, 32_768  # in one packed row: of pairs of texts on a CPU, of anything on a GPU
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}


class Dense(nn.Module):
    """A projection of the pooled vector, as sentence-transformers' module of that name."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        activation: str = "torch.nn.modules.linear.Identity",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ModelError(f"unknown activation {activation!r}", fix=f"use one of {', '.join(ACTIVATIONS)}")
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation
        self.function = ACTIVATIONS[activation]()

    def forward(self, x_BD: Tensor) -> Tensor:
        out: Tensor = self.function(self.linear(x_BD))
        return out


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, x_BD: Tensor) -> Tensor:
        return F.normalize(x_BD, dim=-1)


def through(tail: Iterable[nn.Module], x_BD: Tensor) -> Tensor:
    """Pooled vectors through what follows the pooling; never in half precision, as pooled ones are not."""
    with torch.autocast(x_BD.device.type, enabled=False):
        for part in tail:
            x_BD = part(x_BD)
    return x_BD


def width_after(tail: Iterable[nn.Module], width: int) -> int:
    """The width of a vector after the tail."""
    return [width, *(part.linear.out_features for part in tail if isinstance(part, Dense))][-1]


class Encoder(TextReader, nn.Module):
    """Backbone, tokenizer, pooling and what follows: text in, vectors out."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        *,
        pooling: str = "cls",
        tail: Sequence[nn.Module] = (),
        max_length: int | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        similarity: Similarity = "dot",
        lowercase: bool = False,
        pool_prompt: bool = True,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ModelError(f"unknown pooling {pooling!r}", fix=f"use one of {', '.join(POOLINGS)}")
        if tokenizer.vocab_size > backbone.vocab_size:
            raise ModelError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only {backbone.vocab_size}"
            )
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.tail = nn.ModuleList(tail)
        self.max_length = min(max_length or backbone.max_positions, backbone.max_positions)
        self.prompts = dict(prompts or {})
        self.default_prompt = default_prompt
        self.similarity: Similarity = similarity
        self.lowercase = lowercase
        self.pool_prompt = pool_prompt
        self.layout = layout or Layout()

    @classmethod
    def load(cls, source: str | Path, *, pooling: str | None = None) -> Encoder:
        """From a folder of Liebig, sentence-transformers or transformers (the last with CLS pooling), or a hub name.

        `liebig:NAME` is an encoder that comes with the package.
        """
        from liebig.model.folder import load_encoder

        return load_encoder(source, pooling=pooling)

    def save(self, folder: str | Path, *, heads: Mapping[str, nn.Module] | None = None) -> None:
        """A folder that `AutoModel`, `AutoModelForMaskedLM` and `SentenceTransformer` load; heads are separate."""
        from liebig.model.folder import save_encoder

        save_encoder(self, Path(folder), heads or {})

    @property
    def max_positions(self) -> int:
        return self.backbone.max_positions

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return width_after(self.tail, self.backbone.width)

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    def forward(self, packed: Packed) -> Tensor:
        """The vectors of a packed row, B x D."""
        return self.vectors(self.backbone(packed).last, packed)

    def vectors(self, states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
        """Vectors from states that were computed before, B x D."""
        return through(self.tail, pool(states_TD, packed, self.pooling, skip))

    def describe(self) -> str:
        said = f"{self.pooling} pooling, {self.width} numbers per vector, compared by {self.similarity}"
        return f"{self.backbone.describe()[:-1]}; {said}, at most {self.max_length} tokens per text."

    def encode(
        self, texts: str | Sequence[str], *, prompt: str | None = None, unit: bool = False
    ) -> NDArray[np.float32]:
        """The vector of a text, D, or the vectors of several, N x D; `prompt` is a role, "query" or "passage".

        `Encoder.load("liebig:mini-v2").encode(["one text", "another"])`
        """
        if isinstance(texts, str):
            return self.encode_texts([texts], prompt=prompt, unit=unit)[0]
        return self.encode_texts(texts, prompt=prompt, unit=unit)

    def encode_query(self, texts: str | Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
        """Vectors of questions, with the model's prompt for them; the name is sentence-transformers'."""
        return self.encode(texts, prompt="query", unit=unit)

    def encode_document(self, texts: str | Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
        """Vectors of passages, with the model's prompt for them; the name is sentence-transformers'."""
        return self.encode(texts, prompt="passage", unit=unit)

    def encode_texts(
        self,
        texts: Sequence[Record],
        *,
        prompt: str | None = None,
        layout: RoleLayout | None = None,
        token_budget: int | None = None,
        unit: bool = False,
        half: bool | None = None,
    ) -> NDArray[np.float32]:
        """Vectors of the texts, N x D. `unit` scales them to length 1 (then dot product is cosine).

        Texts are strings or records: a passage brings its title. `prompt` names a role (query, passage) or a prompt;
        `layout` is given instead where another one than the model's is wanted. `half` computes in bfloat16; None means
        on CUDA only.
        """
        how = self._named(prompt) if layout is None else layout
        return self.encode_rows(
            how.ids(texts), token_budget=token_budget, unit=unit, half=half, skip=self.skip(how)
        )

    def encode_rows(
        self,
        rows: Ragged,
        *,
        token_budget: int | None = None,
        unit: bool = False,
        half: bool | None = None,
        skip: int = 0,
    ) -> NDArray[np.float32]:
        """Vectors of tokenised texts (special tokens included), N x D; the mode of training is left as it was."""
        from liebig.model.torch_model import TorchModel

        was_training = self.training
        budget = token_budget or (TOKENS_CUDA if self.device.type == "cuda" else TOKENS_CPU)
        packed = ((rows.take(numbers), numbers) for numbers in split_by_budget(rows.lengths, budget))
        several = len(rows.values) > 2 * budget
        # anew for each call, because training changes the weights
        model = TorchModel(self, half=half, unit=unit, skip=skip, lean=several)
        vectors = model.start(packed, len(rows))()
        self.train(was_training)
        return vectors

    def row_vectors(
        self,
        packed: Packed,
        states: Callable[[Packed], Tensor],
        *,
        unit: bool = False,
        half: bool = False,
        skip: int = 0,
    ) -> Tensor:
        """The vectors of a packed row as they are kept, B x D: float32, of length 1 if `unit`.

        `states` is the forward: the backbone's, or another that computes the same.
        """
        with torch.autocast(packed.device.type, torch.bfloat16, enabled=half):
            vectors_BD = self.vectors(states(packed), packed, skip).float()
        return F.normalize(vectors_BD, dim=-1) if unit else vectors_BD

    def in_half(self, half: bool | None) -> bool:
        """Whether to compute in bfloat16: as given, else on CUDA; never a model that is not in float32."""
        full = self.backbone.dtype == torch.float32
        return full and (self.device.type == "cuda" if half is None else half)
