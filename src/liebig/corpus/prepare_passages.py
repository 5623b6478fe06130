"""Passages cut in a shard: begin and end in tokens, never across sections.

By tokens they are whole sentences, as many as fit (query-as-context 4.1); by words they are DPR's, cut at every
so many words whatever the sentences. A last passage is as short as it happens to be.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from liebig.data.store_write import Lengths, Shard
from liebig.text.blocks import pack_sentences

Offsets = NDArray[np.int64]


def by_tokens(shard: Shard, length: int, overlap: int) -> Shard:
    """The shard with passages of whole sentences, at most `length` tokens each."""
    sentences = _offsets(shard.sentences)
    if len(sentences) == 1:
        return replace(shard, passages=np.zeros((0, 2), np.int64))
    blocks = pack_sentences(sentences, _sections(shard), length, overlap)
    return replace(shard, passages=np.stack((blocks.starts, blocks.ends), axis=1))


def by_words(shard: Shard, length: int, overlap: int, continues: NDArray[np.bool_]) -> Shard:
    """The shard with passages of `length` words, each repeating the last `overlap` of the one before it."""
    bounds = _offsets(shard.sentences)[_sections(shard)]
    begins = ~continues[shard.tokens]
    begins[bounds[:-1][np.diff(bounds) > 0]] = True
    words = np.append(np.flatnonzero(begins), len(begins))
    cuts = [_windows(first, last, length, overlap) for first, last in np.searchsorted(words, _pairs(bounds))]
    places = np.concatenate([np.zeros((0, 2), np.int64), *cuts])
    return replace(shard, passages=words[places])


def _windows(first: int, last: int, length: int, overlap: int) -> Offsets:
    """Windows of `length` words over the words first..last-1; none lies whole inside the one before it."""
    starts = np.arange(first, max(last - overlap, first + 1) if last > first else first, length - overlap)
    return np.stack((starts, np.minimum(starts + length, last)), axis=1)


def _pairs(bounds: Offsets) -> Offsets:
    return np.stack((bounds[:-1], bounds[1:]), axis=1)


def _sections(shard: Shard) -> Offsets:
    """First sentence of each section, and the number of sentences."""
    return _offsets(shard.paragraphs)[_offsets(shard.sections)]


def _offsets(lengths: Lengths) -> Offsets:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
