"""What differs between the encoder families: embeddings, layers, last norm, masked-LM head and classification head.

An adapter reads a Hugging Face model's own modules and adds none. `FAMILIES` is the allow-list of families that
follow transformers' attention interface and may run packed; any other family runs padded as a whole (`PaddedFamily`),
because trusting an unknown one gives wrong numbers silently.

T packed tokens, D width, V vocabulary, b x L sequences and slots of a bucket.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.model.attention import NAME
from liebig.model.packed import Packed

Extras = Mapping[str, Mapping[str, Any]]


class Family:
    """BERT (and MiniLM, which uses its classes); the other families change what differs."""

    packed = True  # embeddings and layers can be run apart, so heads and early layers exist

    def embed(self, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None) -> Tensor:
        """Embedding output of every token, T x D; places count from 0 in each sequence."""
        parts = body.embeddings
        x_TD = parts.word_embeddings(tokens_T)
        types = parts.token_type_embeddings
        # One type everywhere is one row added, whose gradient is a plain sum.
        plain = segments_T is None or types.num_embeddings == 1
        x_TD = x_TD + (types.weight[0] if plain else types(segments_T))
        x_TD = x_TD + parts.position_embeddings(places_T + self.start(body.config))
        return parts.dropout(parts.LayerNorm(x_TD))

    def start(self, config: Any) -> int:
        """The position id of a sequence's first token."""
        return 0

    def room(self, config: Any) -> int:
        """The longest sequence the position embeddings can hold."""
        return int(config.max_position_embeddings) - self.start(config)

    def layers(self, body: Any) -> list[nn.Module]:
        """The layers in running order."""
        return list(body.encoder.layer)

    def extras(self, body: Any, x_TD: Tensor, packed: Packed) -> Extras:
        """Keyword arguments of a layer by its `attention_type` ("" for families without types)."""
        return {"": {}}

    def finish(self, body: Any, x_TD: Tensor) -> Tensor:
        """What comes after the last layer: nothing in families that normalise inside the layer."""
        return x_TD

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        """The masked-LM head up to its decoder: dense, activation, norm."""
        return model.cls.predictions.transform(states_MD)

    def decoder(self, model: Any) -> nn.Linear:
        """The last step of the masked-LM head, tied to the word embeddings unless the model says otherwise."""
        return model.cls.predictions.decoder

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        """The head of a sequence classifier on the last states, B x labels."""
        first_B1D = states_TD.index_select(0, packed.firsts)[:, None]
        return model.classifier(model.dropout(model.base_model.pooler(first_B1D)))

    def score_dropouts(self, module: nn.Module) -> list[nn.Dropout]:
        """Dropouts on attention probabilities, which stay 0; packed attention has none to begin with."""
        return []

    def fresh_layer(self, body: Any) -> nn.Module:
        """One more layer of the backbone's own class, not yet initialised."""
        made: nn.Module = type(self.layers(body)[0])(body.config)
        return made


