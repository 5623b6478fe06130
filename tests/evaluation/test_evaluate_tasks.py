"""Similarity files, built triplets, candidates, and the search an encoder is evaluated by."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Passage, Query, ScoredPair, Section, Tuple
from liebig.evaluation import drawn_tasks
from liebig.evaluation.drawn_tasks import build, draw_groups, usable_sentences
from liebig.evaluation.encoders import (
    ModelScorer,
    as_written,
    pair_similarities,
    rank_candidates,
    search_all,
    triplet_values,
)
from liebig.evaluation.runs import open_run
from liebig.evaluation.scoring import Bootstrap, score_candidates, score_pairs
from liebig.evaluation.tasks import Task, read_task
from liebig.measures import evaluator as judgements, parse_all
from liebig.measures.evaluator import RunBlock, evaluate
from tests.worlds.evaluation import GRADES, PASSAGES, QUERIES, bag_of_words, beir_folder, exact

QUESTIONS = [Query(name, text) for name, (text, _) in QUERIES.items()]
TEXTS = [Passage(name, text, title) for name, (title, text) in PASSAGES.items()]


def test_sts_benchmark_is_read_from_its_own_files(tmp_path: Path) -> None:
    benchmark = tmp_path / "sts-test.csv"
    benchmark.write_text("main-captions\tMSRvid\t2012test\t0024\t2.5\tA girl.\tA boy.\n")
    assert list(read_task(benchmark).pairs) == [ScoredPair("A girl.", "A boy.", 2.5)]


def test_pairs_of_the_plain_csv_are_read(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text('"A, b.",C d.,3.0\nE.,F.,1.0\n')
    assert list(read_task(path).pairs) == [ScoredPair("A, b.", "C d.", 3.0), ScoredPair("E.", "F.", 1.0)]


def test_a_file_named_after_its_split_goes_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "stsb" / "test.csv"
    path.parent.mkdir()
    path.write_text("a,b,3.0\nc,d,1.0\n")
    assert read_task(path).label == "stsb-test"


def document(name: str, *sections: tuple[str, list[str]]) -> Document:
    return Document(
        name, name, tuple(Section(heading, tuple(paragraphs)) for heading, paragraphs in sections)
    )


def sentences(*words: str) -> list[str]:
    return [f"This is a sentence about {word} alone." for word in words]


def test_triplets_pair_a_section_with_itself_and_against_another() -> None:
    first, second = sentences("apples", "pears", "plums"), sentences("cars", "ships", "trains")
    documents = [document("d", ("Fruit", first), ("Traffic", second), ("References", sentences("x", "y")))]
    made = list(build(documents, limit=100, seed=1))
    assert made == list(build(documents, limit=100, seed=1))
    assert len({(t.anchor, t.positive, t.negatives) for t in made}) == len(made) > 1
    for triplet in made:
        home, away = (first, second) if triplet.anchor in first else (second, first)
        assert triplet.anchor in home
        assert triplet.positive in home
        assert triplet.negatives[0] in away
        assert triplet.anchor != triplet.positive


def test_sentences_of_a_triplet_have_5_to_50_words_and_stand_under_a_heading_that_says_something() -> None:
    kept = [" ".join(["word"] * count) + "." for count in (5, 50)]
    others = [" ".join(["word"] * count) + "." for count in (4, 51)]
    for heading, expected in (("History", kept), ("References", []), (" ", [])):
        assert usable_sentences(Section(heading, (*kept, *others))) == expected


def test_documents_without_two_sections_give_no_triplet() -> None:
    documents = [
        document("d", ("Fruit", sentences("a", "b"))),
        document("e", ("", sentences("a")), ("X", ["Short."])),
    ]
    assert list(build(documents, limit=10, seed=0)) == []


def test_passages_are_not_read_before_they_are_needed(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "cities")
    with (folder / "corpus.jsonl").open("a") as file:
        file.write("{broken\n")
    task = read_task(folder)
    assert list(task.queries) == list(QUERIES)
    with pytest.raises(DataError, match="not valid JSON") as refused:
        list(task.passages())
    assert refused.value.line == len(PASSAGES) + 1


def test_the_limit_and_the_share_of_a_document_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_tasks, "PER_DOCUMENT", 2)
    documents = [
        document(str(i), ("A", sentences("a", "b", "c")), ("B", sentences("d", "e"))) for i in range(9)
    ]
    assert len(list(build(documents, limit=7, seed=0))) == 7
    assert len(list(build(documents[:1], limit=100, seed=0))) <= 2


def searched(depth: int, window: int = 100) -> RunBlock:
    parts = [TEXTS[i : i + window] for i in range(0, len(TEXTS), window)]
    windows = [([text.id for text in part], bag_of_words(part, "passage")) for part in parts]
    return search_all([q.id for q in QUESTIONS], bag_of_words(QUESTIONS, "query"), windows, exact, depth)


@pytest.mark.parametrize("window", [1, 2, 100])
def test_searching_in_windows_equals_searching_at_once(window: int) -> None:
    block, whole = searched(depth=3, window=window), searched(depth=3)
    assert [block.passages(i) for i in range(4)] == [whole.passages(i) for i in range(4)]
    scores = evaluate([block], judgements.judgements_from_mapping(GRADES), parse_all(["RR@10"]))
    assert scores.values[:2, 0].tolist() == [1.0, 1.0]


def test_a_search_deeper_than_the_collection_gives_what_there_is() -> None:
    block = searched(depth=50)
    assert np.diff(block.hits.segments).tolist() == [5, 5, 5, 5]


def test_hits_in_memory_are_those_that_the_run_file_gives_back(tmp_path: Path) -> None:
    """With ties, which are broken by id and written with scores that decrease, and with a query without hits."""
    numbers = np.array([[2, 0, 1, 3], [-1, -1, -1, -1], [3, 2, 0, -1], [1, 0, 3, 2]])
    scores = np.array([[0.7, 0.5, 0.5, 0.5], [0.0] * 4, [1e-6, 1e-6, -2.0, 0.0], [0.0, 0.0, -0.0, -1e-45]])
    found = judgements.block_from_matrix(["q1", "q2", "q3", "q4"], ["a", "bé", "c", "dd"], numbers, scores)
    block, path = as_written(found), tmp_path / "runs" / "x.trec"
    ModelScorer.write_run(block, path)
    read = judgements.regroup(list(open_run(path)))
    assert block.queries == read.queries == (b"q1", b"q3", b"q4")
    assert [block.passages(i) for i in range(3)] == [read.passages(i) for i in range(3)]
    assert block.passages(0) == ["c", "dd", "bé", "a"]
    for name in ("segments", "scores", "ranks"):
        mine, theirs = getattr(block.hits, name), getattr(read.hits, name)
        assert mine.dtype == theirs.dtype
        assert mine.tolist() == theirs.tolist()


def test_a_search_that_found_nothing_is_an_empty_run(tmp_path: Path) -> None:
    nothing = judgements.block_from_matrix(["q1"], ["a"], np.array([[-1]]), np.array([[0.0]]))
    ModelScorer.write_run(as_written(nothing), tmp_path / "x.trec")
    assert (tmp_path / "x.trec").read_bytes() == b""


def test_candidates_are_ranked_among_themselves() -> None:
    groups = [Group("q1", ("p1",), ("p5", "p3")), Group("q2", ("p3",), ("p2", "p1"))]
    block = rank_candidates(bag_of_words, groups, QUESTIONS[:2], TEXTS)
    task = Task("abs", Path("abs"), "dev", "candidates", groups=groups)
    scored = score_candidates(task, block, parse_all(["RR@100"]), Bootstrap(samples=100))
    assert scored.per_query.of("RR@100").tolist() == [1.0, 1 / 3]


def test_candidates_are_drawn_from_the_hits_that_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_tasks, "CANDIDATES", 9)
    run = {"q1": {f"d{i}": -float(i) for i in range(50)}, "q2": {"d1": 1.0}, "q3": {"d1": 1.0}}
    table = judgements.judgements_from_mapping(
        {"q1": {"d3": 1, "d5": 0, "z": 2}, "q2": {"d9": 1}, "q3": {"d1": 0}}
    )
    ranked = {query: sorted(hits, key=lambda name: -hits[name])[:20] for query, hits in run.items()}
    drawn = [list(draw_groups(ranked, table, seed=s)) for s in (1, 1, 2)]
    first, second = drawn[0]
    assert drawn[0] == drawn[1] != drawn[2]
    assert (first.query, first.positives, len(set(first.negatives))) == ("q1", ("d3",), 9)
    assert set(first.negatives) <= {f"d{i}" for i in range(20)} - {"d3", "d5"}
    assert (second.positives, second.negatives) == (("d9",), ("d1",))


def test_correlation_is_1_for_the_order_of_the_gold_scores() -> None:
    pairs = [ScoredPair("a b c d", " ".join("abcd"[:n] + "xyzw"[: 4 - n]), n) for n in range(5)]
    task = Task("toy", Path("toy"), "test", "pairs", pairs=pairs)
    scored = score_pairs(
        task, pair_similarities(bag_of_words, pairs), parse_all(["Spearman", "Pearson"]), Bootstrap()
    )
    assert scored.intervals["Spearman"].mean == pytest.approx(1.0)
    assert scored.extra["gold"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("gold", "similarities", "what"),
    [((5.0, 5.0), (0.1, 0.9), "scores of the pairs"), ((1.0, 5.0), (1.0, 1.0), "the model gives")],
)
def test_equal_scores_or_similarities_are_said_to_have_no_correlation(
    gold: tuple[float, ...], similarities: tuple[float, ...], what: str
) -> None:
    task = Task("toy", Path("toy"), "test", "pairs", pairs=[ScoredPair("a", "b", score) for score in gold])
    with pytest.raises(DataError, match=f"all 2 .*{what} are equal"):
        score_pairs(task, np.array(similarities), parse_all(["Spearman"]), Bootstrap())


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_a_triplet_is_right_where_the_positive_is_nearer(distance: str) -> None:
    triplets = [Tuple("red green blue", "red green", ("one two",)), Tuple("red", "one two", ("red red",))]
    assert triplet_values(bag_of_words, triplets, distance).tolist() == [1.0, 0.0]  # type: ignore[arg-type]


def test_combinations_of_splits_are_chosen_or_asked_for(tmp_path: Path) -> None:
    for split, name in itertools.product(["train", "dev"], ["pairs"]):
        (tmp_path / f"{name}-{split}.csv").write_text("A.,B.,1.0\n")
    with pytest.raises(DataError, match="which split"):
        read_task(tmp_path)
    assert len(read_task(tmp_path, split="dev").pairs) == 1
