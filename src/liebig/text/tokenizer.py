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
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Core
from tokenizers.models import WordPiece

from liebig.base.compiled import has_numba
from liebig.base.errors import DataError, ModelError
from liebig.base.hashes import stamp_of
from liebig.ragged import Ragged
from liebig.text import train_tokenizer as training
from liebig.text.continuations import continues
from liebig.text.tokenizer_folder import TokenizerParts, load
from liebig.text.word_cache import Memo, described, scheme_of
from liebig.text.wordpiece import CompiledWordPiece, packed

MANY = 200_000  # characters at a time for which setting up the kernel pays: that takes a tenth of a second
SOME = 4_000  # and for which calling it pays, once it is there


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

    @property
    def compiles(self) -> bool:
        """Whether much text is cut into pieces by a compiled kernel, faster on one core than the library on many."""
        return has_numba() and self._memo is not None and isinstance(self.core.model, WordPiece)

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
