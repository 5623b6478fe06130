"""Tokenizers: the same ids as transformers, saved or loaded, and the tables that masking and views stand on."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer as Core, models, pre_tokenizers
from transformers import AutoTokenizer

from liebig.base.errors import DataError, ModelError
from liebig.text import word_cache as memo
from liebig.text.tokenizer import Tokenizer
from liebig.text.tokenizer_folder import TokenizerParts
from tests.worlds.texts import CHINESE, ENGLISH, NASTY, TEXTS, every, sentencepiece, trained

KINDS = ("wordpiece", "bpe", "sentencepiece")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_tokenizers_give_the_same_ids_in_transformers(kind, tmp_path):
    ours = every()[kind]
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *NASTY):
        bare = theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert [ours.unk if ours.special[i] else i for i in bare] == ours.encode(text)
        if "<s>" not in text:
            assert theirs(text, split_special_tokens=True).input_ids == ours.wrap(ours.encode(text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cannot_name_a_special_token(kind):
    tokenizer = every()[kind]
    names = [tokenizer.core.id_to_token(int(i)) for i in np.flatnonzero(tokenizer.special)]
    for text in (*names, " ".join(names), "x".join(names), "".join(names) * 3):
        ids = np.array(tokenizer.encode(text))
        assert set(ids[tokenizer.special[ids]]) <= {tokenizer.unk}
        assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_wrapped_as_transformers_wraps_them(kind, tmp_path):
    ours = every()[kind]
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)(ENGLISH, CHINESE, return_token_type_ids=True)
    ids, segments = ours.wrap_pair(ours.encode(ENGLISH), ours.encode(CHINESE))
    assert (ids, segments) == (theirs.input_ids, theirs.token_type_ids)


def test_special_tokens_have_the_ids_their_families_expect(tmp_path):
    bert, roberta = trained("wordpiece"), trained("bpe")
    assert (bert.pad, bert.unk, bert.cls, bert.sep, bert.mask) == (0, 1, 2, 3, 4)
    assert (roberta.cls, roberta.pad, roberta.sep, roberta.unk, roberta.mask) == (0, 1, 2, 3, 4)
    roberta.save(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).mask_token_id == roberta.mask


@pytest.mark.parametrize("kind", KINDS)
def test_saved_then_loaded_is_the_original(kind, tmp_path):
    ours = every()[kind]
    ours.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert again.digest == ours.digest
    assert again.template == ours.template
    assert again.max_length == ours.max_length == 512
    assert (again.continues == ours.continues).all()


def test_a_copy_in_another_process_is_the_same():
    ours = trained("bpe")
    copy = pickle.loads(pickle.dumps(ours))
    assert copy.digest == ours.digest
    assert copy.encode(ENGLISH) == ours.encode(ENGLISH)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_with_vocab_txt_alone_is_berts_tokenizer(lowercase, tmp_path):
    made = trained("wordpiece", lowercase)
    pieces = made.tokens(range(made.vocab_size))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded, theirs = Tokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *NASTY):
        wanted = theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert loaded.encode(text) == made.encode(text) == wanted


def test_the_configuration_decides_about_lowercasing_as_in_transformers(tmp_path):
    trained("wordpiece", lowercase=False).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (
        Tokenizer.from_folder(tmp_path).encode(ENGLISH) == theirs(ENGLISH, add_special_tokens=False).input_ids
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no tokenizer"),
        ({"spiece.model": "x"}, "save_pretrained"),
        ({"tokenizer.json": "{"}, "does not describe a tokenizer"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "nonsense"}, "not JSON"),
        ({"vocab.txt": "a\nb\n"}, r"lacks \[UNK\], \[CLS\], \[SEP\]"),
        ({"vocab.json": '{"<s>": 0, "</s>": 1}', "merges.txt": "a b\n"}, "save_pretrained"),
    ],
)
def test_folders_that_cannot_be_read_are_named_in_one_sentence(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_folder(tmp_path)


def test_a_missing_folder_or_role_is_an_error(tmp_path):
    with pytest.raises(ModelError, match="no such tokenizer folder"):
        Tokenizer.from_folder(tmp_path / "none")
    bare = Core(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(ModelError, match="no mask token"):
        _ = Tokenizer(TokenizerParts.named(bare, 8)).mask


def test_wordpieces_continue_after_hashes():
    tokenizer = trained("wordpiece")
    ids = tokenizer.encode("lazying foxed")
    pieces = tokenizer.tokens(ids)
    assert any(piece.startswith("##") for piece in pieces)
    assert [piece.startswith("##") for piece in pieces] == tokenizer.continues[ids].tolist()


def test_byte_level_pieces_continue_unless_a_space_is_in_front():
    tokenizer = trained("bpe", vocab_size=300)
    ids = tokenizer.encode(" quick brown foxes")
    expected = [not piece.startswith("Ġ") for piece in tokenizer.tokens(ids)]
    assert tokenizer.continues[ids].tolist() == expected
    assert not all(expected)


def test_sentencepieces_continue_unless_a_space_is_in_front():
    tokenizer = sentencepiece()
    ids = tokenizer.encode("the quick foxes jumping.")
    assert tokenizer.tokens(ids) == ["▁the", "▁quick", "▁fox", "es", "▁jump", "ing", "."]
    assert tokenizer.continues[ids].tolist() == [False, False, False, True, False, True, True]


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_ideographs_begin_words_because_no_spaces_do(kind):
    tokenizer = every()[kind]
    ids = [i for i in tokenizer.encode("天气很好") if tokenizer.tokens([i]) != ["▁"]]
    assert tokenizer.continues[ids].tolist() == [False] * 4


def test_the_first_byte_of_an_ideograph_begins_a_word():
    tokenizer = trained("bpe", vocab_size=262)
    assert tokenizer.continues[tokenizer.encode("天气の")].tolist() == [False, True, True] * 3
    assert tokenizer.continues[tokenizer.encode("한국")].all()  # Hangul is written with spaces


def test_special_tokens_are_marked_and_never_continue():
    for tokenizer in every().values():
        roles = [tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk]
        assert tokenizer.special[roles].all()
        assert tokenizer.special.sum() == 5
        assert not tokenizer.continues[roles].any()
        assert len(tokenizer.special) == len(tokenizer.continues) == tokenizer.vocab_size


def test_words_that_a_tokenizer_does_not_mark_are_an_error():
    core = Core(models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ModelError, match="whole words cannot be recognised"):
        _ = Tokenizer(TokenizerParts.named(core, 8)).continues


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize("lowercase", [True, False])
@settings(max_examples=150)
@given(
    text=st.text(st.sampled_from(" aAbZ.,'’-0\n\t\u00a0[]<>MASKmask/séß天の\u0301\x00$_"), max_size=40)
    | st.text()
)
def test_looking_words_up_gives_the_ids_of_the_library(kind, lowercase, text):
    tokenizer = trained(kind, lowercase)
    assert memo.scheme_of(tokenizer.core) is not None
    clean = text.encode("utf-8", "replace").decode()
    assert tokenizer.encode(clean) == tokenizer.core.encode(clean, add_special_tokens=False).ids


def test_a_full_table_of_words_changes_nothing():
    tokenizer = trained("wordpiece")
    small = memo.Memo(tokenizer.core, memo.scheme_of(tokenizer.core), kept=3)
    for _ in range(2):
        rows = [np.frombuffer(row, dtype=np.int32).tolist() for row in small.encode([*TEXTS, *NASTY])]
        assert rows == tokenizer.encode_batch([*TEXTS, *NASTY])
    assert len(small.table) == 3


def test_packed_ids_are_those_of_the_batch():
    for tokenizer in every().values():
        assert tokenizer.encode_packed([*TEXTS, ""]).to_lists() == tokenizer.encode_batch([*TEXTS, ""])


def test_offsets_are_characters_and_decoding_returns_the_text():
    tokenizer = trained("bpe", lowercase=False)
    spans = tokenizer.offsets(ENGLISH)
    assert len(spans) == len(tokenizer.encode(ENGLISH))
    assert "".join(ENGLISH[a:b] for a, b in spans) == ENGLISH.replace(" ", "")
    assert tokenizer.decode(tokenizer.encode(ENGLISH)) == ENGLISH


def test_half_characters_are_replaced_one_by_one():
    for tokenizer in every().values():
        assert tokenizer.encode("a \ud800 b") == tokenizer.encode("a \ufffd b")
        assert len(tokenizer.offsets("a \ud800 b")) == len(tokenizer.encode("a \ud800 b"))


def test_an_unknown_kind_is_an_error():
    with pytest.raises(DataError, match="no tokenizer kind"):
        Tokenizer.train(["a"], "sentence", 300)
