"""Documents cut into passages of whole sentences, at most N tokens each.

A *cutter* turns texts into pieces; `cut_documents` runs one over the sections of documents, which passages never
cross, and numbers what comes out ("doc-0", "doc-1", …). `by_tokens` is query-as-context's (4.1: consecutive
sentences, at most 144 tokens; a longer sentence is cut). A prefix of title or heading is part of the text and is
counted. Space inside a passage becomes single spaces. Cost: one tokenisation of the text (two where a text has other
tokens than its sentences, as with byte-level BPE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.records import Document, Passage
from liebig.ragged import read_only
from liebig.text.sentences import spans
from liebig.text.tokenizer import Tokenizer

# Packing is greedy, as in query-as-context (4.1) and Condenser's data: a sentence joins the block while it fits. A
# sentence of more than N tokens is cut every N tokens, and its rest continues as a sentence of its own. Blocks never
# cross a group (a section or document). With overlap, a block repeats the last sentences of the previous one: as many
# as have at most `overlap` tokens and leave room for the next sentence.


class TokenBlocks(NamedTuple):
    """Block k is tokens[starts[k]:ends[k]], from group groups[k]."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    groups: NDArray[np.int64]


def pack_sentences(
    sentences: NDArray[Any], groups: NDArray[Any], longest: int, overlap: int = 0
) -> TokenBlocks:
    """Blocks of at most `longest` tokens.

    Sentence s is tokens[sentences[s]:sentences[s+1]]; group g is sentences groups[g] to groups[g+1].
    """
    assert 0 <= overlap < longest, "a block needs room for more than its overlap"
    table = _pack(read_only(sentences.astype(np.int64)), groups.astype(np.int64), longest, overlap)
    return TokenBlocks(table[0], table[1], table[2])


@njit(nogil=True, cache=True)
def units_of(sentences: Any, first: int, last: int, longest: int, units: Any) -> int:
    """Where the sentences first … last-1 begin, long ones cut; returns how many units `units` delimits."""
    n = 0
    units[0] = sentences[first]
    for s in range(first, last):
        at, end = sentences[s], sentences[s + 1]
        while at < end:
            at = min(at + longest, end)
            n += 1
            units[n] = at
    return n


