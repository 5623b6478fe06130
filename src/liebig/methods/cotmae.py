"""CoT-MAE: one side of a pair is masked and encoded; a shallow decoder rebuilds the other side from its vector.

Encoder: masked language modelling at 30 %. Decoder: the embeddings of the other side, masked at 45 % (CoT-MAE's own
paper, Wu et al. 2022; query-as-context gives none), with the encoder's CLS in the first place, through two fresh layers
(query-as-context, Eq. 8–11). Symmetric pairs go both ways; of passage + query the passage is encoded and the query
decoded. The causal decoder of the released query-as-context code predicts each next token of the unmasked query
instead. No contrast, so no cached gradients.
`bow` adds bag-of-words prediction from the encoder's CLS (`bow.py`).
Cost: MLM on the encoder's side, and the decoder's layers and the vocabulary on the other.
Recipe: `recipes/cotmae-msmarco.toml`; `liebig reproduce query-as-context`. Docs: `docs/query-as-context.md`.
Tests: `tests/methods/test_pretrain_cotmae.py`.

T packed tokens, B sequences, D width, H heads, E head width, W+1 keys a token sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import RecipeError
from liebig.methods.base import MethodStart, PretrainRecipe, Saved, Shape
from liebig.methods.bow import BOW, WithBagOfWords
from liebig.methods.condenser import replace_first
from liebig.methods.mlm import MaskedMethod, Masker, check_splits
from liebig.methods.shapes import examples, halves, plain_side
from liebig.methods.sources.token_rows import ExampleSource, TokenRow, documents_of
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.model.pooling import cls as first_states
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.objective import Represented

ENCODER, DECODER = "encoder", "decoder"
DECODER_LAYERS = {"mlm": 2, "causal": 1}
WINDOW = 3  # positions before a token that the released causal decoder sees


class CotmaeDecoder(nn.Module):
    """CoT-MAE, Eq. 8-10 of query-as-context: a shallow bidirectional decoder of one side from the other's CLS."""

    def __init__(self, backbone: Backbone, layers: int = 2) -> None:
        super().__init__()
        self.layers = backbone.new_layers(layers)

    def describe(self) -> dict[str, Any]:
        return {"kind": "cotmae", "layers": len(self.layers)}

    def forward(self, backbone: Backbone, cls_BD: Tensor, packed: Packed) -> Tensor:
        """States of the masked row whose first tokens are replaced by the other side's vectors, T x D."""
        x_TD = replace_first(backbone.embed(packed), cls_BD, packed)
        return backbone.finish(backbone.run_layers(list(self.layers), x_TD, packed))


