"""A query generator: a seq2seq model, its tokenizer, and how a passage is put to it.

A folder is one of transformers (`AutoModelForSeq2SeqLM` loads it) with `generator.json` beside it: prefix, lengths, and
which labels it was trained on. Nothing in a folder is run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from liebig.errors import ModelError
from liebig.model.loading import check_folder, quiet, readable
from liebig.queries.bert import BertDecoder
from liebig.queries.plain import PlainDecoder
from liebig.queries.sample import Decoder, Marks
from liebig.queries.t5 import FAMILIES, T5Decoder
from liebig.records import Passage, Title
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

SETTINGS = "generator.json"


@dataclass(frozen=True)
class Settings:
    """How texts become sequences; `labels` says which human labels the model has seen, for every table it enters."""

    prefix: str = ""
    passage_length: int = 256
    query_length: int = 64
    title: Title = "space"
    labels: tuple[str, ...] = ()


@dataclass(eq=False)
class Generator:
    """Model, tokenizer and settings."""

    model: Any
    tokenizer: Tokenizer
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def load(cls, folder: Path) -> Generator:
        """From a folder of transformers; without generator.json the settings are the defaults."""
        path = folder / SETTINGS
        found = {}
        if path.is_file():
            with readable(folder):
                found = json.loads(path.read_text(encoding="utf-8"))
        settings = Settings(**{**found, "labels": tuple(found.get("labels", ()))})
        return cls(load_seq2seq(folder), Tokenizer.from_folder(folder), settings)

    def save(self, folder: Path) -> None:
        """As transformers does, and the settings beside it."""
        config = self.model.config
        if config.model_type in FAMILIES and self.model.lm_head.weight is not self.model.shared.weight:
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
        """Where a query begins and ends."""
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
        if self.model.config.model_type in FAMILIES:
            return T5Decoder(self.model)
        if _is_bert(self.model):
            return BertDecoder(self.model)
        return PlainDecoder(self.model)

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
        """Written tokens as text."""
        found = self.tokenizer.core.decode_batch([list(row) for row in rows], skip_special_tokens=True)
        return [" ".join(text.split()) for text in found]

    def _token(self, name: str) -> int:
        config = self.model.config
        value = getattr(config, name, None)
        if value is None:
            value = getattr(self.model.generation_config, name, None)
        value = value[0] if isinstance(value, list) else value
        if value is None:
            raise ModelError(f"config.json names no {name}", fix="add it: it is part of every seq2seq model")
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
        model, info = AutoModelForSeq2SeqLM.from_pretrained(
            str(folder),
            config=config,
            trust_remote_code=False,
            weights_only=True,
            local_files_only=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(f"{len(missing)} weights are missing, the first is {missing[0]!r}", file=folder)
    return model.eval()


def _is_bert(model: Any) -> bool:
    config = model.config
    return config.model_type == "encoder-decoder" and config.decoder.model_type == "bert"
