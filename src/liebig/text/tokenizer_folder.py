"""Reading a tokenizer from a model folder: tokenizer.json if it exists, else vocab.txt (BERT).

Of other files, such as RoBERTa's vocab.json and merges.txt or a SentencePiece model, the error says how to convert
them. For BERT's classes, tokenizer_config.json overrides the lowercasing in tokenizer.json, as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from tokenizers import Tokenizer as Core, normalizers

from liebig.base.errors import ModelError
from liebig.base.json_file import FileModel, read_json
from liebig.text import train_tokenizer as training
from liebig.text.expressions import expressions, is_safe
from liebig.text.word_cache import described

_NAMES = {
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
}
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
_FIX = "correct the file, or save the tokenizer again"
_SLOW = ("vocab.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model")


class TokenizerFile(FileModel):
    """`tokenizer_config.json`, as far as ids depend on it."""

    model_max_length: Annotated[int | float, Field(ge=1)] | None = None
    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None


class TokenizerParts(NamedTuple):
    """A tokenizer, its tokenizer_config.json, and the ids of its special tokens by role."""

    core: Core
    config: Mapping[str, Any]
    roles: Mapping[str, int]

    @classmethod
    def named(cls, core: Core, max_length: int) -> TokenizerParts:
        """With the configuration a tokenizer without one gets."""
        roles = find_roles(core, {})
        tokens = {f"{role}_token": core.id_to_token(i) for role, i in roles.items()}
        segments = ["token_type_ids"] if "[CLS]" in tokens.values() else []
        return cls(
            core,
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": max_length,
                "model_input_names": ["input_ids", *segments, "attention_mask"],
                "clean_up_tokenization_spaces": False,
                **tokens,
            },
            roles,
        )


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has files that `load` reads."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))


def load(folder: Path) -> TokenizerParts:
    """The tokenizer of a folder, whichever files describe it."""
    if not folder.is_dir():
        raise ModelError("there is no such tokenizer folder", file=folder)
    path = folder / "tokenizer_config.json"
    if path.exists():
        read_json(path, TokenizerFile, error=ModelError, fix=_FIX)
    config = _json(path)
    if (folder / "tokenizer.json").exists():
        core = _described(folder / "tokenizer.json")
        _follow(core, config)
        return TokenizerParts(
            core, config, find_roles(core, {**_json(folder / "special_tokens_map.json"), **config})
        )
    if (folder / "vocab.txt").exists():
        core = _from_vocabulary(folder / "vocab.txt", config)
    else:
        raise _unreadable(folder)
    return TokenizerParts.named(core, int(min(config.get("model_max_length") or 512, 10**9)))


def find_roles(core: Core, config: Mapping[str, Any]) -> dict[str, int]:
    """The special tokens by role: as configured, else by their usual names."""
    roles = {}
    for role, usual in _NAMES.items():
        given = config.get(f"{role}_token")
        name = given.get("content") if isinstance(given, dict) else given
        # One by one: the whole vocabulary as a dictionary takes half as long as reading the file.
        ids = map(core.token_to_id, [name] if isinstance(name, str) else usual)
        first = next((i for i in ids if i is not None), None)
        if first is not None:
            roles[role] = int(first)
    return roles


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is missing."""
    return read_json(path, dict[str, Any], error=ModelError, fix=_FIX) if path.exists() else {}


def _described(path: Path) -> Core:
    try:
        core = Core.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise ModelError(
            f"this does not describe a tokenizer that can be read ({error})", file=path
        ) from error
    for part in (core.normalizer, core.pre_tokenizer, core.decoder):
        for expression in expressions(described(part)):
            if not is_safe(expression):
                raise ModelError(
                    f"the expression {expression[:60]!r} can take exponential time on some texts",
                    file=path,
                    fix="use a tokenizer without nested repetitions",
                )
    return core


def _follow(core: Core, config: Mapping[str, Any]) -> None:
    """BERT's classes take lowercasing from tokenizer_config.json, whatever tokenizer.json says."""
    name = str(config.get("tokenizer_class", "")).removesuffix("Fast")
    if name in _BERT_CLASSES and isinstance(core.normalizer, normalizers.BertNormalizer):
        core.normalizer = _bert_normalizer(config)


def _bert_normalizer(config: Mapping[str, Any]) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=bool(config.get("do_lower_case", True)),
    )


def _from_vocabulary(path: Path, config: Mapping[str, Any]) -> Core:
    lines = path.read_text(encoding="utf-8").split("\n")
    vocab = {line.rstrip("\r"): i for i, line in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in vocab]
    if missing:
        raise ModelError(f"this vocabulary lacks {', '.join(missing)}", file=path)
    return training.build_wordpiece(vocab, _bert_normalizer(config))


def _unreadable(folder: Path) -> ModelError:
    if any((folder / name).exists() for name in _SLOW):
        return ModelError(
            "this folder has a tokenizer without tokenizer.json, which cannot be read directly",
            file=folder,
            fix="convert it once with transformers: "
            f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})",
        )
    return ModelError(
        "this folder contains no tokenizer",
        file=folder,
        fix="give a folder with tokenizer.json or vocab.txt",
    )