class CausalDecoder(nn.Module):
    """The decoder of the released query-as-context code: GPT-2 blocks that see position 0 and a window.

    Predicts the next token of the unmasked row; a token sees position 0 and the last `window` positions,
    itself among them. Embedding dropout before, LayerNorm after, GPT-2's initialisation.
    """

    def __init__(
        self, backbone: Backbone, layers: int = 1, window: int = WINDOW, dropout: float = 0.1
    ) -> None:
        super().__init__()
        width = backbone.width
        self.window = window
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            [CausalBlock(width, backbone.heads, window, dropout) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.apply(self._initialise)
        self.to(device=backbone.body.device, dtype=backbone.dtype)

    def describe(self) -> dict[str, Any]:
        return {"kind": "causal", "layers": len(self.layers), "window": self.window}

    def forward(self, backbone: Backbone, cls_BD: Tensor, packed: Packed) -> Tensor:
        """States that predict the next token, T x D."""
        x_TD = self.dropout(replace_first(backbone.embed(packed), cls_BD, packed))
        rows, seen = window_rows(packed, self.window)
        for layer in self.layers:
            x_TD = layer(x_TD, rows, seen)
        return self.norm(x_TD)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            shrink = math.sqrt(2 * len(self.layers)) if getattr(module, "residual", False) else 1.0
            nn.init.normal_(module.weight, std=0.02 / shrink)
            nn.init.zeros_(module.bias)


class CausalBlock(nn.Module):
    """GPT-2's block: norm, attention, norm, feed-forward, each added to its input."""

    def __init__(self, width: int, heads: int, window: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width, eps=1e-5)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.mix.residual = self.down.residual = True  # type: ignore[assignment]  # read by the initialiser

    def forward(self, x_TD: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
        qkv = self.qkv(self.norm_attention(x_TD)).view(x_TD.shape[0], 3, self.heads, -1)
        mixed_THE = attend_rows(qkv[:, 0], qkv[:, 1], qkv[:, 2], rows, seen)
        x_TD = x_TD + self.dropout(self.mix(mixed_THE.flatten(1)))
        wide = F.gelu(self.up(self.norm_feed(x_TD)), approximate="tanh")
        return x_TD + self.dropout(self.down(wide))


def attend_rows(q_THE: Tensor, k_THE: Tensor, v_THE: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """Attention of every token to the few rows it sees (`rows`, T x W+1; `seen` False where a place is empty)."""
    keys, values = k_THE[rows], v_THE[rows]
    scores = torch.einsum("the,twhe->thw", q_THE, keys) * q_THE.shape[-1] ** -0.5
    shares = scores.masked_fill(~seen[:, None, :], float("-inf")).softmax(-1)
    return torch.einsum("thw,twhe->the", shares.to(values.dtype), values)


def window_rows(packed: Packed, window: int) -> tuple[Tensor, Tensor]:
    """For each token the rows of position 0 and of its last `window` positions, and which of them exist.

    Position 0 comes first and once: a window place that falls on it, or before it, is empty.
    """
    row_T1 = torch.arange(packed.total, device=packed.device)[:, None]
    back = torch.arange(window - 1, -1, -1, device=packed.device)[None, :]
    first_T1 = packed.firsts[packed.sequence][:, None]
    near = row_T1 - back
    rows = torch.cat([first_T1, near.maximum(first_T1)], 1)
    seen = torch.cat([torch.ones_like(first_T1, dtype=torch.bool), near > first_T1], 1)
    return rows, seen


@dataclass(frozen=True)
class EncoderDecoderOrder:
    """A source of pairs in the order that `EncoderDecoder` reads: for the encoder, for the decoder, and so on.

    A symmetric pair (a, b) goes both ways: a, b, b, a. Of (query, passage) the passage is encoded and the query
    decoded.
    """

    source: ExampleSource
    symmetric: bool

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> TokenRow:
        """The inner source's pairs, put in order."""
        row = self.source.draw(examples, epoch, seed)
        order = np.array([0, 1, 1, 0]) if self.symmetric else np.array([1, 0])
        return row.take((np.arange(0, len(row), 2)[:, None] + order[None, :]).reshape(-1))

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        return documents_of(self.source, examples, epoch, seed)


@dataclass(frozen=True)
class EncoderDecoder:
    """The shape of CoT-MAE's batches: sequences in turn for the encoder and for the decoder."""

    masker: Masker
    encoder_rate: float
    decoder_rate: float | None  # None: nothing is masked, and every next token is predicted

    def __call__(self, row: TokenRow) -> Batch:
        first, second = halves(row)
        # Streams of their own, so that the two masks of one text differ.
        encoder = self.masker.side(first, self.encoder_rate, 0)
        if self.decoder_rate is None:
            decoder = next_tokens(second)
        else:
            decoder = self.masker.side(second, self.decoder_rate, 1)
        return Batch({ENCODER: encoder, DECODER: decoder}, examples(row))


def next_tokens(row: TokenRow) -> Side:
    """The row as it is; every position but the last of a sequence predicts the token after it."""
    predicts = np.ones(len(row.tokens.values), np.bool_)
    predicts[row.tokens.offsets[1:] - 1] = False
    targets = np.flatnonzero(predicts)
    side = plain_side(row)
    return Side(
        side.packed, side.owner, torch.from_numpy(targets), torch.from_numpy(row.tokens.values[targets + 1])
    )


class CotMAE(MaskedMethod):
    """Sequence i of the side "decoder" is rebuilt from sequence i of the side "encoder"."""

    class Config(MaskedMethod.Config, WithBagOfWords):
        """The other side of a pair is reconstructed from one vector by a shallow decoder."""

        kind: Literal["cotmae"] = "cotmae"
        encoder_rate: float = Field(
            default=0.30, gt=0.0, lt=1.0, description="Share of tokens masked in the encoder."
        )
        decoder_rate: float = Field(
            default=0.45, gt=0.0, lt=1.0, description="Share of tokens masked in the decoder."
        )
        decoder: Literal["mlm", "causal"] | None = Field(
            default=None,
            description="Bidirectional with masks, or causal with a window [default: the preset].",
        )
        n_decoder_layers: int | None = Field(
            default=None, ge=1, description="Number of decoder layers [default: 2 for mlm, 1 for causal]."
        )
        window: int = Field(
            default=WINDOW,
            ge=1,
            description="Number of positions the causal decoder sees, besides the first.",
        )
        decoder_weight: float = Field(default=1.0, gt=0, description="Weight of the decoder's loss.")
        pairs: ClassVar[bool] = True
        singles: ClassVar[bool] = False

        @property
        def negatives(self) -> Literal["none"]:
            return "none"

        @property
        def layers(self) -> int:
            return self.n_decoder_layers or DECODER_LAYERS[self.decoder or "mlm"]

        def resolve(self, recipe: PretrainRecipe) -> Self:
            """The released query-as-context code decodes causally; the papers, and CoT-MAE's own code, do not."""
            queries = all(source.kind == "queries" for source in recipe.source.members)
            default = "causal" if queries and recipe.preset == "reference" else "mlm"
            full = self.model_copy(update={"decoder": self.decoder or default})
            return full.model_copy(update={"n_decoder_layers": full.layers})

        def shape(self, tokenizer: Tokenizer) -> Shape:
            rate = None if self.decoder == "causal" else self.decoder_rate
            return EncoderDecoder(Masker.of(tokenizer, self.whole_words), self.encoder_rate, rate)

        def arrange(self, source: ExampleSource, symmetric: bool) -> ExampleSource:
            return EncoderDecoderOrder(source, symmetric)

    config: Config
    head_classes = {"cotmae": CotmaeDecoder, "causal": CausalDecoder}

    def __init__(
        self,
        config: Config,
        backbone: Backbone,
        decoder: CotmaeDecoder | CausalDecoder | None = None,
        *,
        special: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(config, backbone, {ENCODER: 1.0, DECODER: config.decoder_weight})
        check_splits(backbone, "CoT-MAE's decoder")
        if decoder is None and config.decoder == "causal":
            decoder = CausalDecoder(backbone, config.layers, config.window)
        self.decoder = CotmaeDecoder(backbone, config.layers) if decoder is None else decoder
        self.words = config.words_term(special)
        if self.words is not None:
            self.weights = {**self.weights, BOW: config.bow}

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> CotMAE:
        """With the decoder of the starting folder, or a fresh one."""
        config = recipe.objective
        assert isinstance(config, CotMAE.Config)
        decoder = start.heads.get(f"cotmae_{config.decoder}")
        if not isinstance(decoder, CotmaeDecoder | CausalDecoder):
            return cls(config, backbone, special=start.tokenizer.special)
        has = {"n_decoder_layers": len(decoder.layers), "window": getattr(decoder, "window", config.window)}
        given = {"n_decoder_layers": config.layers, "window": config.window}
        for name, value in has.items():
            if value != given[name]:
                raise RecipeError(
                    f"the starting folder has a decoder with {name} = {value}, the recipe asks for {given[name]}",
                    fix=f"set objective.{name} = {value}",
                )
        return cls(config, backbone, decoder, special=start.tokenizer.special)

    def counts(self, batch: Batch) -> dict[str, int]:
        encoder, decoder = batch.sides[ENCODER], batch.sides[DECODER]
        words = {} if self.words is None else {BOW: len(encoder.packed)}
        return self.masked_counts(ENCODER, encoder) | self.masked_counts(DECODER, decoder) | words

    def represent(self, chunk: Batch) -> Represented:
        encoder, decoder = chunk.sides[ENCODER], chunk.sides[DECODER]
        late_TD = self.backbone(encoder.packed).last
        decoded_TD = self.decoder(self.backbone, first_states(late_TD, encoder.packed), decoder.packed)
        terms = self.masked_terms(ENCODER, late_TD, encoder)
        terms |= self.masked_terms(DECODER, decoded_TD, decoder)
        if self.words is not None:
            terms[BOW] = self.words(self.backbone, late_TD, encoder)
        return Represented(terms=terms)

    def saved(self) -> Saved:
        return Saved("cls", heads={f"cotmae_{self.config.decoder}": self.decoder})
