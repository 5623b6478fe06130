"""Listwise distillation without labels: what queries are asked against, and what a group holds."""

import json
import random

import numpy as np
import pytest

from liebig.base import pipeline
from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer
from liebig.builder import check, listwise, training
from liebig.builder.build import STAGES as OWN, BuildConfig, build, phases
from liebig.builder.pseudo_queries import cut_queries
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.model.encoder import Encoder
from liebig.search.mine import shared, triples
from liebig.search.retriever import Retriever
from liebig.stages import STAGES
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

    drills = run("drills", "drills", passages=str(home / "rest"), most=200)
    bm25 = run("bm25", "bm25", collection=drills)
    vectors = run("vectors", "encode", source=drills, model=str(home / "start"))
    run("ranked", "ranked", drills=drills, bm25=bm25, vectors=vectors)
    return home, run


def test_queries_are_of_all_kinds_and_about_one_passage(world):
    home, _ = world
    drills = Collection(home / "drills")
    about = {judgement.query: judgement.passage for judgement in drills.judgements("train")}
    texts = {query.id: query.text for query in drills.queries("train")}
    assert list(about) == list(texts)
    assert list(drills.passages()) == passages(), "what is asked about is the passages as they are"
    titles = {passage.id: passage.title for passage in passages()}
    with_title = [titles[about[id]] in text for id, text in texts.items()]
    assert 0.3 < np.mean(with_title) < 0.95, "where sentences are few, titles make up for them"


def test_a_corpus_without_titles_gives_the_other_kinds():
    bare = [Passage(p.id, p.text, "", p.doc) for p in passages()]
    made = cut_queries(bare, Analyzer("english"), listwise.SHARES, 40, seed=1)
    assert "titled" not in {question.kind for question in made}
    assert len(made) == len({question.text.casefold() for question in made}) > 0
    assert made == cut_queries(bare, Analyzer("english"), listwise.SHARES, 40, seed=1)
    assert made != cut_queries(bare, Analyzer("english"), listwise.SHARES, 40, seed=2)


def test_groups_have_the_hybrids_scores_and_a_bonus_on_what_the_query_is_about(world):
    home, _ = world
    ranked = Collection(home / "ranked")
    about = {j.query: j.passage for j in Collection(home / "drills").judgements("train")}
    groups = list(ranked.groups("train"))
    assert groups
    for group in groups:
        assert group.positives == (about[group.query],)
        assert about[group.query] not in group.negatives
        assert len(group.negatives) <= listwise.CANDIDATES
        assert list(group.negative_scores) == sorted(group.negative_scores, reverse=True)
        assert all(0 <= score <= 1 for score in group.negative_scores)
        assert listwise.BONUS <= group.positive_scores[0] <= 1 + listwise.BONUS


def test_near_copies_are_left_out_and_so_is_a_query_that_does_not_find_its_passage():
    texts = {
        "own": "barley needs nitrogen and much water in the spring of the year",
        "copy": "Barley needs nitrogen and much water in the spring of the year.",
        "better": "nitrogen is what barley wants most of all in a wet spring",
        "worse": "the comet came back after seventy years of darkness in space",
    }
    scores = {"better": 0.9, "copy": 0.8, "own": 0.7, "worse": 0.2}
    group = listwise.ranked_group("q", "own", scores, texts)
    assert group.negatives == ("better", "worse")
    assert (group.positive_scores, group.negative_scores) == ((0.7 + listwise.BONUS,), (0.9, 0.2))
    assert listwise.ranked_group("q", "elsewhere", scores, texts) is None
    assert listwise.ranked_group("q", "own", {"own": 1.0, "copy": 0.5}, texts) is None
    many = {**scores, **{f"p{n}": 0.75 for n in range(listwise.FOUND)}}
    assert listwise.ranked_group("q", "own", many, {**texts, **dict.fromkeys(many, "x")}) is None


