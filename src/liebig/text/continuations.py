"""Which pieces of a vocabulary continue a word.

WordPiece marks a piece inside a word ("##ing"); byte-level BPE and SentencePiece mark the space before a word ("Ġthe",
"▁the"), so there an unmarked piece continues. In scripts without spaces (Han, kana, Thai, …) that would make one
endless word, so a piece that begins with such a character begins a word. The first piece of a text always begins a
word; the table cannot know which piece that is, so callers handle it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Core
from tokenizers.models import Unigram, WordLevel, WordPiece

from liebig.base.errors import ModelError
from liebig.text.word_cache import described

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
