"""One tokenizer for everything: any Hugging Face fast tokenizer, or one trained on the corpus.

A thin value around the `tokenizers` library, which reads a description and never runs code from a folder.
`encode_batch` gives ids without special tokens; `wrap` and `wrap_pair` add them as the tokenizer's own template
does (read off once, by encoding a probe), so that token stores hold bare text and views stay index arithmetic.
A text cannot name a special token: "[MASK]" in a document is a bracket, a word and a bracket. What `save` writes,
`AutoTokenizer.from_pretrained` loads with the same ids (for such texts, with `split_special_tokens=True`).
Cost: the library's own, about half a million tokens a second and core; three times that for BERT's and RoBERTa's
tokenizers (`word_cache.py`), and ten million for much text in ASCII and BERT's (`wordpiece.py`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from tokenizers import Tokenizer as Core, normalizers
from tokenizers.models import Unigram, WordLevel, WordPiece

from liebig.base.compiled import HAS_NUMBA
from liebig.base.errors import DataError, ModelError
from liebig.base.json_file import FileModel, read_json
from liebig.base.workspace import stamp_of
from liebig.ragged import Ragged
from liebig.text import train_tokenizer as training
from liebig.text.expressions import expressions, is_safe
from liebig.text.word_cache import Memo, described, scheme_of
from liebig.text.wordpiece import CompiledWordPiece, packed

MANY = 200_000  # characters at a time for which setting up the kernel pays: that takes a tenth of a second
SOME = 4_000  # and for which calling it pays, once it is there

# Which pieces continue a word. WordPiece marks a piece inside a word ("##ing"); byte-level BPE and SentencePiece mark
# the space before a word ("Ġthe", "▁the"), so there an unmarked piece continues. In scripts without spaces (Han, kana,
# Thai, …) that would make one endless word, so a piece that begins with such a character begins a word. The first piece
# of a text always begins a word; the table cannot know which piece that is, so callers handle it.

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x312F),  # radicals, ideographic punctuation, kana, bopomofo
    (0x31A0, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0xFF00, 0xFFEF),  # full-width forms
    (0x20000, 0x3FFFF),
)
_LEADS = range(0xE3, 0xEA)  # first bytes of U+3000 … U+9FFF in UTF-8
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def continues(core: Core) -> NDArray[np.bool_]:
    """One flag for each id: this piece belongs to the word of the piece before it."""
    vocab = core.get_vocab(with_added_tokens=True)
    table = np.zeros(max(vocab.values()) + 1, dtype=np.bool_)
    test = _test(core)
    for piece, index in core.get_vocab(with_added_tokens=False).items():
        table[index] = test(piece)
    table[list(core.get_added_tokens_decoder())] = False
    return table


def _test(core: Core) -> Any:
    """The rule of this kind of tokenizer."""
    model = core.model
    if isinstance(model, WordPiece):
        return lambda piece: piece.startswith(model.continuing_subword_prefix)
    if isinstance(model, WordLevel):
        return lambda piece: False
    around = json.dumps([described(core.pre_tokenizer), described(core.decoder)])
    if '"type": "ByteLevel"' in around:
        return _byte_level_continues
    if (
        isinstance(model, Unigram)
        or '"type": "Metaspace"' in around
        or "▁" in json.dumps(described(core.normalizer), ensure_ascii=False)
    ):
        return _spaced_continues
    raise ModelError(
        f"whole words cannot be recognised with this {type(model).__name__} tokenizer: it marks neither the "
        "pieces inside a word (WordPiece) nor the space before one (byte-level BPE, SentencePiece)"
    )


def _spaced_continues(piece: str) -> bool:
    as_byte = _BYTE_PIECE.fullmatch(piece)
    if as_byte:
        return _bytes_continue(bytes([int(as_byte[1], 16)]))
    return not piece.startswith("▁") and not _unspaced(piece[:1])


def _byte_level_continues(piece: str) -> bool:
    return _bytes_continue(bytes(_BYTES[c] for c in piece if c in _BYTES))


def _bytes_continue(raw: bytes) -> bool:
    if raw[:1] in (b" ", b"\t", b"\n", b"\r"):
        return False
    start = raw[:4].decode("utf-8", errors="replace")[:1]
    if start == "\ufffd":  # half a character: its first byte tells ideographs and kana
        return raw[:1] == b"" or raw[0] not in _LEADS
    return not _unspaced(start)


def _unspaced(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in _UNSPACED) if char else False


def _byte_table() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE: visible Latin-1 stands for itself, the rest for 256, 257, …"""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_table()


# Reading a tokenizer from a model folder: tokenizer.json if it exists, else vocab.txt (BERT). Of other files, such as
# RoBERTa's vocab.json and merges.txt or a SentencePiece model, the error says how to convert them. For BERT's classes,
# tokenizer_config.json overrides the lowercasing in tokenizer.json, as in transformers.

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


