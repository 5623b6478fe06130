"""Texts cut into passages of whole sentences, at most N tokens each.

A *cutter* turns texts into pieces. `by_tokens` is query-as-context's (4.1: consecutive sentences, at most 144 tokens;
a longer sentence is cut). Space inside a passage becomes single spaces. Cost: one tokenisation of the text (two where
a text has other tokens than its sentences, as with byte-level BPE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.text.sentences import spans
from liebig.text.tokenizer import Tokenizer

# Packing is greedy, as in query-as-context (4.1) and Condenser's data: a sentence joins the block while it fits. A
# sentence of more than N tokens is cut every N tokens, and its rest continues as a sentence of its own.
# The paragraphs of each text in, the pieces of each out.
Cutter = Callable[[Sequence[Sequence[str]]], list[list[str]]]


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
def pack_sentences(sentences: Any, longest: int) -> Any:
    """Where blocks of at most `longest` tokens begin and end (2 × blocks); sentence s ends at sentences[s + 1]."""
    units = np.empty(len(sentences) + (sentences[-1] - sentences[0]) // longest + 1, np.int64)
    n = units_of(sentences, 0, len(sentences) - 1, longest, units)
    blocks = np.empty((2, n), np.int64)
    made = i = 0
    while i < n:
        j = i + 1
        while j < n and units[j + 1] - units[i] <= longest:
            j += 1
        blocks[0, made], blocks[1, made] = units[i], units[j]
        made += 1
        i = j
    return blocks[:, :made]


def by_tokens(tokenizer: Tokenizer, size: int, language: str | None = None) -> Cutter:
    """Pieces of whole sentences with at most `size` tokens, special tokens not counted.

    A sentence longer than that is cut at `size` tokens and goes on in the next piece.
    """

    def cut(texts: Sequence[Sequence[str]]) -> list[list[str]]:
        sentences = [_sentences(paragraphs, language) for paragraphs in texts]
        counts = iter(_lengths(tokenizer, [s for group in sentences for s in group]))
        cuts = []
        for group in sentences:
            lengths = [next(counts) for _ in group]
            pieces = _pieces(tokenizer, group, lengths, size)
            exact = tokenizer.additive and max(lengths, default=0) <= size
            cuts.append(pieces if exact else _fitted(tokenizer, pieces, size))
        return cuts

    return cut


def _sentences(paragraphs: Sequence[str], language: str | None) -> list[str]:
    """The sentences of all paragraphs with single spaces, one in front where there was any, so that they join."""
    sentences = []
    for paragraph in paragraphs:
        last = -1
        for start, end in spans(paragraph, language):
            glue = "" if start == last else " "
            sentences.append(glue + " ".join(paragraph[start:end].split()))
            last = end
    return sentences


def _lengths(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    lengths: list[int] = tokenizer.encode_packed(texts).lengths.tolist()
    return lengths


def _pieces(tokenizer: Tokenizer, sentences: Sequence[str], lengths: Sequence[int], size: int) -> list[str]:
    """Sentences packed by their lengths, and the texts of the blocks."""
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    # A sentence without an end is cut into many pieces: it is tokenised for the first of them only.
    offsets = lru_cache(2)(lambda number: tokenizer.offsets(sentences[number]))
    texts = (
        _text(sentences, offsets, bounds, start, end)
        for start, end in pack_sentences(bounds, size).T.tolist()
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


def _fitted(tokenizer: Tokenizer, pieces: Sequence[str], size: int) -> list[str]:
    """The pieces, tokenised once more as they will be read; one that became too long is cut again."""
    counts = _lengths(tokenizer, pieces)
    return [
        part
        for piece, count in zip(pieces, counts)
        for part in ([piece] if count <= size else _cut_again(tokenizer, piece, size))
    ]


def _cut_again(tokenizer: Tokenizer, piece: str, size: int) -> Iterator[str]:
    """Parts of at most `size` tokens, of at least one character."""
    while piece:
        starts = [start for start, _ in tokenizer.offsets(piece)] + [len(piece)]
        tokens = min(size, len(starts) - 1)
        end = max(starts[tokens], 1)
        while end > 1 and len(tokenizer.encode(piece[:end].rstrip())) > size:
            tokens -= 1
            end = max(starts[tokens], 1)
        yield piece[:end].rstrip()
        piece = piece[end:].lstrip()
