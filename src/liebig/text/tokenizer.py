"""One tokenizer for everything: any Hugging Face fast tokenizer, or one trained on the corpus.

A thin value around the `tokenizers` library, which reads a description and never runs code from a folder.
`encode_batch` gives ids without special tokens; `wrap` and `wrap_pair` add them as the tokenizer's own template
does (read off once, by encoding a probe), so that token stores hold bare text and views stay index arithmetic.
A text cannot name a special token: "[MASK]" in a document is a bracket, a word and a bracket. What `save` writes,
`AutoTokenizer.from_pretrained` loads with the same ids (for such texts, with `split_special_tokens=True`).
Cost: the library's own, about half a million tokens a second and core; three times that for BERT's and RoBERTa's
tokenizers (`memo.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Core

from liebig.errors import DataError, ModelError
from liebig.text import pieces, training
from liebig.text.folder import Loaded, load
from liebig.text.memo import Memo, scheme_of
from liebig.text.rows import Rows, wrapped

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

    def __init__(self, loaded: Loaded) -> None:
        self.core = loaded.core
        self.core.no_truncation()
        self.core.no_padding()
        self.core.encode_special_tokens = True  # "[MASK]" written in a document is text, not a command
        self._config = dict(loaded.config)
        self._roles = dict(loaded.roles)

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The fast tokenizer of a model folder: tokenizer.json, or the older files (`folder.py`)."""
        return cls(load(Path(path)))

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
        return cls(Loaded.named(core, max_length))

    def save(self, folder: str | Path) -> None:
        """tokenizer.json, tokenizer_config.json and special_tokens_map.json, as `AutoTokenizer` reads them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.core.to_str(pretty=True), encoding="utf-8")
        specials = {f"{role}_token": self.core.id_to_token(i) for role, i in self._roles.items()}
        for name, content in (("tokenizer_config", self._config), ("special_tokens_map", specials)):
            text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
            (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without special tokens; never truncated."""
        return [np.frombuffer(row, dtype=np.int32).tolist() for row in self._rows(texts)]

    def encode_packed(self, texts: Sequence[str]) -> Rows:
        """The same as one row of ids and the offsets of the texts in it: the quickest way to many ids."""
        rows = self._rows(texts)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) // 4 for row in rows], out=offsets[1:])
        return np.frombuffer(b"".join(rows), dtype=np.int32), offsets

    def encode_wrapped(self, texts: Sequence[str], length: int) -> Rows:
        """The same, each text cut to `length` with its special tokens around it."""
        return wrapped(self.encode_packed(texts), length, self.template.before, self.template.after)

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as int32."""
        try:
            return self._encode(texts)
        except (UnicodeEncodeError, TypeError):  # which of them the library raises depends on its version
            return self._encode([training.well_formed(text) for text in texts])

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        if self._memo is not None:
            return self._memo.encode(texts)
        found = self.core.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._plain(np.array(encoding.ids, dtype=np.int32)).tobytes() for encoding in found]

    def _plain(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """SentencePiece's models hold special tokens as pieces, so that a text can spell one: it is unknown."""
        named = self.special[ids]
        if named.any() and "unk" in self._roles:
            ids[named] = self.unk
        return ids

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
        return int(length) if isinstance(length, int | float) and length < 10**9 else None

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
        """One flag for each id: this piece belongs to the word of the piece before it (`pieces.py`)."""
        return pieces.continues(self.core)

    @cached_property
    def additive(self) -> bool:
        """Whether the ids of a text are those of its sentences one after the other.

        True of BERT's pre-tokeniser, which never joins what a space or punctuation parts; false where the first
        word of a text looks different from the same word later (byte-level BPE) or spaces are pieces.
        """
        described = json.loads(self.core.to_str())
        return described["model"]["type"] == "WordPiece" and '"BertPreTokenizer"' in json.dumps(
            described["pre_tokenizer"]
        )

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
    """A copy in another process."""
    return Tokenizer(Loaded(Core.from_str(described), config, roles))


def _find(part: list[int], whole: list[int], start: int) -> int:
    """Where `part` lies in `whole`, from `start` on."""
    for i in range(start, len(whole) - len(part) + 1):
        if whole[i : i + len(part)] == part:
            return i
    raise ModelError("the special tokens of this tokenizer change the text they surround")
