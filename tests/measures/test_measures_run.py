"""What the measures do with whole runs: ties, given ranks, self-retrieval, matrices, and errors a user can act on."""

from __future__ import annotations

import random

import numpy as np
import pytest

from liebig.base.errors import DataError
from liebig.base.records import Judgement
from liebig.measures import evaluator as blocks, evaluator as judgements, parse, parse_all
from liebig.measures.evaluator import Evaluator, RunBlock, evaluate
from liebig.measures.ranking import Hits
from liebig.ragged import Strings

Run = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]


def means(run: Run, grades: Grades, *names: str, exclude_self: bool = False) -> dict[str, float]:
    table = judgements.judgements_from_mapping(grades)
    return evaluate(
        [blocks.block_from_mapping(run)], table, parse_all(names), exclude_self=exclude_self
    ).means()


def test_ndcg_has_linear_gain_and_ndcg_exp_exponential() -> None:
    values = means({"q": {"y": 2.0, "x": 1.0}}, {"q": {"x": 3, "y": 1}}, "nDCG@10", "nDCG_exp@10")
    assert values["nDCG@10"] == pytest.approx((1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))
    assert values["nDCG_exp@10"] == pytest.approx((1 + 7 / np.log2(3)) / (7 + 1 / np.log2(3)))


def test_capped_recall_divides_by_what_fits_above_the_cut() -> None:
    run: Run = {"q": {f"d{i}": -float(i) for i in range(10)}}
    grades: Grades = {"q": {f"d{i}": 1 for i in range(5)}}
    assert means(run, grades, "R@2", "R_cap@2", "R_cap@10") == {"R@2": 0.4, "R_cap@2": 1.0, "R_cap@10": 1.0}


def test_judged_counts_hits_not_empty_places() -> None:
    values = means({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 0}}, "Judged@10", "Judged@1")
    assert values == {"Judged@10": 0.5, "Judged@1": 1.0}


def test_a_constant_scorer_has_one_value_whatever_the_order() -> None:
    ids = [f"d{i}" for i in range(200)]
    grades: Grades = {"q": {"d7": 1, "d150": 1}}
    values = set()
    for seed in range(5):
        shuffled = random.Random(seed).sample(ids, len(ids))
        values.add(
            tuple(means({"q": dict.fromkeys(shuffled, 0.3)}, grades, "RR", "nDCG@10", "R@100", "AP").values())
        )
    assert len(values) == 1


def test_ties_across_the_cut_are_counted() -> None:
    run: Run = {"q1": {"a": 1.0, "b": 1.0, "c": 0.5}, "q2": {"a": 1.0, "b": 0.9}, "q3": {"a": 1.0}}
    table = judgements.judgements_from_mapping(
        {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 1}}
    )
    scores = evaluate([blocks.block_from_mapping(run)], table, parse_all(["R@1", "R@2", "RR"]))
    assert scores.tied.sum(axis=0).tolist() == [1, 0, 0]
    assert scores.remarks() == "4 queries, 1 missing, tied across the cut: 1 (R@1), 0 (R@2)"


def marco_mrr(ranked: dict[str, dict[int, str]], relevant: dict[str, set[str]]) -> float:
    """The rule of MS MARCO's own script: candidates stand at the rank written, only the first ten count."""
    total = 0.0
    for query, targets in relevant.items():
        for i in range(10):
            if ranked.get(query, {}).get(i + 1) in targets:
                total += 1 / (i + 1)
                break
    return total / len(relevant)


def given_block(ranked: dict[str, dict[int, str]]) -> RunBlock:
    ids = Strings.pack(passage for hits in ranked.values() for passage in hits.values()).utf8
    segments = np.cumsum([0, *(len(hits) for hits in ranked.values())])
    ranks = np.array([rank for hits in ranked.values() for rank in hits], dtype=np.int32)
    scores = np.zeros(ranks.size, dtype=np.float32)
    return RunBlock(
        tuple(q.encode() for q in ranked),
        Hits(segments, ids.values, ids.offsets[:-1], ids.offsets[1:], scores, ranks),
    )


def test_rr_in_the_given_order_equals_the_ms_marco_script() -> None:
    rng = random.Random(3)
    relevant = {f"q{i}": {f"p{rng.randrange(30)}" for _ in range(rng.randint(1, 3))} for i in range(200)}
    ranked = {}
    for i in range(220):
        ranks = sorted(rng.sample(range(1, 40), 25))
        found = dict(zip(ranks, rng.sample([f"p{j}" for j in range(60)], 25)))
        ranked[f"q{i + 10}"] = dict(rng.sample(list(found.items()), 25))
    table = judgements.judgements_from_mapping(
        {query: dict.fromkeys(targets, 1) for query, targets in relevant.items()}
    )
    scores = evaluate([given_block(ranked)], table, parse_all(["RR(order=given)@10"]))
    assert scores.means()["RR(order=given)@10"] == pytest.approx(marco_mrr(ranked, relevant), abs=1e-12)
    assert scores.missing.sum() == 10


