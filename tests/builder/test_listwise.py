"""Listwise distillation without labels: what queries are asked against, and what a group holds."""

import json

import numpy as np
import pytest

from liebig.base import pipeline
from liebig.base.records import Passage
from liebig.builder import listwise, training
from liebig.builder.build import STAGES as OWN, BuildConfig, build
from liebig.collection.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.commands import STAGES
from liebig.formats.items import Item, Where
from liebig.model.encoder import Encoder
from liebig.search.retriever import Retriever
from tests.builder.test_lessons import model, passages

TABLE = {**STAGES, **{stage.name: stage for stage in OWN}}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Drills of a small corpus, both indexes, groups, and a few steps of training."""
    home = tmp_path_factory.mktemp("listwise")
    with CollectionWriter(home / "rest") as writer:
        for passage in passages():
            writer.add(Item(passage, Where("test")))
    model(home / "start", 32, 1)

    def run(name, kind, **fields):
        planned = pipeline.plan_stages(TABLE, {name: {"kind": kind, **fields}}, home)[0]
        pipeline.run_stage(planned.stage, planned.config, planned.out)
        return str(planned.out)

    drills = run("drills", "drills", collection=str(home / "rest"), passages=str(home / "rest"))
    bm25 = run("bm25", "bm25", collection=drills)
    vectors = run("vectors", "encode", source=drills, model=str(home / "start"))
    run("ranked", "ranked", drills=drills, bm25=bm25, vectors=vectors, keep=6)
    return home, run


def about(collection):
    found = {}
    for judgement in collection.judgements("train"):
        found.setdefault(judgement.query, []).append(judgement.passage)
    return found


def test_what_a_query_was_cut_from_is_taken_out_of_the_passage(world):
    home, _ = world
    drills = Collection(home / "drills")
    whole = {p.id: p for p in passages()}
    asked = {p.id: p for p in drills.passages()}
    cut = [id for id, p in asked.items() if p.text != whole[id].text]
    assert cut, "claims are taken out"
    assert all(len(asked[id].text) < len(whole[id].text) for id in cut)
    assert {p.title == "" for p in asked.values()} == {True, False}, "some passages keep their titles"
    for query, ids in about(drills).items():
        text = next(q.text for q in drills.queries("train") if q.id == query)
        assert not any(asked[id].title == text for id in ids), "no title is asked of a passage that shows it"


def test_groups_have_the_hybrids_scores_and_no_positive_among_the_candidates(world):
    home, _ = world
    ranked, relevant = Collection(home / "ranked"), about(Collection(home / "drills"))
    groups = list(ranked.groups("train"))
    assert groups
    for group in groups:
        assert group.positives[0] in relevant[group.query]
        assert not set(group.negatives) & set(relevant[group.query])
        assert len(group.negatives) <= 6
        assert list(group.negative_scores) == sorted(group.negative_scores, reverse=True)
        assert all(0 <= score <= 1 for score in (*group.positive_scores, *group.negative_scores))


def test_near_copies_are_left_out_and_what_ranks_higher_is_not_pushed_away():
    texts = {
        "own": "barley needs nitrogen and much water in the spring of the year",
        "copy": "Barley needs nitrogen and much water in the spring of the year.",
        "better": "nitrogen is what barley wants most of all in a wet spring",
        "worse": "the comet came back after seventy years of darkness in space",
        "own too": "water is scarce where barley grows",
    }
    scores = {"better": 0.9, "copy": 0.8, "own": 0.7, "worse": 0.2, "own too": 0.1}
    group, relevant = listwise.ranked_group("q", ["own too", "own"], scores, texts, keep=5)
    assert group.positives == ("own",), "of several the one that the hybrid likes best"
    assert group.negatives == ("better", "worse")
    assert (group.positive_scores, group.negative_scores) == ((0.7,), (0.9, 0.2))
    assert set(relevant) == {"own", "own too", "copy", "better"}
    few, _ = listwise.ranked_group("q", ["own"], scores, texts, keep=1)
    assert few.negatives == ("better",)
    unseen, _ = listwise.ranked_group("q", ["elsewhere"], scores, {**texts, "elsewhere": "x"}, keep=1)
    assert unseen.positive_scores == (0.0,)


def test_a_start_is_trained_and_its_mean_reads_texts_as_before(world):
    home, run = world
    traits = training.Start.of(home / "start")
    recipe = training.distill_recipe(home / "start", traits, home / "ranked", minutes=1.0)
    recipe["loop"] |= {"steps": 2}
    run("distilled", "finetune", **recipe)
    run("mean", "mean", start=str(home / "start"), trained=str(home / "distilled" / "model"))
    start, mean = Encoder.load(home / "start"), Encoder.load(home / "mean" / "model")
    assert (mean.max_length, mean.layout, mean.similarity) == (start.max_length, start.layout, "cosine")
    text = Passage("p", "Every house keeps some barley.", "The book of barley", "")
    before, after = (one.encode_texts([text.text]) for one in (start, mean))
    assert before.shape == after.shape
    assert not np.array_equal(before, after)


def test_a_build_can_train_on_the_rankings_of_its_hybrid(world, tmp_path, monkeypatch):
    home, _ = world
    rows = [{"_id": p.id, "title": p.title, "text": p.text} for p in passages()]
    (tmp_path / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(training, "METHOD", "listwise")
    for name in ("FEWEST_TOKENS", "FEWEST_EXAMPLES"):
        monkeypatch.setattr(training, name, 1)
    config = BuildConfig(sources=(str(tmp_path / "source.jsonl"),), model=str(home / "start"), minutes=0.05)
    build(STAGES, config, tmp_path / "out", print)
    manifest = json.loads((tmp_path / "out" / "work" / "trained" / "manifest.json").read_text())
    assert manifest["recipe"]["objective"]["kind"] == "distill"
    assert Retriever.from_folder(tmp_path / "out").search("violin", 1)
