"""Model folders: written so that transformers and sentence-transformers load them, read from either.

A folder holds the backbone with its masked-LM head (`config.json`, `model.safetensors`), the tokenizer, the
old-style sentence-transformers files that say how vectors are made (every version of that library reads them), a
short model card, and apart from all that `layout.json` (title rule and lengths, `text/layout.py`) and
`heads.safetensors`, with which pre-training goes on. Files are written beside and moved into place, `config.json` last,
so a folder without it is not a model. Reading knows four modules by name, imports nothing a folder names, and refuses
the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from liebig.base import workspace
from liebig.base.errors import ModelError
from liebig.base.hub import model_folder
from liebig.model.backbone import Backbone
from liebig.model.encoder import Dense, Encoder, Normalize, Similarity
from liebig.model.loading import quiet, read_json, readable
from liebig.text.layout import FILE as LAYOUT, Layout
from liebig.text.tokenizer import Tokenizer

HEADS = "heads.safetensors"


def save_heads(path: Path, heads: Mapping[str, nn.Module]) -> None:
    """Writes the heads; each can `describe` itself."""
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, head in heads.items()
        for key, value in head.state_dict().items()
    }
    kinds = {name: head.describe() for name, head in heads.items()}  # type: ignore[operator]  # heads have it
    save_file(tensors, path, metadata={"format": "pt", "heads": json.dumps(kinds)})


def read_kinds(folder: Path) -> dict[str, dict[str, Any]]:
    """What heads a folder has: name -> kind and sizes; none without the file."""
    path = folder / HEADS
    if not path.exists():
        return {}
    with readable(path), safe_open(path, framework="pt") as file:
        kinds: dict[str, dict[str, Any]] = json.loads((file.metadata() or {}).get("heads", "{}"))
    return kinds


def load_heads(
    folder: Path, backbone: Backbone, classes: Mapping[str, Callable[..., nn.Module]]
) -> dict[str, nn.Module]:
    """The heads of a folder, built on the backbone; `classes` by kind are those of `methods.head_classes()`."""
    path = folder / HEADS
    heads = {}
    for name, sizes in read_kinds(folder).items():
        kind = sizes.pop("kind", None)
        if kind not in classes:
            raise ModelError(f"the head {name!r} is of unknown kind {kind!r}", file=path)
        with readable(path):
            heads[name] = classes[kind](backbone, **sizes)
            load_head(path, name, heads[name])
    return heads


def load_head(path: Path, name: str, head: nn.Module) -> None:
    """Fills a head with the weights of that name."""
    with readable(path), safe_open(path, framework="pt") as file:
        keys = [key for key in file.keys() if key.startswith(name + ".")]  # noqa: SIM118, not a mapping
        weights = {key[len(name) + 1 :]: file.get_tensor(key) for key in keys}
        head.load_state_dict(weights)


POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# What `save_encoder` writes beside weights and tokenizer; other libraries do without some of them.
OWN_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
SMALL = 4 << 20  # bytes of a file whose hash is checked whenever a model is loaded; larger ones by their size
MODULES = ("Transformer", "Pooling", "Dense", "Normalize")


def save_encoder(encoder: Encoder, folder: Path, heads: Mapping[str, nn.Module]) -> None:
    """Writes the whole folder; files of the same names are replaced, others stay."""
    with written_beside(folder) as beside:
        write_backbone(encoder.backbone, beside)
        encoder.tokenizer.save(beside)
        write_modules(encoder, beside)
        encoder.layout.save(beside)
        (beside / "README.md").write_text(model_card(encoder), encoding="utf-8")
        if heads:
            save_heads(beside / HEADS, heads)
        else:
            (folder / HEADS).unlink(missing_ok=True)


@contextmanager
def written_beside(folder: Path) -> Iterator[Path]:
    """A folder whose files are moved into `folder` when all are written."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
    try:
        yield beside
        move_into(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_backbone(backbone: Backbone, folder: Path) -> None:
    with quiet():
        backbone.model.save_pretrained(str(folder), safe_serialization=True)


def write_modules(encoder: Encoder, folder: Path) -> None:
    """The sentence-transformers files, old style."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [(f"{i}_{type(part).__name__}", type(part).__name__) for i, part in enumerate(encoder.tail, 2)]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    settings = {"max_seq_length": encoder.max_length, "do_lower_case": encoder.lowercase}
    write_json(folder / "sentence_bert_config.json", settings)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "prompts": encoder.prompts,
            "default_prompt_name": encoder.default_prompt,
            "similarity_fn_name": encoder.similarity,
        },
    )
    pooling: dict[str, Any] = {"word_embedding_dimension": encoder.backbone.width}
    pooling |= {key: kind == encoder.pooling for key, kind in POOLING_KEYS.items()}
    write_json(folder / "1_Pooling" / "config.json", pooling | {"include_prompt": encoder.pool_prompt})
    for (path, _), part in zip(modules[2:], encoder.tail, strict=True):
        write_tail(part, folder / path)


def write_tail(part: nn.Module, folder: Path) -> None:
    folder.mkdir()
    if isinstance(part, Dense):
        linear = part.linear
        settings = {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": part.activation,
        }
        write_json(folder / "config.json", settings)
        weights = {
            f"linear.{name}": value.detach().cpu().contiguous() for name, value in linear.state_dict().items()
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        write_json(folder / "config.json", {})


def model_card(encoder: Encoder) -> str:
    """A short README with what a reader must know to use the model rightly."""
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, liebig]
---

# A dense retriever made with Liebig

{encoder.describe()}

{usage(encoder)}"""


def titles(encoder: Encoder) -> str:
    """How titles stand before texts, where it is not a space and the title is not left out by other tools anyway."""
    if encoder.layout.title == "separator":
        sep = encoder.tokenizer.tokens([encoder.tokenizer.sep])[0]
        return f'- passages with a title are read as `f"{{title}} {sep} {{text}}"`\n'
    return "- passages are read without their titles\n" if encoder.layout.title == "no" else ""


def usage(encoder: Encoder) -> str:
    """How the folder's vectors are made and compared, for its card."""
    prompts = "".join(f"- prompt `{name}`: `{text!r}`\n" for name, text in encoder.prompts.items())
    return f"""- pooling: {encoder.pooling}
- similarity: {encoder.similarity}
- maximum length: {encoder.max_length} tokens, special tokens included
{titles(encoder)}{prompts}
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder")
vectors = model.encode(["a text"])
```
"""


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def move_into(beside: Path, folder: Path) -> None:
    """Moves every file into place, synced, `config.json` of the folder last."""
    files = sorted(path for path in beside.rglob("*") if path.is_file())
    files.sort(key=lambda path: path == beside / "config.json")
    for path in files:
        target = folder / path.relative_to(beside)
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)


