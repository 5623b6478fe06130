"""Vectors of sentences beside those of passages: encoded, fused as a third part, filtered, updated, checked."""

import json
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest

from liebig.base.config import parse
from liebig.base.errors import LiebigError
from liebig.base.records import Passage, Query
from liebig.builder import check, judge as judging
from liebig.builder.judge import SystemChoice
from liebig.builder.update import update
from liebig.commands.doctor import examine
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.search.encode_texts import sentence_items
from liebig.search.fusion import SENTENCE_SHARE, weighted_by
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read
from liebig.search.systems import open_system
from liebig.search.token_windows import TextItem, sentence_parts
from liebig.stages.encode import EncodeConfig
from tests.worlds.books import TOPICS, write_documents

CHOICE = SystemChoice(sentences=True).as_deployed


@pytest.fixture
def chosen(made, tmp_path, monkeypatch):
    """A retriever whose check has chosen sentences."""
    monkeypatch.setattr(judging.Decision, "choice", property(lambda decision: CHOICE))
    monkeypatch.setattr(check, "undecided", lambda config: {**UNDECIDED})
    source = write_documents(tmp_path / "source", TOPICS[:5])
    made(source, tmp_path / "out")
    return source, tmp_path / "out"


UNDECIDED = {
    "questions": {}, "chosen": CHOICE.name, "rows": [], "why": [], "fair": False, "spread": 1.0,
    "choice": asdict(CHOICE),
}  # fmt: skip


def test_sentences_are_named_after_their_passages_and_have_no_titles():
    items = [
        TextItem("a", Passage("a", "Barley grows. It needs rain.", "A title")),
        TextItem("b", Passage("b", "")),
    ]
    found = list(sentence_items(items))
    assert [item.id for item in found] == ["a#0", "a#1", "b#0"]
    assert [item.record.text for item in found] == ["Barley grows.", "It needs rain.", ""]
    assert {item.record.title for item in found} == {""}


def test_a_hybrid_has_sentences_as_its_third_part(chosen):
    _, out = chosen
    retriever = Retriever.from_folder(out)
    generation = retriever.current
    assert read(out).sentences == "sentences-1"
    assert len(generation.sentences) > len(generation.index)
    answer = generation.systems()["hybrid"].answer([Query("", "origin of the comet")], 5)
    assert list(answer.parts) == ["bm25", "dense", "sentences"]
    lists = [hits[0] for hits in answer.parts.values()]
    expected = weighted_by(CHOICE.weight, CHOICE.norm, SENTENCE_SHARE, read(out).spread)(lists)[:5]
    assert answer.hits[0] == expected
    assert sum(
        weighted_by(CHOICE.weight, CHOICE.norm, SENTENCE_SHARE, read(out).spread).keywords["weights"]
    ) == pytest.approx(1)
    assert all("#" not in id for id, _ in lists[2]), "sentences answer with their passages"
    hits = retriever.search("origin of the comet", 3)
    assert set(hits[0].ranks) == {"bm25", "dense", "sentences"}
    assert retriever.info()["sentences"]["kind"] == "exact"


def test_the_score_of_a_passage_is_that_of_its_best_sentence(chosen):
    _, out = chosen
    generation = Retriever.from_folder(out).current
    system = open_system(out / "sentences-1", model=out / "model-1")
    hits = system.search([Query("", "steam")], 4)[0]
    vector = generation.encode(["steam"], "query")[0]
    encoder = Encoder.load(out / "model-1")
    for id, score in hits:
        passage = generation.collection.passage(id)
        ids = encoder.layout_for("passage").lists([passage])[0]
        states = encoder.backbone(Packed.from_lists([ids])).last.detach().numpy()
        ends = np.cumsum([len(encoder.tokenizer.encode(part)) for part in sentence_parts(passage.text)])
        first = len(ids) - 1 - ends[-1]  # behind the title; a special token is the last
        own = [states[first + a : first + b].mean(0) for a, b in pairwise([0, *ends])]
        best = max(float(np.dot(v, vector)) for v in own)
        # Stored in fp16: 2^-11 of a number near 1, and as much again from sums in another order.
        assert score == pytest.approx(best, rel=2e-3, abs=2e-3)


def test_filters_hold_for_sentences_too(chosen):
    _, out = chosen
    retriever = Retriever.from_folder(out)
    doc = retriever.search("comet", 1)[0].doc
    found = retriever.search("steam", 10, filters={"title": retriever.document(doc).title})
    assert found
    assert {hit.doc for hit in found} == {doc}


def test_an_update_finds_what_a_rebuild_finds(chosen, made, tmp_path):
    source, out = chosen
    gone = sorted(source.glob("*.md"))[0]
    gone.unlink()
    (source / "comet.md").write_text(
        "# Comets\n\nThe origin of the comet is a cloud. It has a tail. It is far.\n"
    )
    write_documents(source, ["quince"])
    update(out, [str(source)], lambda line: None)
    made(source, tmp_path / "again")
    assert read(out).sentences == "sentences-2"
    for question in ("origin of the comet", "quince", "a tail"):
        both = [
            {hit.id: round(hit.score, 2) for hit in Retriever.from_folder(folder).search(question, 10)}
            for folder in (out, tmp_path / "again")
        ]
        assert both[0] == both[1]
    assert all(finding.good for finding in examine(out))


def test_a_folder_without_sentences_is_read_as_before(made, tmp_path):
    made(write_documents(tmp_path / "source", TOPICS[:3]), tmp_path / "out")
    description = json.loads((tmp_path / "out" / "retriever.json").read_text())
    del description["sentences"]
    (tmp_path / "out" / "retriever.json").write_text(json.dumps(description))
    assert Retriever.from_folder(tmp_path / "out").search("steam", 1)


def test_sentences_are_not_cut_into_pieces_again(tmp_path):
    with pytest.raises(LiebigError, match="one vector of each sentence"):
        parse(
            EncodeConfig,
            {"model": str(tmp_path), "source": str(tmp_path), "what": "sentences", "long": "max"},
        )
