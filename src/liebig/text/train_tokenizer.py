"""A tokenizer of the corpus's own: WordPiece or byte-level BPE, the same bytes for the same texts.

Texts stream by once: words between spaces are counted, each different one is normalised and pre-tokenised
once, and merges are learned from the counts. Memory holds the counted words alone; past `KEPT`
of them the rarest are dropped. Cost: 30 M characters/s to count, then seconds for the merges.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    AddedToken,
    Tokenizer as Core,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from liebig.base.compiled import Dict, njit, types
from liebig.base.errors import DataError
from liebig.base.rng import mix

# Merges are learned here because the trainers of the `tokenizers` library number the symbols of a WordPiece vocabulary
# in the order of a randomly seeded hash table: two runs give two vocabularies. Words lie in one flat array of symbols
# linked to their neighbours; every pair knows where it occurs, and a heap holds the counts, so a merge visits only the
# places of its pair. Ties go to the smaller pair of ids. Cost: 30,000 merges over a million different words take about
# ten seconds and 60 bytes per character.

inline = njit(inline="always")  # a call costs more to compile than its text
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INNER = np.uint64(0xD1B54A32D192ED03)


class SymbolRow(NamedTuple):
    """All words, one symbol after the other, each linked to its neighbours in the word (-1: none)."""

    symbols: Any
    before: Any
    after: Any
    weight: Any  # how often the word of this symbol was met


class Pairs(NamedTuple):
    """Counts and places of neighbouring symbols. The places of a pair are a linked list, newest first."""

    index: Any  # pair -> number
    count: Any
    newest: Any  # number -> a place, or -1
    position: Any  # place -> position in the row
    older: Any  # place -> the place before it, or -1
    used: Any  # two numbers: places and pairs in use


class PieceTable(NamedTuple):
    """What every piece spells, as a hash, so that the same spelling gets the same id."""

    known: Any  # spelling -> id
    body: Any
    size: Any
    inner: Any
    used: Any  # one number: ids in use


def learn_merges(
    symbols: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    bodies: NDArray[np.uint64],
    inner: NDArray[np.bool_],
    new_pieces: int,
    min_count: int,
) -> NDArray[np.int64]:
    """Rows (left, right, piece): the merges in their order, until there are `new_pieces` new ids.

    `symbols[offsets[w]:offsets[w+1]]` is a word met `counts[w]` times. `bodies` hashes what each starting
    symbol spells and `inner` says that it may only stand inside a word: two merges that spell the same piece
    give the same id.
    """
    return _learn_loop(symbols.copy(), offsets, counts, bodies, inner, new_pieces, max(min_count, 1))


@njit(cache=True)
def _learn_loop(
    symbols: Any, offsets: Any, counts: Any, bodies: Any, inner: Any, new_pieces: int, min_count: int
) -> Any:
    row = _row(symbols, offsets, counts)
    pairs = _pairs(row)
    pieces = _pieces(bodies, inner, new_pieces)
    heap = [(-pairs.count[i], pair >> 32, pair & 0xFFFFFFFF) for pair, i in pairs.index.items()]
    heapq.heapify(heap)
    merges = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    while pieces.used[0] - len(bodies) < new_pieces and len(heap) > 0:
        count, left, right = heapq.heappop(heap)
        number = pairs.index[(left << 32) | right]
        if -count != pairs.count[number]:  # counted before a later merge took some of it
            if pairs.count[number] > 0:
                heapq.heappush(heap, (-pairs.count[number], left, right))
            continue
        if -count < min_count:
            break
        piece = _spell(pieces, left, right)
        merges.append((left, right, piece))
        for pair in _merge(row, pairs, number, left, right, piece):
            grown = pairs.count[pairs.index[pair]]
            if grown > 0:
                heapq.heappush(heap, (-grown, pair >> 32, pair & 0xFFFFFFFF))
    table = np.empty((len(merges), 3), np.int64)
    for i in range(len(merges)):
        table[i, 0], table[i, 1], table[i, 2] = merges[i]
    return table


@inline
def _row(symbols: Any, offsets: Any, counts: Any) -> Any:
    n = len(symbols)
    before = np.arange(-1, n - 1)
    after = np.arange(1, n + 1)
    weight = np.empty(n, np.int64)
    for w in range(len(counts)):
        if offsets[w + 1] > offsets[w]:
            before[offsets[w]] = -1
            after[offsets[w + 1] - 1] = -1
            weight[offsets[w] : offsets[w + 1]] = counts[w]
    return SymbolRow(symbols, before, after, weight)


@inline
def _pairs(row: Any) -> Any:
    """Every pair of the row. A merge frees one symbol and adds at most two places: 3n places suffice.

    Every pair has a place, so 3n pairs do too. What is not written to takes no memory, and arrays compile in a
    fraction of the time of typed lists.
    """
    n = len(row.symbols)
    pairs = Pairs(
        Dict.empty(types.int64, types.int64),
        np.empty(3 * n, np.int64),
        np.empty(3 * n, np.int64),
        np.empty(3 * n, np.int64),
        np.empty(3 * n, np.int64),
        np.zeros(2, np.int64),
    )
    for p in range(n):
        if row.after[p] >= 0:
            _add(pairs, row.symbols[p], row.symbols[row.after[p]], row.weight[p], p)
    return pairs


@inline
def _add(pairs: Any, left: int, right: int, weight: int, position: int) -> Any:
    """The pair is at `position`, `weight` times; returns the pair."""
    pair = (np.int64(left) << 32) | np.int64(right)
    if pair not in pairs.index:
        pairs.index[pair] = pairs.used[1]
        pairs.count[pairs.used[1]] = 0
        pairs.newest[pairs.used[1]] = -1
        pairs.used[1] += 1
    number = pairs.index[pair]
    pairs.count[number] += weight
    place = pairs.used[0]
    pairs.position[place] = position
    pairs.older[place] = pairs.newest[number]
    pairs.newest[number] = place
    pairs.used[0] += 1
    return pair


@inline
def _take(pairs: Any, left: int, right: int, weight: int) -> None:
    """The pair is no longer there, `weight` times; its place is skipped when it is visited."""
    pairs.count[pairs.index[(np.int64(left) << 32) | np.int64(right)]] -= weight


@inline
def _merge(row: Any, pairs: Any, number: int, left: int, right: int, piece: int) -> Any:
    """Join `left` and `right` everywhere, from left to right; returns the pairs that grew."""
    grown = [np.int64(0) for _ in range(0)]
    for p in _places(pairs, number):
        q = row.after[p]
        if row.symbols[p] != left or q < 0 or row.symbols[q] != right:
            continue
        a, z, weight = row.before[p], row.after[q], row.weight[p]
        if a >= 0:
            _take(pairs, row.symbols[a], left, weight)
            grown.append(_add(pairs, row.symbols[a], piece, weight, a))
        if z >= 0:
            _take(pairs, right, row.symbols[z], weight)
            grown.append(_add(pairs, piece, row.symbols[z], weight, p))
            row.before[z] = p
        row.symbols[p], row.symbols[q], row.after[p] = piece, -1, z
    pairs.count[number] = 0
    return grown


@inline
def _places(pairs: Any, number: int) -> Any:
    """Where a pair was seen, in order; forgotten afterwards."""
    positions = [np.int64(0) for _ in range(0)]
    place = pairs.newest[number]
    while place >= 0:
        positions.append(pairs.position[place])
        place = pairs.older[place]
    pairs.newest[number] = -1
    return np.sort(np.array(positions))


@inline
def _pieces(bodies: Any, inner: Any, new_pieces: int) -> Any:
    """The starting symbols, and room for the new ones."""
    n = len(bodies) + new_pieces
    pieces = PieceTable(
        Dict.empty(types.int64, types.int64),
        np.empty(n, np.uint64),
        np.empty(n, np.int64),
        np.empty(n, np.bool_),
        np.zeros(1, np.int64),
    )
    for i in range(len(bodies)):
        _new_piece(pieces, bodies[i], np.int64(1), inner[i])
    return pieces


@inline
def _new_piece(pieces: Any, body: Any, size: int, inner: bool) -> None:
    id = pieces.used[0]
    pieces.known[_name(body, inner)] = id
    pieces.body[id], pieces.size[id], pieces.inner[id] = body, size, inner
    pieces.used[0] += 1


@inline
def _name(body: Any, inner: bool) -> Any:
    return np.int64(body ^ _INNER if inner else body)


@inline
def _spell(pieces: Any, left: int, right: int) -> Any:
    """The id of `left` and `right` joined: a new one unless that spelling has one already."""
    body = pieces.body[left]
    for _ in range(pieces.size[right]):
        body *= _BASE
    body += pieces.body[right]
    name = _name(body, pieces.inner[left])
    if name not in pieces.known:
        _new_piece(pieces, body, pieces.size[left] + pieces.size[right], pieces.inner[left])
    return pieces.known[name]


WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BPE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KEPT = 4_000_000
COVERAGE = 0.9999
_SURROGATES = re.compile("[\ud800-\udfff]")
_CHUNKS = re.compile(r"\s*\S+|\s+$")


def train_wordpiece(texts: Iterable[str], vocab_size: int, lowercase: bool, min_count: int = 2) -> Core:
    """BERT's tokenizer, with a vocabulary learned from `texts`."""
    core = Core(models.WordPiece({}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    spelled = _spelled(_pretokenised(core, count_words(texts, str.split)), marks_inside=True)
    alphabet = _covering(spelled, most=vocab_size // 2)
    spelled = _without_others(spelled, alphabet)
    pieces, _ = _learn(spelled, alphabet, WORDPIECE_SPECIALS, vocab_size, min_count)
    return build_wordpiece({piece: i for i, piece in enumerate(pieces)}, core.normalizer)


def train_bpe(texts: Iterable[str], vocab_size: int, lowercase: bool, min_count: int = 2) -> Core:
    """RoBERTa's tokenizer, with merges learned from `texts`."""
    core = Core(models.BPE())
    core.normalizer = normalizers.Lowercase() if lowercase else None
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelled = _spelled(_pretokenised(core, count_words(texts, _CHUNKS.findall)), marks_inside=False)
    alphabet = np.array(sorted(2 * ord(c) for c in pre_tokenizers.ByteLevel.alphabet()))
    pieces, merges = _learn(spelled, alphabet, BPE_SPECIALS, vocab_size, min_count)
    return build_bpe({piece: i for i, piece in enumerate(pieces)}, merges, core.normalizer)


def build_wordpiece(vocab: Mapping[str, int], normalizer: normalizers.Normalizer) -> Core:
    """BERT's tokenizer around a vocabulary: its pre-tokeniser, decoder and special-token template."""
    core = Core(models.WordPiece(dict(vocab), unk_token="[UNK]", max_input_chars_per_word=100))
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    core.add_special_tokens([s for s in WORDPIECE_SPECIALS if s in vocab])
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return core


def build_bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    normalizer: normalizers.Normalizer | None = None,
    add_prefix_space: bool = False,
) -> Core:
    """RoBERTa's tokenizer around a vocabulary and its merges."""
    core = Core(models.BPE(dict(vocab), list(merges)))
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    core.decoder = decoders.ByteLevel()
    plain = [AddedToken(s, normalized=False, special=True) for s in BPE_SPECIALS[:4] if s in vocab]
    core.add_special_tokens([*plain, AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    core.post_processor = processors.RobertaProcessing(
        ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=add_prefix_space
    )
    return core


def count_words(texts: Iterable[str], chunks: Callable[[str], list[str]], kept: int = KEPT) -> Counter[str]:
    """How often each chunk occurs. When more than `kept` are held, the rarest go until half of them remain."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(chunks(text))
        if len(counts) > kept:
            counts = _rarest_dropped(counts, kept // 2)
    return counts


def well_formed(text: str) -> str:
    """Half characters (lone surrogates, which no encoding can write) replaced one by one."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def _rarest_dropped(counts: Counter[str], keep: int) -> Counter[str]:
    floor = 1
    while len(counts) > keep:
        counts = Counter({word: n for word, n in counts.items() if n > floor})
        floor *= 2
    return counts


def _pretokenised(core: Core, counts: Counter[str]) -> Counter[str]:
    """The words that merges may not cross, with their counts."""
    words: Counter[str] = Counter()
    for chunk, n in counts.items():
        text = well_formed(chunk)
        text = core.normalizer.normalize_str(text) if core.normalizer else text
        for word, _ in core.pre_tokenizer.pre_tokenize_str(text):
            words[word] += n
    if not words:
        raise DataError("there are no words to train a tokenizer on", fix="give at least one text with words")
    return words


class _Spelling(NamedTuple):
    """Words as numbers: a symbol is twice the code of its character, plus one inside a word ("##c")."""

    symbols: NDArray[np.int64]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


def _spelled(words: Counter[str], marks_inside: bool) -> _Spelling:
    """The words in alphabetical order; the longest [UNK]-free word of BERT has 100 characters."""
    ordered = sorted(word for word in words if len(word) <= 100 or not marks_inside)
    codes = np.frombuffer("".join(ordered).encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
    offsets = np.zeros(len(ordered) + 1, dtype=np.int64)
    np.cumsum([len(word) for word in ordered], out=offsets[1:])
    inside = np.full(len(codes), int(marks_inside))
    inside[offsets[:-1]] = 0
    return _Spelling(2 * codes + inside, offsets, np.array([words[word] for word in ordered], dtype=np.int64))


def _covering(spelled: _Spelling, most: int) -> NDArray[np.int64]:
    """The most frequent symbols that make up `COVERAGE` of the text, at most `most`; first those that start.

    ASCII is always among them: a rare letter must not turn every word that has it into [UNK].
    """
    symbols, inverse = np.unique(spelled.symbols, return_inverse=True)
    counts = np.bincount(inverse, weights=np.repeat(spelled.counts, np.diff(spelled.offsets)))
    ranked = np.argsort(-counts, kind="stable")
    covered = np.cumsum(counts[ranked]) / counts.sum()
    ascii_symbols = symbols[symbols < 2 * 128]
    most = max(most - len(ascii_symbols), 0)
    frequent = symbols[ranked[: int(np.searchsorted(covered, COVERAGE)) + 1]]
    kept = np.concatenate((ascii_symbols, frequent[frequent >= 2 * 128][:most]))
    return kept[np.lexsort((kept, kept % 2))]


def _without_others(spelled: _Spelling, alphabet: NDArray[np.int64]) -> _Spelling:
    """The words written in `alphabet` alone: any other word will be [UNK]."""
    known = np.isin(spelled.symbols, alphabet)
    sizes = np.diff(spelled.offsets)
    keep = np.add.reduceat(known.astype(np.int64), spelled.offsets[:-1]) == sizes
    offsets = np.concatenate(([0], np.cumsum(sizes[keep])))
    return _Spelling(spelled.symbols[np.repeat(keep, sizes)], offsets, spelled.counts[keep])


def _learn(
    spelled: _Spelling, alphabet: NDArray[np.int64], specials: Sequence[str], vocab_size: int, min_count: int
) -> tuple[list[str], list[tuple[str, str]]]:
    """All pieces in the order of their ids, and the merges that made them."""
    pieces = [*specials, *("##" * (a % 2) + chr(a // 2) for a in alphabet.tolist())]
    if len(pieces) >= vocab_size:
        raise DataError(
            f"a vocabulary of {vocab_size} has no room for {len(specials)} special tokens, an alphabet of "
            f"{len(alphabet)} symbols and anything else",
            fix=f"ask for more than {len(pieces)} pieces",
        )
    order = np.argsort(alphabet)
    inner = np.concatenate((np.zeros(len(specials), dtype=np.bool_), alphabet % 2 == 1))
    table = learn_merges(
        symbols=order[np.searchsorted(alphabet, spelled.symbols, sorter=order)] + len(specials),
        offsets=spelled.offsets,
        counts=spelled.counts,
        bodies=np.concatenate((mix(-1, np.arange(len(specials))), mix(0, alphabet // 2))),
        inner=inner,
        new_pieces=vocab_size - len(pieces),
        min_count=min_count,
    )
    mark = 2 if inner.any() else 0  # what is joined to the right of something carries "##" in WordPiece
    merges = []
    for left, right, piece in table.tolist():
        merges.append((pieces[left], pieces[right]))
        if piece == len(pieces):
            pieces.append(pieces[left] + pieces[right][mark:])
    return pieces, merges
