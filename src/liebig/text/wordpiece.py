"""WordPiece of many texts in one compiled pass: the ids that the library gives, many times as fast on one core.

Words of ASCII letters and digits walk a trie of the vocabulary, in which the last piece that was passed is the longest
that fits; a punctuation mark is a word of its own. What stands between two spaces and has anything else in it (letters
of other scripts, control characters, what may spell a special token, a word without pieces) is left open, and the table
of words fills it in (`word_cache.py`); it takes texts that are mostly of other scripts, too. Needs numba. Memory: 4
bytes for each letter of each node of the trie, 9 MB for BERT's vocabulary; while it runs, some 10 bytes for each
character of a PART, and a Python object for each chunk that is left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Core

from liebig.base.compiled import njit
from liebig.ragged import Ragged, offsets_of
from liebig.text.word_cache import Memo, Scheme

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

SPACE, LETTER, MARK, OTHER = range(4)  # what a byte is
FIRST, LATER = 0, 1  # nodes of the trie where a word begins, and where it goes on
NONE = -1
PART = 1 << 24  # characters at a time, so that memory does not grow with the texts
ANY = 1 << 62  # the longest word of a vocabulary that does not limit it
WIDE = 1.3  # bytes a character from which on most words are left open, so that the table alone is faster


class Trie(NamedTuple):
    """What the kernel looks up."""

    kinds: Bytes  # of each of 256 bytes
    letters: Bytes  # the letter of each byte, upper case as lower case where the tokenizer says so; 0 is none
    marks: Ints  # the id of each byte as a word of its own
    children: Ints  # nodes x letters: twice the next node, plus 1 if a piece ends there; 0 is none
    pieces: Ints  # the id of the piece that ends at each node
    longest: int  # word, in characters


def vocabulary_of(core: Core, scheme: Scheme) -> Trie:
    """The pieces of a WordPiece model that are spelled in ASCII letters and digits."""
    numbers: dict[str, int] = core.get_vocab(with_added_tokens=False)
    kinds, letters = np.full(256, OTHER, np.uint8), np.zeros(256, np.uint8)
    marks = np.full(256, NONE, np.int32)
    kinds[[*b" \t\n\r"]] = SPACE
    characters = [character for character in map(chr, range(33, 127)) if character not in scheme.whole]
    spelled = [character.lower() if scheme.lowercase else character for character in characters]
    alphabet = sorted({letter for letter in spelled if letter.isalnum()})
    for character, letter in zip(characters, spelled):
        if letter.isalnum():
            kinds[ord(character)], letters[ord(character)] = LETTER, 1 + alphabet.index(letter)
        elif letter in numbers:
            kinds[ord(character)], marks[ord(character)] = MARK, numbers[letter]
    children, pieces = _trie(numbers, core.model.continuing_subword_prefix, scheme.lowercase, letters)
    return Trie(kinds, letters, marks, children, pieces, min(core.model.max_input_chars_per_word, ANY))


def _trie(vocabulary: Mapping[str, int], prefix: str, lowercase: bool, letters: Bytes) -> tuple[Ints, Ints]:
    """Children and pieces of the trie, in the order of the ids: frequent words come first and lie together."""
    ordered = sorted(vocabulary.items(), key=itemgetter(1))
    rows = [(number, FIRST, name) for name, number in ordered]
    rows += [(n, LATER, name.removeprefix(prefix)) for name, n in ordered if name.startswith(prefix)]
    rows = [row for row in rows if row[2].isascii() and row[2].isalnum()]
    if lowercase:
        rows = [row for row in rows if row[2] == row[2].lower()]
    numbers, roots, names = zip(*rows) if rows else ((), (), ())
    data = np.frombuffer("".join(names).encode(), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
    # As many nodes as letters at the most; what stays zero takes no memory.
    children = np.zeros((len(data) + 2, 1 + int(letters.max())), np.int32)
    pieces = np.full(len(data) + 2, NONE, np.int32)
    used = _grow(
        data, ends, np.array(roots, np.int64), np.array(numbers, np.int32), letters, children, pieces
    )
    return children[:used].copy(), pieces[:used].copy()


@njit(cache=True)
def _grow(
    data: Bytes, ends: Longs, roots: Longs, numbers: Ints, letters: Bytes, children: Ints, pieces: Ints
) -> int:
    """Put every piece into the trie; how many nodes it has."""
    used, i = 2, 0
    for row in range(ends.size):
        node = roots[row]
        while i < ends[row]:
            letter = letters[data[i]]
            if children[node, letter] == 0:
                children[node, letter] = 2 * used
                used += 1
            if i == ends[row] - 1:
                children[node, letter] |= 1
            node, i = children[node, letter] >> 1, i + 1
        pieces[node] = numbers[row]
    return used


class CompiledWordPiece:
    """A compiled WordPiece in front of a table of words. Threads may share it; its kernels release the GIL."""

    def __init__(self, core: Core, memo: Memo) -> None:
        self._vocabulary, self._memo = vocabulary_of(core, memo.scheme), memo

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The ids of each text, without special tokens."""
        place = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts))) // PART
        starts = (np.flatnonzero(np.diff(place)) + 1).tolist()
        parts = [self._encode(texts[start:end]) for start, end in pairwise([0, *starts, len(texts)])]
        return parts[0] if len(parts) == 1 else Ragged.concatenate(parts, np.int32)

    def _encode(self, texts: Sequence[str]) -> Ragged:
        encoded = [text.encode() for text in texts]
        data = b"".join(encoded)
        if len(data) > WIDE * sum(map(len, texts)):
            return packed(self._memo.encode(texts))
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        ids, offsets, spans = _encode(np.frombuffer(data, np.uint8), ends, *self._vocabulary)
        if len(spans) == 0:
            return Ragged(ids, offsets)
        starts, ends = spans.T.tolist()
        chunks = b" ".join([data[start:end] for start, end in zip(starts, ends)]).decode().split(" ")
        rest = packed(self._memo.of_chunks(chunks))
        return Ragged(*_fill(ids, offsets, rest.values, rest.lengths))