def load_encoder(source: str | Path, *, pooling: str | None = None) -> Encoder:
    """An encoder from a folder or hub name; without `modules.json` it is pooled by CLS unless said otherwise."""
    folder = model_folder(source)
    check_files(folder)
    if not (folder / "modules.json").exists():
        backbone = Backbone.load(folder)
        return Encoder(
            backbone,
            tokenizer := Tokenizer.from_folder(folder),
            pooling=pooling or "cls",
            max_length=tokenizer.max_length,
        )
    modules = read_modules(folder)
    settings = transformer_settings(modules[0][1])
    kind, pool_prompt = read_pooling(modules[1][1])
    model = read_json(path) if (path := folder / "config_sentence_transformers.json").exists() else {}
    tokenizer = Tokenizer.from_folder(modules[0][1])
    return Encoder(
        Backbone.load(modules[0][1]),
        tokenizer,
        pooling=pooling or kind,
        tail=[read_tail(name, path) for name, path in modules[2:]],
        max_length=settings.get("max_seq_length") or tokenizer.max_length,
        prompts={name: text for name, text in (model.get("prompts") or {}).items() if text},
        default_prompt=model.get("default_prompt_name"),
        similarity=read_similarity(model, folder),
        lowercase=bool(settings.get("do_lower_case")),
        pool_prompt=pool_prompt,
        layout=Layout.load(folder),
    )


