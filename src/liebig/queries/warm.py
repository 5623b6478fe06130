"""A generator from an encoder, with no download: both halves start from its weights, cross-attention is new.

The decoder is the encoder's own family as transformers has it, with a causal mask and cross-attention; its output is
the masked-LM head (Rothe et al., 2020: "BERT2BERT"). With fewer decoder layers, evenly spaced ones are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from liebig.errors import ModelError
from liebig.model.loading import check_folder, quiet, readable
from liebig.rng import key
from liebig.text.tokenizer import Tokenizer

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def from_encoder(folder: Path, tokenizer: Tokenizer, decoder_layers: int | None, seed: int) -> Any:
    """An encoder–decoder whose halves are the encoder in a folder."""
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
