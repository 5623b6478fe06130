"""Hugging Face models from a folder, a name or a size, without running anything a folder brings along.

Custom code is refused, pickled weights are read by torch's restricted reader only, and weights that are missing
are an error instead of random numbers. Weights are float32. Cost: reading the file once.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt

from liebig.base.config import Config, ModelPath
from liebig.base.errors import LiebigError, ModelError
from liebig.base.hub import from_hub, is_name
from liebig.model.settings import check_folder, first_line, is_classifier


@dataclass(frozen=True)
class LoadedModel:
    """A model with its masked-LM head, and whether that head had to be made fresh."""

    model: Any
    fresh_mlm_head: bool


def load_model(folder: Path) -> LoadedModel:
    from transformers import AutoModel, AutoModelForMaskedLM

    check_folder(folder)
    with quiet(), readable(folder):
        config = read_config(folder)
        has_head = type(config) in AutoModelForMaskedLM._model_mapping  # its keys() would import every family
        model, missing = pretrained(AutoModelForMaskedLM if has_head else AutoModel, folder, config)
    head = check_complete(model, missing, folder)
    return LoadedModel(model, fresh_mlm_head=has_head and bool(head))


def load_classifier(folder: Path) -> Any:
    """The sequence classifier in a folder; a model that is none gets a fresh head with one label."""
    from transformers import AutoModelForSequenceClassification

    check_folder(folder)
    ready = is_classifier(folder)
    with quiet(), readable(folder):
        config = read_config(folder)
        if not ready:
            config.num_labels = 1
        model, missing = pretrained(AutoModelForSequenceClassification, folder, config)
    if ready and missing:
        raise ModelError(f"the weights of the head are missing, such as {min(missing)!r}", file=folder)
    check_complete(model, missing, folder)
    return model


def new_classifier(config: Any) -> Any:
    """An untrained sequence classifier with one label; the configuration is that of another model of its shape."""
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(config)
    config.num_labels, config._attn_implementation = 1, None
    with quiet(), no_score_dropout(config):
        return AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)


def read_config(folder: Path) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    # A name of a kernel there would be fetched from the hub and run; attention is ours to choose anyway.
    config._attn_implementation = None
    return config


def pretrained(loader: Any, folder: Path, config: Any) -> tuple[Any, set[str]]:
    """An encoder with the weights of a folder, without dropout on scores, and the names of missing weights."""
    with no_score_dropout(config):
        return load_weights(loader, folder, config)


def load_weights(loader: Any, folder: Path, config: Any) -> tuple[Any, set[str]]:
    """A model with the weights of a folder, in float32, and the names of those that are missing there."""
    model, info = loader.from_pretrained(
        str(folder),
        config=config,
        trust_remote_code=False,
        weights_only=True,
        local_files_only=True,
        dtype=torch.float32,
        output_loading_info=True,
    )
    return model, set(info["missing_keys"])


@contextmanager
def no_score_dropout(config: Any) -> Iterator[None]:
    """Builds a model without dropout on attention probabilities; its config keeps the numbers it came with."""
    names = ("attention_probs_dropout_prob", "attention_dropout")
    before = {name: getattr(config, name) for name in names if hasattr(config, name)}
    before = (
        {} if config.model_type == "modernbert" else before
    )  # there it is dropout on attention's output too
    for name in before:
        setattr(config, name, 0.0)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def check_complete(model: Any, missing: set[str], source: Path) -> set[str]:
    """Missing weights of the masked-LM head; any other missing weight is an error."""
    prefix = model.base_model_prefix + "."
    names = {name for name in missing if "pooler" not in name}
    head = set() if model.base_model is model else {name for name in names if not name.startswith(prefix)}
    body = sorted(names - head)
    if body:
        raise ModelError(
            f"{len(body)} weights are missing, the first is {body[0]!r}",
            file=source,
            fix="save the model again, or import it with `liebig import`",
        )
    return head


@contextmanager
def readable(source: Path) -> Iterator[None]:
    """Turns what libraries raise about an unreadable model into one sentence."""
    try:
        yield
    except (LiebigError, AssertionError, MemoryError):
        raise
    except pickle.UnpicklingError as error:
        raise ModelError(
            "the model cannot be read: it is damaged, or pickled with more than tensors in it, which could run code",
            file=source,
            fix="save the weights again, as safetensors",
        ) from error
    except Exception as error:  # what a library makes of a crafted file can be any
        raise ModelError(f"the model cannot be read: {first_line(error)}", file=source) from error


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without its progress bars and loading reports; what matters is said by `Backbone.describe`."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def new_model(
    family: str,
    *,
    layers: int,
    width: int,
    heads: int,
    vocab_size: int,
    intermediate: int,
    max_positions: int,
    dropout: float,
    initializer_range: float,
    pad: int,
) -> Any:
    """An untrained model with a masked-LM head; dropout on attention probabilities is 0, as everywhere."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    bert: dict[str, Any] = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    # RoBERTa's position ids begin after the padding index.
    roberta = {**bert, "max_position_embeddings": max_positions + pad + 1, "type_vocab_size": 1}
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    settings: dict[str, dict[str, Any]] = {
        "bert": bert,
        "electra": {**bert, "embedding_size": width},  # which could be narrower than the layers
        "roberta": roberta,
        "xlm-roberta": roberta,
        "camembert": roberta,
        "distilbert": {"dropout": dropout, "attention_dropout": 0.0},
        "modernbert": {"embedding_dropout": dropout, "mlp_dropout": dropout, "attention_dropout": 0.0, **ids},
    }
    own = settings.get(family)
    if own is None:
        raise ModelError(f"a new model cannot be of family {family!r}", fix="use family = 'bert'")
    if width % heads:
        raise ModelError(f"the width {width} is not a multiple of the {heads} heads")
    sizes: dict[str, Any] = {
        "dim" if family == "distilbert" else "hidden_size": width,
        "n_layers" if family == "distilbert" else "num_hidden_layers": layers,
        "n_heads" if family == "distilbert" else "num_attention_heads": heads,
        "hidden_dim" if family == "distilbert" else "intermediate_size": intermediate,
        "max_position_embeddings": max_positions,
        "vocab_size": vocab_size,
        "initializer_range": initializer_range,
        "pad_token_id": pad,
    }
    with quiet():
        config = AutoConfig.for_model(family, **sizes | own)
        return AutoModelForMaskedLM.from_config(config, trust_remote_code=False)


