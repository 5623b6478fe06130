"""The token store: what goes in comes out, mapped, and nothing that was changed is opened."""

from __future__ import annotations

import json

import numpy as np
import pytest

from liebig.base import workspace
from liebig.base.errors import CorruptError, DataError
from liebig.base.records import Document, Section
from liebig.store import TokenStore
from liebig.store.writing import TokenShard, build, cut, id_type, join
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer
from tests.worlds.store import documents, store, tokenizer, write_store


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return store(tmp_path_factory.mktemp("store") / "s")


def test_every_level_gives_back_what_the_documents_hold(world):
    encode = tokenizer().encode
    assert len(world) == len(documents())
    for d, wanted in enumerate(documents()):
        assert world.ids[d] == wanted.id
        sections = range(world.documents[d], world.documents[d + 1])
        for s, section in zip(sections, wanted.sections):
            found = []
            for p in range(world.sections[s], world.sections[s + 1]):
                first, last = world.paragraphs[p], world.paragraphs[p + 1]
                found.append(list(world.tokens[world.sentences[first] : world.sentences[last]]))
            assert found == [encode(p) for p in section.paragraphs]
        assert list(world.document(d)) == [
            i for s in wanted.sections for p in s.paragraphs for i in encode(p)
        ]


def test_sentences_are_those_of_the_splitter(world):
    encode = tokenizer().encode
    wanted = [
        encode(text)
        for d in documents()
        for s in d.sections
        for p in s.paragraphs
        for text in sentences.split(p)
    ]
    found = np.split(world.tokens, world.sentences[1:-1])
    assert [list(f) for f in found] == wanted


def test_arrays_are_mapped_and_read_only(world):
    for array in (world.tokens, world.sentences, world.documents, world.ids.utf8.values):
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert world.document(5).base is not None, "a view"


def test_the_saved_tokenizer_is_the_one_that_made_the_tokens(world):
    assert world.tokenizer.digest == tokenizer().digest
    assert world.tokenizer.decode(world.document(3)) == world.tokenizer.decode(
        tokenizer().encode(documents()[3].text)
    )


def test_ids_take_any_text_and_can_be_walked(tmp_path):
    names = ["a", "ünï—漢字", "a b\tc", "🙂"]
    write_store(tmp_path / "s", [Document(n, "", (Section("", ("Ka lo.",)),)) for n in names], tokenizer())
    ids = TokenStore.open(tmp_path / "s").ids
    assert list(ids) == names
    assert ids[-1] == names[-1]
    with pytest.raises(IndexError):
        ids[4]


def test_a_sentence_keeps_the_ids_it_has_inside_its_paragraph():
    text = "Kalo mi nu. Reso ta vi bo!  Da fe gu?\nLomi."
    byte_level = Tokenizer.train([d.text for d in documents()], kind="bpe", vocab_size=400)
    pieces = list(cut(text, sentences.spans(text)))
    assert "".join(pieces) == text
    assert len(pieces) > 2
    assert [i for row in byte_level.encode_batch(pieces) for i in row] == byte_level.encode(text)


def test_sentences_without_tokens_are_left_out_and_empty_paragraphs_keep_their_place(tmp_path):
    sections = (Section("", ("", "Ka lo. \u200b", "Mi.")), Section("Empty", ()), Section("", ("\u200b",)))
    write_store(tmp_path / "s", [Document("x", "", sections), Document("y", "", ())], tokenizer())
    found = TokenStore.open(tmp_path / "s")
    assert list(found.documents) == [0, 3, 3]
    assert list(found.sections) == [0, 3, 3, 4]
    assert list(found.paragraphs) == [0, 0, 1, 2, 2]
    assert (np.diff(found.sentences) > 0).all()


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [0, 7, 0, 20, 13]])
def test_shards_joined_give_the_same_bytes_however_they_were_cut(tmp_path, sizes):
    everything, found = documents(), {}
    for name, cuts in (("whole", [40]), ("cut", sizes)):
        folder, paths, at = tmp_path / name, [], 0
        folder.mkdir()
        for number, size in enumerate(cuts):
            paths.append(tmp_path / f"{name}-{number}.npz")
            build(everything[at : at + size], tokenizer()).save(paths[-1])
            at += size
        join(paths, folder, tokenizer())
        found[name] = {p.name: p.read_bytes() for p in folder.glob("*.*")}
    assert found["whole"] == found["cut"]


def test_a_shard_is_read_back_as_it_was_saved(tmp_path):
    shard = build(documents()[:5], tokenizer())
    shard.save(tmp_path / "x.npz")
    again = TokenShard.load(tmp_path / "x.npz")
    for name, array in vars(shard).items():
        assert np.array_equal(array, getattr(again, name))
        assert array.dtype == getattr(again, name).dtype


def test_the_id_type_is_the_smallest_that_holds_the_vocabulary(world):
    assert world.tokens.dtype == np.uint16
    assert id_type(1 << 16) == np.uint16
    assert id_type((1 << 16) + 1) == np.uint32


@pytest.mark.parametrize(
    "name", ["tokens.npy", "sentences.npy", "ids.npy", "store.json", "tokenizer/tokenizer.json"]
)
def test_a_flipped_byte_is_noticed_before_anything_is_mapped(tmp_path, name):
    folder = store(tmp_path / "s", 5).path
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(CorruptError, match=name):
        TokenStore.open(folder)


@pytest.mark.parametrize("name", ["tokens.npy", "documents.npy", "ids.npy"])
def test_sizes_are_compared_even_when_hashes_are_not(tmp_path, name):
    folder = store(tmp_path / "s", 5).path
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(CorruptError, match=name):
        TokenStore.open(folder, hashes=False)


def test_levels_that_do_not_fit_each_other_are_refused_without_hashes(tmp_path):
    folder = store(tmp_path / "s", 5).path
    offsets = np.load(folder / "paragraphs.npy")
    offsets[-1] += 1
    np.save(folder / "paragraphs.npy", offsets)
    with pytest.raises(CorruptError, match="paragraphs"):
        TokenStore.open(folder, hashes=False)


def test_another_folder_and_another_format_are_refused_with_a_sentence(tmp_path):
    with workspace.stage(tmp_path / "other", kind="x", recipe={}, inputs={}) as folder:
        folder.write_text("a.txt", "a")
    with pytest.raises(DataError, match="not a token store"):
        TokenStore.open(tmp_path / "other")
    with workspace.stage(tmp_path / "new", kind="prepare", recipe={}, inputs={}) as folder:
        folder.write_text("store.json", json.dumps({"format": 99}))
    with pytest.raises(CorruptError, match="format = 99"):
        TokenStore.open(tmp_path / "new")


def test_a_store_without_a_document_opens(tmp_path):
    write_store(tmp_path / "s", [], tokenizer())
    found = TokenStore.open(tmp_path / "s")
    assert (len(found), len(found.tokens), list(found.ids)) == (0, 0, [])
