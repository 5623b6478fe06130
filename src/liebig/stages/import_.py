"""`liebig import`: a published checkpoint of Condenser, coCondenser or Contriever becomes a model folder.

Condenser and coCondenser are BERT folders whose head, if it was published, lies in `model.pt` (`c_head.N.*`); vectors
are the CLS. Contriever is a BERT folder without pooler, or a training checkpoint with an optimiser and the encoder
under `encoder_q.` (MoCo) or `encoder.`; vectors are means. Pickled files are read by torch's restricted reader only,
which accepts tensors, plain values and argparse's empty Namespace.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from liebig.base.config import Config, ModelPath
from liebig.base.errors import ModelError
from liebig.base.pipeline import Stage
from liebig.base.progress import say
from liebig.base.workspace import Folder
from liebig.methods.condenser import CondenserHead
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.loading import new_model, readable
from liebig.model.pooling import Normalize
from liebig.model.settings import TransformerFile, read_model_file
from liebig.text.tokenizer import Tokenizer

PREFIXES = ("encoder_q.", "encoder.", "")  # MoCo, in-batch, the bare encoder
POOLINGS = {"average": "mean", "sqrt": "mean_sqrt_len_tokens", "cls": "cls"}


class ImportConfig(Config):
    """Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder."""

    source: ModelPath = Field(
        description="A model folder, or a training checkpoint of Contriever (checkpoint.pth)."
    )
    tokenizer: ModelPath | None = Field(
        None, description="Folder with the tokenizer (and config.json), if the source has none."
    )
    pooling: Literal["auto", "cls", "mean"] = Field(
        "auto", description="How vectors are pooled; auto decides by the kind of checkpoint."
    )
    similarity: Literal["auto", "dot", "cosine"] = Field(
        "auto",
        description="How vectors are compared; auto is what a sentence-transformers folder says, otherwise dot.",
    )
    max_length: PositiveInt | None = Field(
        None, description="Maximum length of a text in tokens [default: the model's maximum]."
    )


@dataclass(frozen=True)
class CheckpointInfo:
    """What kind of checkpoint was imported, and a sentence about the model."""

    kind: str
    pooling: str
    heads: tuple[str, ...]
    says: str


def import_checkpoint(config: ImportConfig, out: Path) -> CheckpointInfo:
    """Convert the source into a model folder at `out`."""
    source = config.source
    checkpoint = training_checkpoint(source)
    heads: dict[str, nn.Module] = {}
    if checkpoint is not None:
        kind = "contriever"
        encoder = contriever(checkpoint, config.tokenizer)
    else:
        kind, encoder = hf_folder(source, config.tokenizer)
        if (source / "model.pt").exists():
            heads["condenser"] = condenser_head(source / "model.pt", encoder.backbone)
    if config.pooling != "auto":
        encoder.pooling = config.pooling
    if config.similarity != "auto":
        encoder.similarity = config.similarity
    encoder.max_length = min(config.max_length or encoder.max_length, encoder.backbone.max_positions)
    encoder.save(out, heads=heads)
    return CheckpointInfo(kind, encoder.pooling, tuple(heads), encoder.describe())


def training_checkpoint(source: Path) -> Path | None:
    """The file of Contriever's training checkpoint, if the source is one."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise ModelError("there is no such checkpoint", file=source)
    file = source / "checkpoint.pth"
    return file if file.exists() and not (source / "config.json").exists() else None


def hf_folder(source: Path, tokenizer: Path | None) -> tuple[str, Encoder]:
    """A published model folder: Contriever says so in its config, or by its name, and is pooled by the mean, the
    others by CLS."""
    if (source / "modules.json").exists():
        return "sentence-transformers", Encoder.load(source)
    config = read_model_file(source / "config.json", TransformerFile)
    called = f"{source.name} {(config.model_extra or {}).get('_name_or_path')}".lower()
    is_contriever = "Contriever" in (config.architectures or []) or "contriever" in called
    words = Tokenizer.from_folder(tokenizer or source)
    pooling = "mean" if is_contriever else "cls"
    encoder = Encoder(Backbone.load(source), words, pooling=pooling, max_length=words.max_length)
    return ("contriever" if is_contriever else "condenser"), encoder