def check_files(folder: Path) -> None:
    """Refuse a folder that has lost a file: without one of these, vectors would be others, and nothing would say so."""
    workspace.verify_part(folder, largest=SMALL)
    lost = [name for name in OWN_FILES if not (folder / name).is_file()]
    if (folder / LAYOUT).is_file() and lost:
        raise ModelError(f"{lost[0]} is missing", file=folder, fix="restore the file, or train again")


def length_of_use(folder: Path) -> int | None:
    """The longest text a model's folder is used with, without loading the model; None where it does not say."""
    listed = (folder / "modules.json").is_file()
    inside = read_modules(folder)[0][1] if listed else folder
    length = transformer_settings(inside).get("max_seq_length") if listed else None
    return int(length) if length else Tokenizer.from_folder(inside).max_length


def read_modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules by name with their folders: a Transformer, a Pooling, then Dense and Normalize in any order."""
    path = folder / "modules.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        entries = [(str(entry["type"]), str(entry["path"])) for entry in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("modules.json does not list modules", file=path) from error
    found = []
    for kind, place in entries:
        name = kind.rpartition(".")[2]
        if not kind.startswith("sentence_transformers.") or name not in MODULES:
            raise ModelError(
                f"the module {kind!r} is not supported", file=path, fix=f"use {', '.join(MODULES)}"
            )
        inside = (folder / place).resolve()
        if not inside.is_relative_to(folder.resolve()):
            raise ModelError(f"the module folder {place!r} lies outside the model folder", file=path)
        found.append((name, folder / place))
    names = [name for name, _ in found]
    if names[:2] != ["Transformer", "Pooling"] or set(names[2:]) & {"Transformer", "Pooling"}:
        raise ModelError(f"the modules {names} do not turn a text into one vector", file=path)
    return found


def transformer_settings(folder: Path) -> dict[str, Any]:
    """`sentence_bert_config.json` under any of its names; newer files that change the text are refused."""
    files = sorted(folder.glob("sentence_*_config.json"))
    settings = read_json(files[0]) if files else {}
    if (
        settings.get("query_expansion")
        or settings.get("transformer_task", "feature-extraction") != "feature-extraction"
    ):
        raise ModelError("the model's Transformer module does more than encode text", file=files[0])
    return settings


def read_pooling(folder: Path) -> tuple[str, bool]:
    """The one pooling kind, and whether a prompt's tokens are pooled with the text."""
    config = read_json(folder / "config.json")
    named = config.get("pooling_mode")
    if named is None:
        kinds = [kind for key, kind in POOLING_KEYS.items() if config.get(key)] or ["mean"]
    else:
        kinds = [named] if isinstance(named, str) else list(named)
    if len(kinds) != 1 or kinds[0] not in POOLING_KEYS.values():
        raise ModelError(f"the pooling {kinds} is not supported", file=folder / "config.json")
    return kinds[0], bool(config.get("include_prompt", True))


def read_tail(name: str, folder: Path) -> nn.Module:
    """A Dense or Normalize module."""
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    places = {config.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    if places != {"sentence_embedding"} or config.get("use_residual"):
        raise ModelError(f"this form of {name} is not supported", file=folder / "config.json")
    if name == "Normalize":
        return Normalize()
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    with readable(folder):
        dense = Dense(
            int(config["in_features"]),
            int(config["out_features"]),
            bool(config.get("bias", True)),
            activation,
        )
        dense.load_state_dict(read_weights(folder))
    return dense


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Weights of a small module; pickled ones by torch's restricted reader only."""
    if (folder / "model.safetensors").exists():
        return load_file(folder / "model.safetensors")
    return cast(
        dict[str, Tensor], torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    )


def read_similarity(model: Mapping[str, Any], folder: Path) -> Similarity:
    """Cosine where the folder does not say, as in sentence-transformers."""
    name = model.get("similarity_fn_name") or "cosine"
    if name not in ("dot", "cosine"):
        raise ModelError(f"the similarity {name!r} is not supported", file=folder, fix="use dot or cosine")
    return cast(Similarity, name)