Family = Literal["bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert"]


class StartConfig(Config):
    """The model a training starts from."""

    @property
    def source(self) -> Path | None:
        """A folder or a name on the hub; None for a new model."""
        raise NotImplementedError

    def folder(self) -> Path | None:
        """Where the model is on disk, downloaded if it has to be; None for a new one."""
        raise NotImplementedError


class FolderBackbone(StartConfig):
    """A model folder on disk."""

    kind: Literal["folder"] = "folder"
    path: ModelPath = Field(
        description="model folder of Liebig, transformers or sentence-transformers, or org/name of the hub"
    )

    @property
    def source(self) -> Path:
        return self.path

    def folder(self) -> Path:
        return from_hub(str(self.path)) if is_name(self.path) else self.path


class NewBackbone(StartConfig):
    """A model from scratch; its vocabulary is the tokenizer's."""

    kind: Literal["new"] = "new"
    family: Family = Field("bert", description="family of the encoder")
    layers: PositiveInt = Field(12, description="number of layers")
    width: PositiveInt = Field(768, description="width of the hidden states")
    heads: PositiveInt = Field(12, description="number of attention heads; the width is a multiple of it")
    intermediate: PositiveInt | None = Field(
        None, description="width inside the feed-forward layers [default: four times the width]"
    )
    max_positions: PositiveInt = Field(512, description="longest sequence, special tokens included")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and layers")
    initializer_range: float = Field(0.02, gt=0, description="standard deviation of the initial weights")

    @property
    def source(self) -> None:
        return None

    def folder(self) -> None:
        return None


BackboneConfig = Annotated[FolderBackbone | NewBackbone, Field(discriminator="kind")]
