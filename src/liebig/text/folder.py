"""Read a tokenizer from a model folder: which file describes it, and which tokens have which role.

tokenizer.json is taken as it is; a folder of the older kind with vocab.txt (BERT) or vocab.json and merges.txt
(RoBERTa) is rebuilt; a SentencePiece model alone cannot be read without code, and the error says how to
convert it. Where tokenizer_config.json contradicts tokenizer.json about lowercasing, it wins for BERT's
classes, because it does in transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Core, normalizers

from liebig.errors import ModelError
from liebig.text import training

_NAMES = {
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
}
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
_SLOW = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model")


class Loaded(NamedTuple):
    """A tokenizer, its tokenizer_config.json, and the ids of its special tokens by role."""

    core: Core
    config: Mapping[str, Any]
    roles: Mapping[str, int]

    @classmethod
    def named(cls, core: Core, max_length: int) -> Loaded:
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
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json"))


def load(folder: Path) -> Loaded:
    """The tokenizer of a folder, whichever files describe it."""
    if not folder.is_dir():
        raise ModelError("there is no such tokenizer folder", file=folder)
    config = _json(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").exists():
        core = _described(folder / "tokenizer.json")
        _follow(core, config)
        return Loaded(core, config, find_roles(core, {**_json(folder / "special_tokens_map.json"), **config}))
    if (folder / "vocab.txt").exists():
        core = _from_vocabulary(folder / "vocab.txt", config)
    elif (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        core = _from_merges(folder, config)
    else:
        raise _unreadable(folder)
    length = config.get("model_max_length", 512)
    return Loaded.named(core, int(min(length, 10**9)) if isinstance(length, int | float) else 512)


def find_roles(core: Core, config: Mapping[str, Any]) -> dict[str, int]:
    """The special tokens by role: as configured, else by their usual names."""
    vocab = core.get_vocab(with_added_tokens=True)
    roles = {}
    for role, usual in _NAMES.items():
        given = config.get(f"{role}_token")
        name = given.get("content") if isinstance(given, dict) else given
        names = [name] if isinstance(name, str) else [u for u in usual if u in vocab]
        if names and names[0] in vocab:
            roles[role] = int(vocab[names[0]])
    return roles


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is missing."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"this is not JSON ({error})", file=path) from error
    if not isinstance(found, dict):
        raise ModelError("this should be a JSON object", file=path)
    return found


def _described(path: Path) -> Core:
    try:
        return Core.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise ModelError(f"this describes no tokenizer that can be read ({error})", file=path) from error


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


def _from_merges(folder: Path, config: Mapping[str, Any]) -> Core:
    vocab = _json(folder / "vocab.json")
    missing = [token for token in ("<s>", "</s>") if token not in vocab]
    if missing:
        raise ModelError(f"this vocabulary lacks {', '.join(missing)}", file=folder / "vocab.json")
    merges = []
    for number, line in enumerate((folder / "merges.txt").read_text(encoding="utf-8").split("\n"), start=1):
        pair = line.rstrip("\r").split(" ")
        if line.strip() == "" or (number == 1 and line.startswith("#version")):
            continue
        if len(pair) != 2:
            raise ModelError("a merge has two pieces", file=folder / "merges.txt", line=number)
        merges.append((pair[0], pair[1]))
    return training.build_bpe(vocab, merges, add_prefix_space=bool(config.get("add_prefix_space", False)))


def _unreadable(folder: Path) -> ModelError:
    if any((folder / name).exists() for name in _SLOW):
        return ModelError(
            "this folder holds a SentencePiece model only, which cannot be read directly",
            file=folder,
            fix="convert it once with transformers: "
            f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})",
        )
    return ModelError(
        "this folder holds no tokenizer",
        file=folder,
        fix="give a folder with tokenizer.json, vocab.txt, or vocab.json and merges.txt",
    )
