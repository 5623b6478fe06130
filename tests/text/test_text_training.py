"""Vocabularies learned from texts: the merges of the reference trainer, the same bytes every time."""

import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer as Core, models, pre_tokenizers, trainers

from liebig.base.errors import DataError
from liebig.text import train_tokenizer as training
from liebig.text.tokenizer import Tokenizer
from tests.worlds.texts import CHINESE, ENGLISH, TEXTS, trained

WORDS = [
    "low",
    "lower",
    "lowest",
    "newer",
    "newest",
    "wider",
    "widest",
    "aaaa",
    "aaa",
    "abab",
    "banana",
    "bananas",
    "anna",
]


def reference_bpe(texts, vocab_size):
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(training.BPE_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return core.get_vocab(with_added_tokens=False)


@pytest.mark.parametrize("texts", [TEXTS * 2, (" ".join(WORDS * 3), "aaaaaaa aaaaaa " * 4)])
def test_byte_level_merges_are_those_of_the_reference_trainer(texts):
    ours = Tokenizer.train(texts, "bpe", 500, lowercase=False)
    assert ours.core.get_vocab(with_added_tokens=False) == reference_bpe(texts, 500)


@settings(max_examples=40)
@given(st.lists(st.text("abcd ", max_size=30), min_size=1, max_size=20))
def test_merges_equal_the_reference_on_any_text(texts):
    texts = ["aa ab abc", *texts]
    ours = Tokenizer.train(texts, "bpe", 290, lowercase=False)
    assert ours.core.get_vocab(with_added_tokens=False) == reference_bpe(texts, 290)


def plain_merges(words, new_pieces):
    """One merge after the other, by recounting everything; ties go to the smaller pair of places in the vocabulary."""
    pieces = sorted({piece for word in words for piece in word}, key=lambda piece: (piece[:2] == "##", piece))
    first = len(pieces)
    while len(pieces) < first + new_pieces:
        pairs = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], *map(pieces.index, pair)))
        pieces.append(best[0] + best[1].removeprefix("##"))
        words = Counter({replaced(word, best, pieces[-1]): count for word, count in words.items()})
    return pieces[first:]


def replaced(word, pair, new):
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(new)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def test_merges_of_a_wordpiece_equal_recounting_after_every_merge():
    counts = {word: 3 + i for i, word in enumerate(WORDS)}
    words = {(word[0], *("##" + letter for letter in word[1:])): count for word, count in counts.items()}
    alphabet = {piece for word in words for piece in word}
    text = " ".join(word for word, count in counts.items() for _ in range(count))
    vocab = Tokenizer.train([text], "wordpiece", 5 + len(alphabet) + 12).core.get_vocab()
    assert sorted(vocab, key=vocab.get)[-12:] == plain_merges(words, 12)


def test_training_gives_the_same_bytes_in_another_process():
    code = "from tests.worlds.texts import trained\nprint([trained(kind).digest for kind in ('wordpiece', 'bpe')])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": str(seed), "PATH": ""},
        ).stdout
        for seed in (1, 2)
    }
    assert digests == {f"{[trained(kind).digest for kind in ('wordpiece', 'bpe')]}\n"}


def test_texts_are_read_once_from_an_iterator():
    from_iterator = Tokenizer.train(iter(TEXTS * 3), "wordpiece", 420)
    from_list = Tokenizer.train(list(TEXTS * 3), "wordpiece", 420)
    assert from_iterator.digest == from_list.digest


def test_words_of_a_trained_wordpiece_come_back_whole():
    tokenizer = Tokenizer.train([ENGLISH] * 5, "wordpiece", 500)
    assert tokenizer.tokens(tokenizer.encode("The foxes jumping")) == ["the", "foxes", "jumping"]
    assert tokenizer.tokens(tokenizer.encode(CHINESE[:2])) == ["[UNK]", "[UNK]"]


def test_the_vocabulary_has_the_size_asked_for():
    assert Tokenizer.train(TEXTS * 3, "bpe", 300).vocab_size == 300
    assert Tokenizer.train(TEXTS * 3, "wordpiece", 250).vocab_size == 250


def test_a_vocabulary_without_room_is_an_error():
    with pytest.raises(DataError, match="has no room for 5 special tokens"):
        Tokenizer.train(TEXTS, "bpe", 200)


def test_texts_without_words_are_an_error():
    with pytest.raises(DataError, match="no words"):
        Tokenizer.train(["", "  "], "wordpiece", 200)


def test_rare_words_are_dropped_when_too_many_are_held():
    texts = ["common " * 5, *(f"w{i}" for i in range(100))]
    counts = training.count_words(texts, str.split, kept=50)
    assert counts["common"] == 5
    assert len(counts) <= 51


def test_half_characters_do_not_stop_training():
    assert Tokenizer.train(["a \ud800 b"] * 3, "wordpiece", 60).vocab_size > 5


def test_a_rare_letter_stays_in_the_alphabet_of_a_corpus_that_repeats_itself():
    texts = ["word soup without end " * 50_000, "Quiz a jazzy fox: 42!"]
    tokenizer = Tokenizer.train(texts, "wordpiece", 400)
    assert tokenizer.unk not in tokenizer.encode("quiz a jazzy fox: 42!")