def condenser_head(path: Path, backbone: Backbone) -> CondenserHead:
    """The head of a Condenser from its side file."""
    weights = read_pickled(path)
    named = {
        key.removeprefix("c_head."): value for key, value in weights.items() if key.startswith("c_head.")
    }
    numbers = {key.partition(".")[0] for key in named}
    if not named or not all(number.isdigit() for number in numbers):
        raise ModelError("the file has no Condenser head (`c_head.N.*`)", file=path)
    head = CondenserHead(backbone, len(numbers))
    with readable(path):
        head.load_state_dict({f"layers.{key}": value for key, value in named.items()})
    return head


def contriever(path: Path, tokenizer: Path | None) -> Encoder:
    """The query encoder of a training checkpoint; its options say how vectors are made."""
    if tokenizer is None:
        raise ModelError(
            "a training checkpoint has no tokenizer",
            file=path,
            fix="name the folder of the model it was started from: --tokenizer FOLDER",
        )
    checkpoint = read_pickled(path)
    weights = encoder_weights(checkpoint.get("model", checkpoint), path)
    options = vars(checkpoint["opt"]) if isinstance(checkpoint.get("opt"), argparse.Namespace) else {}
    model = bert_of(weights, tokenizer, path)
    words = Tokenizer.from_folder(tokenizer)
    pooling = str(options.get("pooling", "average"))
    if pooling not in POOLINGS:
        raise ModelError(f"the checkpoint's pooling {pooling!r} is not known", file=path)
    unit = bool(options.get("norm_doc"))  # a query's length alone changes no ranking
    return Encoder(
        Backbone(model.eval(), fresh_mlm_head=True, source=str(path)),
        words,
        pooling=POOLINGS[pooling],
        tail=[Normalize()] if unit else [],
        max_length=words.max_length,
    )


def encoder_weights(weights: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """The encoder's own weights under their plain BERT names."""
    plain = {str(key).removeprefix("module."): value for key, value in weights.items()}
    for prefix in PREFIXES:
        if f"{prefix}embeddings.word_embeddings.weight" in plain:
            inside = {key[len(prefix) :]: value for key, value in plain.items() if key.startswith(prefix)}
            return {
                key: value for key, value in inside.items() if key.startswith(("embeddings.", "encoder."))
            }
    raise ModelError("the checkpoint contains no BERT encoder", file=path)


def bert_of(weights: dict[str, Tensor], base: Path, path: Path) -> Any:
    """A BERT with these weights; sizes are read off them, the number of heads off the base model if it says."""
    vocab, width = weights["embeddings.word_embeddings.weight"].shape
    layers = 1 + max(int(key.split(".")[2]) for key in weights if key.startswith("encoder.layer."))
    path = base / "config.json"
    config = read_model_file(path, TransformerFile) if path.exists() else TransformerFile()
    model = new_model(
        "bert",
        layers=layers,
        width=width,
        heads=config.num_attention_heads or max(1, width // 64),
        vocab_size=vocab,
        intermediate=weights["encoder.layer.0.intermediate.dense.weight"].shape[0],
        max_positions=weights["embeddings.position_embeddings.weight"].shape[0],
        dropout=0.1 if config.hidden_dropout_prob is None else config.hidden_dropout_prob,
        initializer_range=config.initializer_range or 0.02,
        pad=config.pad_token_id or 0,
    )
    with readable(path):
        buffers = {key for key in weights if key.endswith(("position_ids", "token_type_ids"))}
        model.base_model.load_state_dict({key: weights[key] for key in weights.keys() - buffers})
    return model


def read_pickled(path: Path) -> dict[str, Any]:
    """A torch file of tensors and plain values; anything else is refused, and no code is run."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), readable(path):
            weights = torch.load(path, map_location="cpu", weights_only=True)
    except ModelError as error:
        cause = error.__cause__
        if isinstance(cause, RuntimeError | EOFError) or (isinstance(cause, OSError) and not cause.filename):
            raise ModelError("the file is damaged or truncated", file=path) from error
        raise
    if not isinstance(weights, dict):
        raise ModelError("the file does not contain named weights", file=path)
    return cast(dict[str, Any], weights)


def run(config: ImportConfig, folder: Folder) -> None:
    """Convert the checkpoint, and write what kind it was to `import.json`."""
    info = import_checkpoint(config, folder.path)
    folder.write_json("import.json", asdict(info))
    head = ", with its head" if info.heads else ""
    say(f"{config.source} is a {info.kind} checkpoint{head}: {info.says}")


STAGE = Stage(
    "import",
    ImportConfig,
    run,
    "liebig import ~/models/co-condenser-marco --out runs/cocondenser",
    positional="source",
)