Kind = Literal["wordpiece", "bpe"]
ROLES = ("cls", "sep", "mask", "pad", "unk")


class Template(NamedTuple):
    """Special tokens around one text, and around and between two, with the segment of every token of a pair."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    segments: tuple[int, int, int, int, int]  # before, first text, between, second text, after


class Tokenizer:
    """Text to ids and back."""

    def __init__(self, loaded: TokenizerParts) -> None:
        self.core = loaded.core
        self.core.no_truncation()
        self.core.no_padding()
        self.core.encode_special_tokens = True  # "[MASK]" written in a document is text, not a command
        self._config = dict(loaded.config)
        self._roles = dict(loaded.roles)
        self._words: CompiledWordPiece | None = None
        self._making = Lock()

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The fast tokenizer of a model folder: from tokenizer.json or vocab.txt."""
        files = sorted(Path(path).glob("*.*"))
        return _loaded(Path(path), *((file.name, *stamp_of(file.stat())) for file in files))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: Kind = "wordpiece",
        vocab_size: int = 30_000,
        lowercase: bool = True,
        max_length: int = 512,
    ) -> Tokenizer:
        """A vocabulary learned from `texts`, which are read once; the same texts give the same bytes."""
        if kind == "wordpiece":
            core = training.train_wordpiece(texts, vocab_size, lowercase)
        elif kind == "bpe":
            core = training.train_bpe(texts, vocab_size, lowercase)
        else:
            raise DataError(f"there is no tokenizer kind {kind!r}", fix="use wordpiece or bpe")
        return cls(TokenizerParts.named(core, max_length))

    def save(self, folder: str | Path, *, max_length: int | None = None) -> None:
        """tokenizer.json, tokenizer_config.json and special_tokens_map.json, as `AutoTokenizer` reads them.

        `max_length` is what the files say of the longest sequence, if not what they said before.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.core.to_str(pretty=True), encoding="utf-8")
        specials = {f"{role}_token": self.core.id_to_token(i) for role, i in self._roles.items()}
        config = self._config | ({"model_max_length": max_length} if max_length else {})
        for name, content in (("tokenizer_config", config), ("special_tokens_map", specials)):
            text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
            (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without special tokens; never truncated."""
        return self.encode_packed(texts).to_lists()

    def encode_packed(self, texts: Sequence[str]) -> Ragged:
        """The same in one flat array: the fastest way to many ids."""
        try:
            return self._encode(texts)
        except (UnicodeEncodeError, TypeError):  # which of them the library raises depends on its version
            return self._encode([training.well_formed(text) for text in texts])

    def _encode(self, texts: Sequence[str]) -> Ragged:
        if self.compiles and sum(map(len, texts)) >= (MANY if self._words is None else SOME):
            return self._kernel().encode(texts)
        return packed(self._rows(texts))

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        if self._memo is not None:
            return self._memo.encode(texts)
        encodings = self.core.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [array("i", encoding.ids).tobytes() for encoding in encodings]
        if "unk" in self._roles and self.special[np.frombuffer(b"".join(rows), np.int32)].any():
            return [self._plain(row) for row in rows]
        return rows

    @cached_property
    def compiles(self) -> bool:
        """Whether much text is cut into pieces by a compiled kernel, faster on one core than the library on many."""
        return HAS_NUMBA and self._memo is not None and isinstance(self.core.model, WordPiece)

    def _kernel(self) -> CompiledWordPiece:
        """Made once, whichever thread needs it first."""
        assert self._memo is not None, "what compiles has a table of words"
        with self._making:
            self._words = self._words or CompiledWordPiece(self.core, self._memo)
        return self._words

    @cached_property
    def threaded(self) -> Tokenizer:
        """The same without a table of words: the library's threads share the texts of a batch, which takes more of the
        processor than the table and, with many cores, less time.
        """
        if self.compiles:
            return self
        made = copy.copy(self)
        made.__dict__["_memo"] = None
        return made

    def _plain(self, row: bytes) -> bytes:
        """SentencePiece's models hold special tokens as pieces, so that a text can spell one: it is unknown."""
        ids = np.frombuffer(row, np.int32)
        return np.where(self.special[ids], np.int32(self.unk), ids).tobytes()

    @cached_property
    def _memo(self) -> Memo | None:
        scheme = scheme_of(self.core)
        return None if scheme is None else Memo(self.core, scheme)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters of each token of `encode(text)`."""
        encoding = self.core.encode(training.well_formed(text), add_special_tokens=False)
        return [(int(a), int(b)) for a, b in encoding.offsets]

    def decode(self, ids: Sequence[int] | NDArray[Any], skip_special: bool = True) -> str:
        return str(self.core.decode([int(i) for i in ids], skip_special_tokens=skip_special))

    def tokens(self, ids: Sequence[int] | NDArray[Any]) -> list[str]:
        """The pieces as the vocabulary writes them ("##ing", "Ġthe")."""
        return [str(self.core.id_to_token(int(i))) for i in ids]

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """One text with its special tokens: [CLS] a [SEP]."""
        return [*self.template.before, *ids, *self.template.after]

    def wrap_pair(self, a: Sequence[int], b: Sequence[int]) -> tuple[list[int], list[int]]:
        """Two texts with their special tokens, and the segment of every token: [CLS] a [SEP] b [SEP]."""
        parts = (self.template.before, a, self.template.between, b, self.template.after)
        ids = [i for part in parts for i in part]
        segments = [s for part, s in zip(parts, self.template.segments) for _ in part]
        return ids, segments

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.core.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def max_length(self) -> int | None:
        """The longest sequence its model takes, special tokens counted; None where the folder does not say."""
        length = self._config.get("model_max_length")
        return int(length) if length is not None and length < 10**9 else None

    @property
    def input_names(self) -> list[str] | None:
        """What of it a model takes, such as token_type_ids; None where the folder leaves that to a class."""
        names = self._config.get("model_input_names")
        return [str(name) for name in names] if isinstance(names, list) else None

    @property
    def cuts_left(self) -> bool:
        """Whether its folder says that texts which are too long lose their beginning."""
        return self._config.get("truncation_side") == "left"

    @property
    def cls(self) -> int:
        return self._role("cls")

    @property
    def sep(self) -> int:
        return self._role("sep")

    @property
    def mask(self) -> int:
        return self._role("mask")

    @property
    def pad(self) -> int:
        return self._role("pad")

    @property
    def unk(self) -> int:
        return self._role("unk")

    def _role(self, role: str) -> int:
        if role not in self._roles:
            raise ModelError(
                f"this tokenizer has no {role} token", fix="use the tokenizer of an encoder such as BERT"
            )
        return self._roles[role]

    @cached_property
    def special(self) -> NDArray[np.bool_]:
        """One flag for each id: a special token, which is never masked nor drawn as a replacement."""
        table = np.zeros(self.vocab_size, dtype=np.bool_)
        added = self.core.get_added_tokens_decoder()
        table[[i for i, token in added.items() if token.special]] = True
        table[list(self._roles.values())] = True
        return table

    @cached_property
    def continues(self) -> NDArray[np.bool_]:
        """One flag for each id: this piece belongs to the word of the piece before it."""
        return continues(self.core)

    @cached_property
    def additive(self) -> bool:
        """Whether the ids of a text are those of its sentences one after the other.

        True of BERT's pre-tokeniser, which never joins what a space or punctuation parts; false where the first
        word of a text looks different from the same word later (byte-level BPE) or spaces are pieces.
        """
        parted = json.dumps(described(self.core.pre_tokenizer))
        return isinstance(self.core.model, WordPiece) and '"BertPreTokenizer"' in parted

    @cached_property
    def template(self) -> Template:
        """Read off a probe: what surrounds a text, and two texts, when the library adds special tokens."""
        bare = self.core.encode("a", add_special_tokens=False).ids
        one = self.core.encode("a", add_special_tokens=True).ids
        two = self.core.encode("a", "a", add_special_tokens=True)
        n, start = len(bare), _find(bare, one, 0)
        before, after = tuple(one[:start]), tuple(one[start + n :])
        second = _find(bare, two.ids, start + n)
        segments = two.type_ids
        between = tuple(two.ids[start + n : second])
        return Template(
            before=before,
            after=after,
            between=between,
            segments=(
                segments[0],
                segments[start],
                segments[start + n] if between else 0,
                segments[second],
                segments[-1],
            ),
        )

    @cached_property
    def digest(self) -> str:
        """sha256 of the tokenizer's description: equal digests give equal ids."""
        return hashlib.sha256(self.core.to_str().encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} pieces, {self.digest[:8]})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self.core.to_str(), self._config, self._roles)


def _revive(described: str, config: Mapping[str, Any], roles: Mapping[str, int]) -> Tokenizer:
    return Tokenizer(TokenizerParts(Core.from_str(described), config, roles))


def _find(part: list[int], whole: list[int], start: int) -> int:
    """Where `part` lies in `whole`, from `start` on."""
    for i in range(start, len(whole) - len(part) + 1):
        if whole[i : i + len(part)] == part:
            return i
    raise ModelError("the special tokens of this tokenizer change the text they surround")


@lru_cache(maxsize=2)
def _loaded(folder: Path, *stamps: tuple[str | int, ...]) -> Tokenizer:
    """The tokenizer of a folder, while its files are the same: every stage of an update asks for it."""
    return Tokenizer(load(folder))