@njit(nogil=True, cache=True)
def most_units(sentences: Any, first: Any, last: Any, longest: int) -> int:
    """An upper bound on the units of any of the groups."""
    most = 0
    for g in range(len(first)):
        tokens = sentences[last[g]] - sentences[first[g]]
        most = max(most, (last[g] - first[g]) + tokens // longest + 1)
    return most


@njit(nogil=True, cache=True)
def _pack(sentences: Any, groups: Any, longest: int, overlap: int) -> Any:
    bound = len(sentences) + (sentences[-1] - sentences[0]) // longest + 1
    table = np.empty((3, bound), np.int64)
    units = np.empty(most_units(sentences, groups[:-1], groups[1:], longest) + 1, np.int64)
    made = 0
    for g in range(len(groups) - 1):
        n = units_of(sentences, groups[g], groups[g + 1], longest, units)
        i = 0
        while i < n:
            j = i + 1
            while j < n and units[j + 1] - units[i] <= longest:
                j += 1
            table[0, made], table[1, made], table[2, made] = units[i], units[j], g
            made += 1
            i = j if j == n else _back(units, i, j, longest, overlap)
    return table[:, :made].copy()


@njit(nogil=True, cache=True)
def _back(units: Any, i: int, j: int, longest: int, overlap: int) -> int:
    """Where the next block begins: up to `overlap` tokens before unit j, which must still fit."""
    k = j
    while k - 1 > i and units[j] - units[k - 1] <= overlap and units[j + 1] - units[k - 1] <= longest:
        k -= 1
    return k


__all__ = ["Cutter", "Prefix", "Text", "TokenBlocks", "by_tokens", "cut_documents", "pack_sentences"]
Prefix = Literal["none", "title", "heading", "both"]
_BATCH = 64  # documents that are tokenised together


class Text(NamedTuple):
    """A section to be cut: its paragraphs, and what will stand in front of each of its passages."""

    paragraphs: tuple[str, ...]
    prefix: str = ""


Cutter = Callable[[Sequence[Text]], list[list[str]]]


def cut_documents(
    documents: Iterable[Document], cutter: Cutter, prefix: Prefix = "none", separator: str = ": "
) -> Iterator[Passage]:
    """The passages of documents, in order; each carries its document's title beside its text."""
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == _BATCH:
            yield from _cut(batch, cutter, prefix, separator)
            batch = []
    yield from _cut(batch, cutter, prefix, separator)


def by_tokens(tokenizer: Tokenizer, size: int, overlap: int = 0, language: str | None = None) -> Cutter:
    """Pieces of whole sentences with at most `size` tokens, prefix counted and special tokens not.

    A sentence longer than that is cut at `size` tokens and goes on in the next piece. With `overlap`, a piece
    begins with the last sentences of the one before it, as many as have at most that many tokens.
    """
    if not 0 <= overlap < size:
        raise DataError(f"passages of {size} tokens cannot overlap by {overlap}")

    def cut(texts: Sequence[Text]) -> list[list[str]]:
        sentences = [_sentences(text, language) for text in texts]
        counts = iter(_lengths(tokenizer, [s for group in sentences for s in group]))
        fronts = _lengths(tokenizer, [text.prefix for text in texts])
        cuts = []
        for text, group, front in zip(texts, sentences, fronts):
            if size - front <= overlap:
                raise DataError(
                    f"passages of {size} tokens have no room after the prefix {text.prefix!r}",
                    fix="use longer passages or no prefix",
                )
            lengths = [next(counts) for _ in group]
            pieces = _pieces(tokenizer, group, lengths, size - front, overlap)
            exact = tokenizer.additive and max(lengths, default=0) <= size - front
            cuts.append(pieces if exact else _fitted(tokenizer, text.prefix, pieces, size))
        return cuts

    return cut


def _cut(documents: Sequence[Document], cutter: Cutter, prefix: Prefix, separator: str) -> Iterator[Passage]:
    texts = [
        Text(section.paragraphs, _prefix(document.title, section.heading, prefix, separator))
        for document in documents
        for section in document.sections
    ]
    pieces = iter(cutter(texts))
    prefixes = iter(texts)
    for document in documents:
        number = 0
        for _ in document.sections:
            front = next(prefixes).prefix
            for piece in next(pieces):
                yield Passage(f"{document.id}-{number}", front + piece, document.title, document.id)
                number += 1


def _prefix(title: str, heading: str, prefix: Prefix, separator: str) -> str:
    parts = {"none": (), "title": (title,), "heading": (heading,), "both": (title, heading)}[prefix]
    return "".join(part + separator for part in parts if part)


def _sentences(text: Text, language: str | None) -> list[str]:
    """The sentences of all paragraphs with single spaces, one in front where there was any, so that they join."""
    sentences = []
    for paragraph in text.paragraphs:
        last = -1
        for start, end in spans(paragraph, language):
            glue = "" if start == last else " "
            sentences.append(glue + " ".join(paragraph[start:end].split()))
            last = end
    return sentences


def _lengths(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    lengths: list[int] = tokenizer.encode_packed(texts).lengths.tolist()
    return lengths


def _pieces(
    tokenizer: Tokenizer, sentences: Sequence[str], lengths: Sequence[int], room: int, overlap: int
) -> list[str]:
    """Sentences packed by their lengths, and the texts of the blocks."""
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    blocks = pack_sentences(bounds, np.array([0, len(sentences)]), room, overlap)
    # A sentence without an end is cut into many pieces: it is tokenised for the first of them only.
    offsets = lru_cache(2)(lambda number: tokenizer.offsets(sentences[number]))
    texts = (
        _text(sentences, offsets, bounds, start, end)
        for start, end in zip(blocks.starts.tolist(), blocks.ends.tolist())
    )
    return [text for text in texts if text]


def _text(
    sentences: Sequence[str],
    offsets: Callable[[int], Sequence[tuple[int, int]]],
    bounds: NDArray[np.int64],
    start: int,
    end: int,
) -> str:
    """Tokens start … end-1 of the sentences as text: whole sentences, or a part of one that was too long."""
    first = int(np.searchsorted(bounds, start, side="right")) - 1
    last = int(np.searchsorted(bounds, end, side="left")) - 1
    parts = list(sentences[first : last + 1])
    if end < bounds[last + 1]:
        parts[-1] = parts[-1][: offsets(last)[end - int(bounds[last])][0]]
    if start > bounds[first]:
        parts[0] = parts[0][offsets(first)[start - int(bounds[first])][0] :]
    return "".join(parts).strip()


def _fitted(tokenizer: Tokenizer, prefix: str, pieces: Sequence[str], size: int) -> list[str]:
    """The pieces, tokenised once more as they will be read; one that became too long is cut again."""
    counts = _lengths(tokenizer, [prefix + piece for piece in pieces])
    return [
        part
        for piece, count in zip(pieces, counts)
        for part in ([piece] if count <= size else _cut_again(tokenizer, prefix, piece, size))
    ]


def _cut_again(tokenizer: Tokenizer, prefix: str, piece: str, size: int) -> Iterator[str]:
    """Parts of at most `size` tokens with their prefix, of at least one character."""
    while piece:
        starts = [start for start, _ in tokenizer.offsets(prefix + piece)] + [len(prefix + piece)]
        tokens = min(size, len(starts) - 1)
        end = max(starts[tokens] - len(prefix), 1)
        while end > 1 and len(tokenizer.encode(prefix + piece[:end].rstrip())) > size:
            tokens -= 1
            end = max(starts[tokens] - len(prefix), 1)
        yield piece[:end].rstrip()
        piece = piece[end:].lstrip()
