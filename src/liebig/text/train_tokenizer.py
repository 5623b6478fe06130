"""A tokenizer of the corpus's own: WordPiece or byte-level BPE, the same bytes for the same texts.

Texts stream by once: words between spaces are counted, each different one is normalised and pre-tokenised
once, and merges are learned from the counts. Memory holds the counted words alone; past `KEPT`
of them the rarest are dropped. Cost: 30 M characters/s to count, and the library's trainer on the counted words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

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
    trainers,
)

from liebig.base.errors import DataError

WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BPE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KEPT = 4_000_000
COVERAGE = 0.9999
FIRST = 0xF0000  # the first of 131,000 characters that no text has a use for
LINE = 1000
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
    normalizer: normalizers.Normalizer | None,
) -> Core:
    """RoBERTa's tokenizer around a vocabulary and its merges."""
    core = Core(models.BPE(dict(vocab), list(merges)))
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    plain = [AddedToken(s, normalized=False, special=True) for s in BPE_SPECIALS[:4] if s in vocab]
    core.add_special_tokens([*plain, AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    core.post_processor = processors.RobertaProcessing(
        ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=False
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


class Words(NamedTuple):
    """Different words in alphabetical order, and how often each was met.

    A word is spelled in symbols: twice the code of a character, plus one inside a word ("##c" of WordPiece).
    """

    symbols: NDArray[np.int64]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


def _spelled(words: Counter[str], marks_inside: bool) -> Words:
    """The words in alphabetical order; the longest [UNK]-free word of BERT has 100 characters."""
    ordered = sorted(word for word in words if len(word) <= 100 or not marks_inside)
    codes = np.frombuffer("".join(ordered).encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
    offsets = np.zeros(len(ordered) + 1, dtype=np.int64)
    np.cumsum([len(word) for word in ordered], out=offsets[1:])
    inside = np.full(len(codes), int(marks_inside))
    inside[offsets[:-1]] = 0
    return Words(2 * codes + inside, offsets, np.array([words[word] for word in ordered], dtype=np.int64))


def _covering(spelled: Words, most: int) -> NDArray[np.int64]:
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


def _without_others(spelled: Words, alphabet: NDArray[np.int64]) -> Words:
    """The words written in `alphabet` alone: any other word will be [UNK]."""
    known = np.isin(spelled.symbols, alphabet)
    sizes = np.diff(spelled.offsets)
    keep = np.add.reduceat(known.astype(np.int64), spelled.offsets[:-1]) == sizes
    offsets = np.concatenate(([0], np.cumsum(sizes[keep])))
    return Words(spelled.symbols[np.repeat(keep, sizes)], offsets, spelled.counts[keep])


def _learn(
    words: Words, alphabet: NDArray[np.int64], specials: Sequence[str], vocab_size: int, min_count: int
) -> tuple[list[str], list[tuple[str, str]]]:
    """All pieces in the order of their ids, and the merges that made them.

    The library's trainer numbers the symbols inside words in the order of a randomly seeded hash table, and breaks ties
    by these numbers: two runs give two vocabularies. So every symbol of `alphabet` is written as a character of its
    own, from FIRST on, and all of them are given to the trainer in order, as if they were special tokens.
    """
    if len(specials) + len(alphabet) >= vocab_size:
        raise DataError(
            f"a vocabulary of {vocab_size} has no room for {len(specials)} special tokens, an alphabet of "
            f"{len(alphabet)} symbols and anything else",
            fix=f"ask for more than {len(specials) + len(alphabet)} pieces",
        )
    order = np.argsort(alphabet)
    places = order[np.searchsorted(alphabet, words.symbols, sorter=order)]
    text = (FIRST + places).astype("<u4").tobytes().decode("utf-32-le")
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=[*specials, *(chr(FIRST + place) for place in range(len(alphabet)))],
        show_progress=False,
    )
    bounds = zip(words.offsets.tolist(), words.offsets[1:].tolist(), words.counts.tolist())
    core.train_from_iterator(_repeated((text[a:b], count) for a, b, count in bounds), trainer)
    model = json.loads(core.to_str())["model"]
    spell = {chr(FIRST + place): chr(symbol // 2) for place, symbol in enumerate(alphabet.tolist())}
    inner = {chr(FIRST + place) for place in np.flatnonzero(alphabet % 2).tolist()}

    def piece(name: str) -> str:
        return "##" * (name[0] in inner) + "".join(spell[symbol] for symbol in name)

    learned = sorted(model["vocab"], key=model["vocab"].__getitem__)[len(specials) :]
    return [*specials, *map(piece, learned)], [(piece(a), piece(b)) for a, b in model["merges"]]


def _repeated(words: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Each word as often as it was met, in texts of at most LINE words."""
    for word, count in words:
        whole, rest = divmod(count, LINE)
        yield from repeat(f"{word} " * LINE, whole)
        yield f"{word} " * rest
