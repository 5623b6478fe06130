"""A query generator: a seq2seq model with its tokenizer and settings.

A folder is one of transformers (`AutoModelForSeq2SeqLM` loads it) with `generator.json` beside it: prefix, lengths, and
which labels it was trained on. No code from a folder is run.

B sequences, L tokens of the longest, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt

from liebig.base.errors import ModelError
from liebig.base.records import Passage, Title
from liebig.base.rng import key
from liebig.model.loading import load_weights, quiet, readable
from liebig.model.settings import check_folder, read_model_file
from liebig.queries.decoder_steps import T5_FAMILIES, PlainDecoder, T5Decoder
from liebig.queries.sampling import Decoder, Marks
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

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