def head_on_first(model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
    """RoBERTa's and ELECTRA's classification head, which takes the first token's state itself."""
    return model.classifier(states_TD.index_select(0, packed.firsts)[:, None])


class Roberta(Family):
    """RoBERTa, XLM-R and CamemBERT: positions begin after the padding index."""

    def start(self, config: Any) -> int:
        return int(config.pad_token_id) + 1

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        head = model.lm_head
        return head.layer_norm(F.gelu(head.dense(states_MD)))

    def decoder(self, model: Any) -> nn.Linear:
        return model.lm_head.decoder

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        return head_on_first(model, states_TD, packed)


class DistilBert(Family):
    """No token types; its masked-LM head consists of four modules."""

    def embed(self, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None) -> Tensor:
        parts = body.embeddings
        x_TD = parts.word_embeddings(tokens_T) + parts.position_embeddings(places_T)
        return parts.dropout(parts.LayerNorm(x_TD))

    def layers(self, body: Any) -> list[nn.Module]:
        return list(body.transformer.layer)

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        return model.vocab_layer_norm(model.activation(model.vocab_transform(states_MD)))

    def decoder(self, model: Any) -> nn.Linear:
        return model.vocab_projector

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        x_BD = F.relu(model.pre_classifier(states_TD.index_select(0, packed.firsts)))
        return model.classifier(model.dropout(x_BD))


class Electra(Family):
    """Embeddings may be narrower than the layers; the masked-LM head is the generator's."""

    def embed(self, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None) -> Tensor:
        x_TD = super().embed(body, tokens_T, places_T, segments_T)
        return body.embeddings_project(x_TD) if hasattr(body, "embeddings_project") else x_TD

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        return model.generator_predictions(states_MD)

    def decoder(self, model: Any) -> nn.Linear:
        return model.generator_lm_head

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        return head_on_first(model, states_TD, packed)


class ModernBert(Family):
    """Rotary positions by layer type, local layers, and a norm after the last layer."""

    def embed(self, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None) -> Tensor:
        return body.embeddings(input_ids=tokens_T)

    def layers(self, body: Any) -> list[nn.Module]:
        return list(body.layers)

    def extras(self, body: Any, x_TD: Tensor, packed: Packed) -> Extras:
        place = packed.positions[None]
        return {
            kind: {"position_embeddings": body.rotary_emb(x_TD[None], place, kind)}
            for kind in sorted(set(body.config.layer_types) | {"full_attention"})
        }

    def finish(self, body: Any, x_TD: Tensor) -> Tensor:
        return body.final_norm(x_TD)

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        return model.head(states_MD)

    def decoder(self, model: Any) -> nn.Linear:
        return model.decoder

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        if model.config.classifier_pooling == "cls":
            x_BD = states_TD.index_select(0, packed.firsts)
        else:
            sums_BD = states_TD.new_zeros(len(packed), states_TD.shape[1])
            sums_BD = sums_BD.index_add(0, packed.sequence.long(), states_TD)
            x_BD = sums_BD / packed.lengths[:, None]
        return model.classifier(model.drop(model.head(x_BD)))

    def fresh_layer(self, body: Any) -> nn.Module:
        # Layer 0 lacks its norm and the config decides local or global: take a global layer that is not the first.
        config = copy.deepcopy(body.config)
        config.layer_types = ["full_attention", "full_attention"]
        config._attn_implementation = NAME
        made: nn.Module = type(body.layers[0])(config, layer_idx=1)
        return made


class PaddedFamily(Family):
    """A family this project does not know: only its own whole forward is trusted, padded."""

    packed = False

    def embed(self, body: Any, tokens_T: Tensor, places_T: Tensor, segments_T: Tensor | None) -> Tensor:
        raise self.refusal(body, "running the embeddings alone")

    def layers(self, body: Any) -> list[nn.Module]:
        raise self.refusal(body, "running single layers")

    def transform(self, model: Any, states_MD: Tensor) -> Tensor:
        raise self.refusal(model, "running the masked-LM head alone")

    def room(self, config: Any) -> int:
        positions = int(getattr(config, "max_position_embeddings", None) or 1 << 20)
        return positions - 2 if config.model_type == "mpnet" else positions  # whose first position is 2

    def score_dropouts(self, module: nn.Module) -> list[nn.Dropout]:
        # They were built with p = 0 (see `loading.load_model`), unlike the others.
        return [part for part in module.modules() if isinstance(part, nn.Dropout) and part.p == 0]

    def refusal(self, body: Any, what: str) -> ModelError:
        return ModelError(
            f"{what} is not supported for models of the family {body.config.model_type!r}",
            fix=f"use one of {', '.join(sorted(FAMILIES))}",
        )

    def classify(self, model: Any, states_TD: Tensor, packed: Packed) -> Tensor:
        raise self.refusal(model, "its classification head alone")

    def whole(self, body: Any, packed: Packed) -> list[Tensor]:
        """Embedding output and every layer's output from the model's own forward."""
        by_bucket = []
        for inputs in self.inputs(body, packed):
            out = body(**inputs, output_hidden_states=True, return_dict=True)
            by_bucket.append([*out.hidden_states[:-1], out.last_hidden_state])
        return [packed.plan.scatter(list(parts)) for parts in zip(*by_bucket, strict=True)]

    def classify_whole(self, model: Any, packed: Packed) -> Tensor:
        """The logits of a sequence classifier from its own forward, B x labels."""
        logits = torch.cat([model(**inputs).logits for inputs in self.inputs(model, packed)])
        order = np.concatenate([bucket.sequences for bucket in packed.plan.buckets])
        return logits[torch.from_numpy(np.argsort(order)).to(logits.device)]

    def inputs(self, model: Any, packed: Packed) -> Iterator[dict[str, Tensor]]:
        """What transformers' forward takes, bucket by bucket."""
        pad = getattr(model.config, "pad_token_id", None) or 0
        typed = getattr(model.config, "type_vocab_size", 0) > 1 and packed.segments is not None
        parts = zip(
            packed.plan.gather(packed.tokens),
            packed.plan.gather(packed.segment_ids),
            packed.plan.buckets,
            strict=True,
        )
        for tokens, types, bucket in parts:
            real = torch.ones_like(tokens, dtype=torch.bool) if bucket.real is None else bucket.real
            inputs = {"input_ids": tokens.masked_fill(~real, pad), "attention_mask": real.long()}
            yield inputs | ({"token_type_ids": types} if typed else {})


FAMILIES: dict[str, Family] = {
    "bert": Family(),
    "roberta": Roberta(),
    "xlm-roberta": Roberta(),
    "camembert": Roberta(),
    "distilbert": DistilBert(),
    "electra": Electra(),
    "modernbert": ModernBert(),
}


def family_of(model_type: str) -> Family:
    return FAMILIES.get(model_type, PaddedFamily())
