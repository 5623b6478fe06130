"""WordPiece in a compiled kernel: the ids of the library, whatever the text and the vocabulary."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import AddedToken, Tokenizer as Core, models, normalizers, pre_tokenizers

from liebig.text import tokenizer as tokenizers, wordpiece
from liebig.text.tokenizer import Tokenizer
from liebig.text.tokenizer_folder import TokenizerParts
from liebig.text.word_cache import Memo, scheme_of
from liebig.text.wordpiece import CompiledWordPiece
from tests.worlds.texts import NASTY, TEXTS, trained

LETTERS = " aAbZrivestn.,'’-09\n\r\t\x0b\u00a0\u2028[]<>MASK#/éßİ天の\u0301\x00\x7f$_"
texts = st.lists(st.text(st.sampled_from(LETTERS), max_size=40) | st.text(), max_size=4)


def bert(vocabulary, normalizer=None, **options):
    """A tokenizer of these pieces."""
    known = {piece: number for number, piece in enumerate(["[UNK]", *vocabulary])}
    core = Core(models.WordPiece(known, unk_token="[UNK]", **options))
    core.normalizer = normalizer or normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return core


def compiled(core):
    """The kernel in front of a table of words."""
    scheme = scheme_of(core)
    assert scheme is not None
    return CompiledWordPiece(core, Memo(core, scheme))


def expected(core, texts):
    return [core.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("lowercase", [True, False])
@settings(max_examples=200)
@given(texts=texts)
def test_ids_are_those_of_the_library(lowercase, texts):
    core = trained("wordpiece", lowercase).core
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    found = compiled(core).encode(texts)
    assert found.values.dtype == np.int32
    assert found.to_lists() == expected(core, texts)


@pytest.mark.parametrize("lowercase", [True, False])
def test_texts_of_every_kind_side_by_side(lowercase):
    core = trained("wordpiece", lowercase).core
    several = ["", *TEXTS, "", *NASTY, "天" * 500, "é " * 300, "x" * 300, ""]
    assert compiled(core).encode(several).to_lists() == expected(core, several)
    assert compiled(core).encode([]).to_lists() == []
    assert compiled(core).encode(["", ""]).to_lists() == [[], []]


@pytest.mark.parametrize(
    "core",
    [
        bert(["un", "##able", "unable", "##a", "##b", "a", "##bl", "##le", ".", "É", "é", "River"]),
        bert(["un", "able", "una"], continuing_subword_prefix=""),
        bert(["a", "##a", "b"], max_input_chars_per_word=4),
        bert(["a", "b"], continuing_subword_prefix="a"),
        bert(["a", "##a", "b"], max_input_chars_per_word=2**64 - 1),
        bert([]),
    ],
)
def test_unusual_vocabularies(core):
    words = [
        "unable",
        "UNABLE",
        "unab",
        "una",
        "a",
        "aaaa",
        "aaaaa",
        "ab",
        "aab",
        ".",
        "!",
        "a.b",
        "river",
        "é",
        "ab!",
    ]
    several = [*words, " ".join(words), "\t".join(words), ". ".join(words)]
    assert compiled(core).encode(several).to_lists() == expected(core, several)


@pytest.mark.parametrize("option", ["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"])
@settings(max_examples=100)
@given(texts=texts)
def test_every_way_to_normalise(option, texts):
    core = bert(
        [*"abrivestAZé天,.'", "##a", "##é", "##天", "river"], normalizers.BertNormalizer(**{option: False})
    )
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    assert compiled(core).encode(texts).to_lists() == expected(core, texts)


@pytest.mark.parametrize("token", ["Élan", "\x00ab", "\u200bab", "\u037ea", "É-a", "天a"])
def test_an_added_token_is_looked_for_in_normalised_text(token):
    core = bert([*"abeln;-", "##a", "##b", "##e", "##l", "##n"])
    core.add_tokens([AddedToken(token, normalized=True)])
    tokenizer = Tokenizer(TokenizerParts(core, {}, {}))
    for text in (token, "elan a", "belan", "ab", ";a", "e-a b", f"a{token}b"):
        assert tokenizer.encode(text) == core.encode(text, add_special_tokens=False).ids
        if tokenizer.compiles:
            assert compiled(core).encode([text]).to_lists() == expected(core, [text])


@pytest.mark.parametrize("kept", [0, 3, 1000])
def test_what_is_left_open_whatever_the_table_holds(kept):
    core = trained("wordpiece").core
    words = CompiledWordPiece(core, Memo(core, scheme_of(core), kept))
    several = [
        "river é river",
        "é " * 3 + "é" * 50,
        "stone [MASK] ß ß é",
        "天" * 41 + " bread",
        "río, río! " * 5,
    ]
    for _ in range(2):
        assert words.encode(several).to_lists() == expected(core, several)


@pytest.mark.parametrize("part", [1, 20, 1000])
def test_texts_go_through_it_in_parts(part, monkeypatch):
    core, sizes = trained("wordpiece").core, []
    real = CompiledWordPiece._encode
    monkeypatch.setattr(wordpiece, "PART", part)
    monkeypatch.setattr(
        CompiledWordPiece, "_encode", lambda self, texts: sizes.append(len(texts)) or real(self, texts)
    )
    several = ["river", "", "stone é bread", "x" * 50, "", "a"]
    assert compiled(core).encode(several).to_lists() == expected(core, several)
    assert sizes == {1: [2, 1, 2, 1], 20: [3, 3], 1000: [6]}[part]


@pytest.mark.parametrize("share", [1, 20])
def test_texts_of_other_scripts_are_looked_up(share, monkeypatch):
    core, asked = trained("wordpiece").core, []
    words = compiled(core)
    real = Memo.encode
    monkeypatch.setattr(Memo, "encode", lambda self, texts: asked.append(len(texts)) or real(self, texts))
    several = ["река и камень", "river stone bread " * share]
    assert words.encode(several).to_lists() == expected(core, several)
    assert asked == ([2] if share == 1 else [])


def test_added_tokens_are_left_to_the_library():
    core = bert(["a", "##b", "<", ">", "x"])
    core.add_tokens([AddedToken("<x>", normalized=False)])
    several = ["a<x>b <x> <x", "ab < x >"]
    found = compiled(core).encode(several).to_lists()
    assert found == expected(core, several)
    assert core.token_to_id("<x>") in found[0]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_much_text_is_cut_by_the_kernel(kind, monkeypatch):
    tokenizer = Tokenizer(TokenizerParts.named(trained(kind).core, 512))
    plain, used = tokenizer.encode_packed(TEXTS), []
    real = CompiledWordPiece.encode
    monkeypatch.setattr(
        CompiledWordPiece, "encode", lambda self, texts: used.append(len(texts)) or real(self, texts)
    )
    some = sum(map(len, TEXTS[1:]))
    monkeypatch.setattr(tokenizers, "MANY", sum(map(len, TEXTS)))
    monkeypatch.setattr(tokenizers, "SOME", some)  # once the kernel is there, less text is enough
    assert tokenizer.encode_batch(TEXTS[1:]) == plain.to_lists()[1:]
    assert tokenizer.encode_packed(TEXTS).to_lists() == plain.to_lists()
    assert tokenizer.encode_batch([*TEXTS, "a\ud800b"]) == [*plain.to_lists(), tokenizer.encode("a\ud800b")]
    assert tokenizer.encode_batch(TEXTS[1:]) == plain.to_lists()[1:]
    assert tokenizer.encode_batch(TEXTS[:1]) == plain.to_lists()[:1]
    twice = [len(TEXTS) + 1] * 2  # half a surrogate pair is found when it is encoded
    assert used == ([len(TEXTS), *twice, len(TEXTS) - 1] if kind == "wordpiece" else [])
    assert (tokenizer.threaded is tokenizer) == (kind == "wordpiece")


def test_without_numba_words_are_looked_up(monkeypatch):
    monkeypatch.setattr(tokenizers, "has_numba", lambda: False)
    monkeypatch.setattr(tokenizers, "MANY", 0)
    monkeypatch.setattr(tokenizers, "CompiledWordPiece", None)
    tokenizer = Tokenizer(TokenizerParts.named(trained("wordpiece").core, 512))
    assert tokenizer.encode_batch(TEXTS) == expected(tokenizer.core, TEXTS)
