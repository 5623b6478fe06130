"""Tokenising by looking words up: the ids of a text are those of what its spaces part, each worked out once.

That holds exactly for BERT's tokenizer and for byte-level BPE with its own pattern (`scheme_of` says how far), and
words repeat: most of a text is found in a table of the words met so far; a new plain word is first looked up
without its punctuation, and what is left goes to the library. Cost: 0.2 µs a word, several times the library's
speed on one core; 80 MB when the table is full, after which it stays as it is.
"""

from __future__ import annotations

import json
import re
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, filterfalse
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Core

KEPT = 400_000
_LONGEST = 40  # characters: longer chunks seldom come twice
_SPACES = re.compile(r"\s\s")
_BERT_PARTS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
_BYTE_LEVEL_PARTS = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s+")


class Scheme(NamedTuple):
    """How a text may be parted without changing its ids."""

    chunks: Callable[[str], list[str]]  # at spaces
    parts: re.Pattern[str]  # of a chunk of printable ASCII without any character of `whole`
    whole: frozenset[str]
    lowercase: bool


def scheme_of(core: Core) -> Scheme | None:
    """The scheme of a tokenizer, or None where parting a text may change its ids.

    A space always parts words under BERT's normaliser and pre-tokeniser. Under byte-level BPE's pattern it begins
    one, unless more space is beside it. Special tokens and contractions are left whole.
    """
    described = json.loads(core.to_str())
    model, normalizer, pre = described["model"], described["normalizer"], described["pre_tokenizer"]
    added = [token["content"] for token in described["added_tokens"]]
    if any(re.search(r"\s|^[A-Za-z0-9]|^$", token) for token in added):
        return None
    marks = frozenset(token[0] for token in added)
    if model["type"] == "WordPiece" and _is_bert(normalizer, pre):
        return Scheme(_at_spaces, _BERT_PARTS, marks, bool(normalizer["lowercase"]))
    if model["type"] == "BPE" and not model["dropout"] and _is_byte_level(normalizer, pre):
        return Scheme(_before_spaces, _BYTE_LEVEL_PARTS, marks | {"'"}, normalizer is not None)
    return None


def _is_bert(normalizer: Any, pre: Any) -> bool:
    return bool(normalizer and normalizer["type"] == "BertNormalizer" and pre == {"type": "BertPreTokenizer"})


def _is_byte_level(normalizer: Any, pre: Any) -> bool:
    plain = normalizer is None or normalizer["type"] == "Lowercase"
    return bool(
        plain and pre and pre["type"] == "ByteLevel" and pre["use_regex"] and not pre["add_prefix_space"]
    )


class Memo:
    """A table of words and their ids in front of a tokenizer."""

    def __init__(self, core: Core, scheme: Scheme, kept: int = KEPT) -> None:
        self._core = core
        self._scheme = scheme
        self._kept = kept
        self._table = _Table()
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as int32, as the library gives them without special tokens."""
        parted = [self._scheme.chunks(text) for text in texts]
        with self._lock:
            new = self._table.lacks(chain.from_iterable(parted))
            if new:
                self._learn({chunk: self._parts(chunk) for chunk in new})
            look_up = self._table.__getitem__
            return [b"".join(map(look_up, chunks)) for chunks in parted]

    def _parts(self, chunk: str) -> list[str]:
        scheme = self._scheme
        if not (chunk.isascii() and chunk.isprintable()) or not scheme.whole.isdisjoint(chunk):
            return [chunk]
        return scheme.parts.findall(chunk.lower() if scheme.lowercase else chunk)

    def _learn(self, parted: dict[str, list[str]]) -> None:
        """Keep what is short while there is room; the rest is known for this call."""
        table = self._table
        table.passing = {}
        unknown = table.lacks(chain.from_iterable(parted.values()))
        self._keep(unknown, map(_ids, self._core.encode_batch_fast(unknown, add_special_tokens=False)))
        known = [b"".join(map(table.__getitem__, parts)) for parts in parted.values()]
        self._keep(list(parted), known)

    def _keep(self, chunks: Sequence[str], ids: Any) -> None:
        found = dict(zip(chunks, ids))
        self._table.passing.update(found)
        room = max(self._kept - len(self._table), 0)
        self._table.update([(c, row) for c, row in found.items() if len(c) <= _LONGEST][:room])


class _Table(dict[str, bytes]):
    """Words and their ids; what is not kept is looked up among those of this call."""

    passing: dict[str, bytes]

    def lacks(self, chunks: Iterable[str]) -> list[str]:
        """Those that are not kept, each once. (A set's `difference` would walk through all of a subclass of dict.)"""
        return list(filterfalse(self.__contains__, set(chunks)))

    def __missing__(self, chunk: str) -> bytes:
        return self.passing[chunk]


def _ids(encoding: Any) -> bytes:
    return array("i", encoding.ids).tobytes()


def _at_spaces(text: str) -> list[str]:
    return text.split(" ")


def _before_spaces(text: str) -> list[str]:
    if _SPACES.search(text):
        return [text]
    first, *others = text.split(" ")
    return [first, *[" " + chunk for chunk in others]]
