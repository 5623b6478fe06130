"""`liebig import`: a published checkpoint of Condenser, coCondenser or Contriever becomes a model folder.

Condenser and coCondenser are BERT folders whose head, if it was published, lies in `model.pt` (`c_head.N.*`); vectors
are the CLS. Contriever is a BERT folder without pooler; vectors are means. Pickled files are read by torch's restricted
reader only, which accepts tensors and plain values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import Field, PositiveInt
from torch import nn

from liebig.base.config import Config, ModelPath
from liebig.base.errors import ModelError
from liebig.base.pipeline import Stage
from liebig.base.progress import say
from liebig.base.workspace import Folder
from liebig.methods.condenser import CondenserHead
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.loading import readable
from liebig.model.settings import TransformerFile, read_model_file
from liebig.text.tokenizer import Tokenizer


class ImportConfig(Config):
    """Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder."""

    source: ModelPath = Field(description="A model folder.")
    tokenizer: ModelPath | None = Field(
        None, description="Folder with the tokenizer, if the source has none."
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
    if not source.is_dir():
        raise ModelError("there is no such folder", file=source, fix="name the folder of a published model")
    heads: dict[str, nn.Module] = {}
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


def read_pickled(path: Path) -> dict[str, Any]:
    """A torch file of tensors and plain values; anything else is refused, and no code is run."""
    try:
        with readable(path):
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
