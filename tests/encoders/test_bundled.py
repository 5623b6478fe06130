"""Encoders that come with the package: found by name, small, and loaded by everyone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig import encoders
from liebig.base.errors import WorkspaceError
from liebig.model.encoder import Encoder

LARGEST = 20_000_000  # bytes of a folder in the package
QUESTIONS = ["what do bees make", "who wrote Hamlet", "how tall is mount Everest", "why is the sky blue"]
ANSWERS = [
    "Honey is gathered in the hive from the nectar of flowers and kept for the winter.",
    "The tragedy of the prince of Denmark is a play by William Shakespeare, staged about 1600.",
    "The highest peak of the Himalayas rises 8,849 metres above the sea.",
    "Air scatters the short waves of sunlight more than the long ones, so colour reaches us from all sides.",
]


def test_the_default_is_there_and_found_with_and_without_its_prefix():
    assert encoders.DEFAULT in encoders.names()
    assert encoders.folder() == encoders.folder(encoders.PREFIX + encoders.DEFAULT)
    assert (encoders.folder() / "model.safetensors").is_file()


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=encoders.PREFIX + encoders.DEFAULT):
        encoders.folder("liebig:maxi")


def test_a_retired_encoder_is_refused_with_what_to_do():
    with pytest.raises(
        ValueError, match=f"mini-v2 is no longer .* name liebig:{encoders.DEFAULT}, and build again"
    ):
        encoders.folder("liebig:mini-v2")


@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_is_small_enough_for_the_package(name):
    files = [path for path in (encoders.HOME / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST


def test_matrices_are_expanded_once_into_the_cache(tmp_path):
    packaged = encoders.HOME / encoders.DEFAULT
    folder = encoders.expanded(packaged, tmp_path)
    assert folder.parent == tmp_path / "encoders"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    stored, whole = load_file(packaged / encoders.STORED), load_file(folder / encoders.WEIGHTS)
    matrix = "bert.embeddings.word_embeddings.weight"
    rows = stored[matrix].float() * stored[matrix + encoders.SCALE].float()
    assert torch.equal(whole[matrix], rows.half())
    assert {value.dtype for value in whole.values()} == {torch.float16}
    encoders.expanded.cache_clear()
    before = (folder / encoders.WEIGHTS).stat().st_mtime_ns
    assert encoders.expanded(packaged, tmp_path) == folder
    assert (folder / encoders.WEIGHTS).stat().st_mtime_ns == before


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="LIEBIG_CACHE"):
        encoders.expanded(encoders.HOME / encoders.DEFAULT, tmp_path / "file")


def loads_in_float32_with_our_vectors(folder: Path) -> None:
    """As a user calls it: half precision is about 200 times slower on a CPU, so the folder must not ask for it."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu")
    assert {parameter.dtype for parameter in theirs.parameters()} == {torch.float32}
    # Two programs add up the same float32 products in another order: 1e-5 for vectors of length 1.
    ours = Encoder.load(folder).encode_texts([*QUESTIONS, *ANSWERS])
    np.testing.assert_allclose(ours, theirs.encode([*QUESTIONS, *ANSWERS]), atol=1e-5)


@pytest.mark.parametrize("name", encoders.names())
def test_sentence_transformers_loads_it_in_float32_with_the_same_vectors(name):
    loads_in_float32_with_our_vectors(encoders.folder(name))


@pytest.mark.parametrize("name", encoders.names())
def test_what_is_saved_from_it_is_float32_too(name, tmp_path):
    Encoder.load(encoders.folder(name)).save(tmp_path / "saved")
    loads_in_float32_with_our_vectors(tmp_path / "saved")


def test_the_default_is_a_retriever_every_question_finds_its_answer():
    encoder = Encoder.load(encoders.folder())
    questions, answers = encoder.encode_texts(QUESTIONS), encoder.encode_texts(ANSWERS)
    assert (questions @ answers.T).argmax(axis=1).tolist() == list(range(len(QUESTIONS)))


def test_a_text_is_read_up_to_its_512th_token():
    encoder, words = Encoder.load(encoders.folder()), ["the"] * 700
    changed = [
        [*words[:place], "barley", *words[place + 1 :]] for place in (509, 510)
    ]  # [CLS] stands before them
    whole, last, behind = encoder.encode_texts([" ".join(text) for text in (words, *changed)])
    assert last @ whole < 1 - 1e-4
    assert behind @ whole == pytest.approx(1.0, abs=1e-6)


def test_the_card_says_where_it_comes_from_and_what_it_is_worth():
    card = " ".join((encoders.folder() / "README.md").read_text(encoding="utf-8").split())
    for words in (
        f"`{encoders.PREFIX}{encoders.DEFAULT}`",
        "all-mpnet-base-v2",
        "all-MiniLM-L6-v2",
        "bge-small-en-v1.5",
        "e5-small",
        "CC BY-SA",
        "| bm25 |",
        "| mini-v3 |",
        "| mini-v3 + bm25 |",
        "left out altogether",
    ):
        assert words in card