def test_the_given_order_needs_ranks() -> None:
    block = given_block({"q": {0: "a", 1: "b"}})
    with pytest.raises(DataError, match="rank"):
        evaluate(
            [block], judgements.judgements_from_mapping({"q": {"a": 1}}), parse_all(["RR(order=given)@10"])
        )


def test_self_retrieval_is_kept_unless_excluded() -> None:
    run: Run = {"a": {"a": 9.0, "b": 8.0, "c": 7.0}, "b": {"c": 2.0, "x": 1.0}}
    grades: Grades = {"a": {"b": 1}, "b": {"c": 1}}
    names = ("RR@10", "RR(order=given)@10")
    assert set(means(run, grades, *names).values()) == {0.75}
    assert set(means(run, grades, *names, exclude_self=True).values()) == {1.0}
    scores = evaluate(
        [blocks.block_from_mapping(run)], judgements.judgements_from_mapping(grades), parse_all(names)
    )
    assert scores.found_self.tolist() == [True, False]


def test_a_matrix_of_passage_numbers_equals_the_run_it_stands_for() -> None:
    rng = np.random.default_rng(0)
    ids, queries = [f"p{i}" for i in range(50)], [f"q{i}" for i in range(8)]
    passages = np.stack([rng.permutation(50)[:20] for _ in queries])
    found = np.sort(rng.integers(0, 9, (8, 20)) / 4)[:, ::-1].astype(np.float32)
    run = {q: {ids[p]: float(s) for p, s in zip(passages[i], found[i])} for i, q in enumerate(queries)}
    table = judgements.judgements_from_mapping(
        {q: {f"p{i}": int(i % 3) for i in range(0, 50, 4)} for q in queries}
    )
    names = parse_all(["nDCG@10", "RR", "AP", "R@5", "P(rel=2)@5", "RR(order=given)@10"])
    matrix = blocks.block_from_matrix(queries, ids, passages, found)
    assert (
        evaluate([matrix], table, names).values
        == evaluate([blocks.block_from_mapping(run)], table, names).values
    ).all()


def test_a_negative_passage_number_is_no_hit() -> None:
    matrix = blocks.block_from_matrix(["q"], ["a", "b"], np.array([[1, -1]]), np.array([[0.5, 0.0]]))
    scores = evaluate(
        [matrix], judgements.judgements_from_mapping({"q": {"a": 1, "b": 1}}), parse_all(["R@2"])
    )
    assert scores.hits.tolist() == [1]
    assert scores.values.tolist() == [[0.5]]


def test_blocks_one_by_one_equal_one_block() -> None:
    rng = random.Random(0)
    run = {f"q{i}": {f"d{j}": rng.random() for j in rng.sample(range(50), 30)} for i in range(20)}
    table = judgements.judgements_from_mapping(
        {f"q{i}": {f"d{j}": j % 3 for j in range(20)} for i in range(25)}
    )
    names = parse_all(["nDCG@10", "RR", "AP", "R@5"])
    evaluator = Evaluator(table, names)
    for query, hits in run.items():
        evaluator.add(blocks.block_from_mapping({query: hits}))
    whole = evaluate([blocks.block_from_mapping(run)], table, names)
    assert (evaluator.scores().values == whole.values).all()
    assert (evaluator.scores().missing == whole.missing).all()


def test_a_query_that_comes_twice_is_an_error() -> None:
    block = blocks.block_from_mapping({"q": {"a": 1.0}})
    with pytest.raises(DataError, match="together"):
        evaluate([block, block], judgements.judgements_from_mapping({"q": {"a": 1}}), parse_all(["RR"]))


def test_a_passage_found_twice_is_an_error_that_names_it() -> None:
    block = given_block({"p": {1: "z"}, "q": {1: "a", 2: "b", 3: "a"}})
    with pytest.raises(DataError, match=r"'a' is found twice for query 'q'"):
        evaluate(
            [block], judgements.judgements_from_mapping({"p": {"a": 1}, "q": {"c": 1}}), parse_all(["RR"])
        )


def test_a_score_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(DataError, match="not a number"):
        blocks.block_from_mapping({"q": {"a": float("nan")}})


def test_contradicting_judgements_are_an_error_and_repeated_ones_are_not() -> None:
    twice = [Judgement("q", "a", 1), Judgement("q", "a", 1)]
    assert judgements.judgements_from_records(twice).grades("q") == {"a": 1}
    with pytest.raises(DataError, match="judged 1 and 2"):
        judgements.judgements_from_records([*twice, Judgement("q", "a", 2)])


def test_values_of_one_measure_by_name() -> None:
    table = judgements.judgements_from_mapping({"q": {"a": 1}})
    scores = evaluate(
        [blocks.block_from_mapping({"q": {"b": 2.0, "a": 1.0}})], table, parse_all(["R@1", "RR"])
    )
    assert scores.of(parse("RR")).tolist() == [0.5]