def test_a_copy_is_told_by_the_share_of_the_smaller_set_of_triples():
    by = random.Random(0)
    own = [str(by.randrange(30)) for _ in range(60)]
    shares = []
    for size in (0, 1, 2, 3, 20, 60, 200):
        for kept in (0.0, 0.5, 0.79, 0.8, 0.81, 0.9, 1.0):
            words = [word if by.random() < kept else "other" for word in (own * 4)[:size]]
            share = shared(triples(words), triples(own))
            shares.append(share)
            numbers = frozenset(listwise.marks(" ".join(own)))
            assert listwise.repeats(" ".join(words), numbers) == (share >= listwise.DUPLICATE)
    assert min(shares) == 0 < listwise.DUPLICATE < max(shares)


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


@pytest.fixture
def built(world, tmp_path, monkeypatch):
    """Builds from the tiny encoder, which counts as a retriever, into `out`; gives the lines that were said."""
    monkeypatch.setattr(check, "FAIR", 0.0)
    monkeypatch.setattr(check, "FEWEST", 1)
    for name in ("FEWEST_TOKENS", "FEWEST_EXAMPLES"):
        monkeypatch.setattr(training, name, 1)

    def run(own_titles=False, **fields):
        source = tmp_path / "source.jsonl"
        titles = [f"{p.title} {p.id}" if own_titles else p.title for p in passages()]
        rows = [{"_id": p.id, "title": title, "text": p.text} for p, title in zip(passages(), titles)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        lines: list[str] = []
        config = BuildConfig(sources=(str(source),), model=str(world[0] / "start"), **fields)
        build(STAGES, config, tmp_path / "out", lines.append)
        return lines

    return run


def test_a_build_can_train_on_the_rankings_of_its_hybrid(built, tmp_path):
    built(minutes=0.002)
    manifest = json.loads((tmp_path / "out" / "work" / "trained" / "manifest.json").read_text())
    assert manifest["recipe"]["objective"]["kind"] == "distill"
    assert (tmp_path / "out" / "work" / "mean" / "model").is_dir()
    checks = check.read(next((tmp_path / "out").glob("checks-*")))
    assert any("and its sentences" in row["name"] for row in checks["rows"])
    assert Retriever.from_folder(tmp_path / "out").search("violin", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),  # the bundled encoder retrieves already
        ({"model": "liebig:mini-v2"}, False),  # the same by its name
        ({"minutes": 0}, False),
        ({"minutes": 5}, True),
        ({"teacher": "a/b"}, True),
        ({"questions": "q.jsonl"}, True),
        ({"model": "a/b"}, True),  # it may be none that retrieves
    ],
)
def test_the_bundled_encoder_is_trained_only_on_request(given, expected):
    config = BuildConfig(sources=("folder",), **given)
    assert training.may_train(config) == expected
    assert ("train" in phases(config)) == expected


def test_an_encoder_that_retrieves_is_not_trained_unless_minutes_are_given(built, tmp_path):
    lines = built()
    assert training.LEFT_OUT in lines
    assert not (tmp_path / "out" / "work" / "trained").exists()


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        ("aabb", True),
        ("abcd", False),
        ("aabc", True),
        ("aabcde", False),
        (["", "", "", ""], False),
        ("", False),
    ],
)
def test_training_asks_for_titles_that_several_passages_share(titles, expected):
    given = [Passage(str(i), "text", title, "d") for i, title in enumerate(titles)]
    assert listwise.tells_apart(given) == expected


def test_a_build_without_shared_titles_is_not_trained(built, tmp_path):
    lines = built(own_titles=True, minutes=0.002)
    assert any(line.startswith("training: skipped, because most documents are one passage") for line in lines)
    assert not (tmp_path / "out" / "work" / "trained").exists()
    assert Retriever.from_folder(tmp_path / "out").search("violin", 1)


def test_a_build_goes_on_where_no_query_finds_its_passage(built, tmp_path, monkeypatch):
    monkeypatch.setattr(listwise, "FOUND", 0)
    lines = built(minutes=0.002)
    assert "training: skipped, because no query cut from the documents finds its passage" in lines
    assert not (tmp_path / "out" / "work" / "trained").exists()
    assert Retriever.from_folder(tmp_path / "out").search("violin", 1)