def packed(rows: Sequence[bytes]) -> Ragged:
    """Rows of int32 as one array."""
    return Ragged(np.frombuffer(b"".join(rows), np.int32), offsets_of([len(row) // 4 for row in rows]))


@njit(cache=True, nogil=True)
def _encode(
    data: Bytes, ends: Longs,
    kinds: Bytes, letters: Bytes, marks: Ints, children: Ints, pieces: Ints, longest: int,
) -> tuple[Ints, Longs, Longs]:  # fmt: skip
    """Ids and offsets of the texts, with NONE for a chunk that is left open, and where those chunks start and end."""
    # One function, because passing on this many arrays takes longer than the pieces of a word. What is never
    # written of these takes no memory.
    ids = np.empty(data.size, np.int32)  # a piece has a byte at least
    spans = np.empty((data.size // 2 + ends.size, 2), np.int64)  # a chunk, too, and a space but in the end
    offsets = np.zeros(ends.size + 1, np.int64)
    i, n, count = 0, 0, 0
    for text in range(ends.size):
        end = ends[text]
        while i < end:
            if kinds[data[i]] == SPACE:
                i += 1
                continue
            start, before, known = i, n, True
            while i < end and known:  # up to the next space
                kind = kinds[data[i]]
                if kind == LETTER:
                    word, node = i, FIRST
                    while i < end and kinds[data[i]] == LETTER:  # up to the end of the word
                        last, after, j = 0, i, i
                        while j < end:  # to the end of the longest piece
                            child = children[node, letters[data[j]]]
                            if child == 0:
                                break
                            node, j = child >> 1, j + 1
                            if child & 1:
                                last, after = node, j
                        if last == 0:
                            known = False
                            break
                        ids[n] = pieces[last]
                        n, i, node = n + 1, after, LATER
                    known = known and i - word <= longest
                elif kind == MARK:
                    ids[n] = marks[data[i]]
                    n, i = n + 1, i + 1
                elif kind == SPACE:
                    break
                else:
                    known = False
            if not known:
                while i < end and kinds[data[i]] != SPACE:
                    i += 1
                spans[count, 0], spans[count, 1] = start, i
                ids[before] = NONE
                count, n = count + 1, before + 1
        offsets[text + 1] = n
    return ids[:n].copy(), offsets, spans[:count].copy()


@njit(cache=True, nogil=True)
def _fill(ids: Ints, offsets: Longs, rest: Ints, sizes: Longs) -> tuple[Ints, Longs]:
    """Ids and offsets with `rest`, the ids of the chunks that were left open, in their places."""
    filled = np.empty(ids.size - sizes.size + rest.size, np.int32)
    moved = np.zeros_like(offsets)
    n, taken, chunk = 0, 0, 0
    for text in range(offsets.size - 1):
        for i in range(offsets[text], offsets[text + 1]):
            if ids[i] != NONE:
                filled[n] = ids[i]
                n += 1
                continue
            for _ in range(sizes[chunk]):
                filled[n] = rest[taken]
                n, taken = n + 1, taken + 1
            chunk += 1
        moved[text + 1] = n
    return filled, moved
