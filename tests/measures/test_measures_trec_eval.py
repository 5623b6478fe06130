"""Our measures equal what trec_eval 9.0.8 prints; the expected values are its output, checked in as numbers.

Cases: ties by score, by id as string and in float32, missing queries, graded and negative judgements, unjudged
documents, short lists, unusual ways to write a score. `unjudged` comes from trec_eval 10.0, the first to have `unj`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from liebig.base.records import Judgement
from liebig.evaluation.runs import read_blocks
from liebig.measures import evaluator as judgements, parse, parse_all
from liebig.measures.evaluator import Scores, evaluate

CASES = json.loads(Path(__file__).with_suffix(".json").read_text())


def judged(lines: list[str]) -> judgements.Judgements:
    fields = [line.split() for line in lines]
    return judgements.judgements_from_records(
        Judgement(query, passage, int(grade)) for query, _, passage, grade in fields
    )


def score(tmp_path: Path, lines: list[str], names: list[str], table: judgements.Judgements) -> Scores:
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{line}\n" for line in lines))
    return evaluate(read_blocks(run), table, parse_all(names))


@pytest.mark.parametrize("name", CASES)
def test_every_printed_value_equals_trec_evals(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    scores = score(tmp_path, case["run"], list(case["expected"]), judged(case["judgements"]))
    for measure, printed in case["expected"].items():
        ours = dict(zip(scores.queries, scores.of(parse(measure)))) | {"all": scores.means()[measure]}
        assert {query: f"{ours[query]:.4f}" for query in printed} == printed, measure


@pytest.mark.parametrize("name", CASES)
def test_queries_trec_eval_leaves_out_have_the_value_0(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    scores = score(tmp_path, case["run"], ["RR", "AP"], judged(case["judgements"]))
    printed = case["expected"]["RR"]
    left_out = [i for i, query in enumerate(scores.queries) if query not in printed]
    assert not scores.values[left_out].any()
    assert scores.missing[left_out].all()


@pytest.mark.parametrize("name", CASES)
def test_the_unjudged_share_equals_trec_evals(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    scores = score(tmp_path, case["run"], ["Judged@1", "Judged@5", "Judged@10"], judged(case["judgements"]))
    for cut, printed in case["unjudged"].items():
        values = dict(zip(scores.queries, zip(scores.of(parse(f"Judged@{cut}")), scores.hits)))
        for query, unjudged in printed.items():
            ours, hits = values[query]
            assert f"{(1 - ours) * min(hits, int(cut)) / int(cut):.4f}" == unjudged


@pytest.mark.parametrize("name", CASES)
def test_values_do_not_depend_on_the_order_of_lines(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    table, names = judged(case["judgements"]), list(case["expected"])
    by_query: dict[str, list[str]] = {}
    for line in case["run"]:
        by_query.setdefault(line.split()[0], []).append(line)
    groups = list(by_query.values())
    random.Random(1).shuffle(groups)
    shuffled = [line for group in groups for line in random.Random(2).sample(group, len(group))]
    assert (
        score(tmp_path, shuffled, names, table).values == score(tmp_path, case["run"], names, table).values
    ).all()


def test_an_empty_run_gives_0_for_every_judged_query(tmp_path: Path) -> None:
    table = judged(CASES["random"]["judgements"])
    scores = score(tmp_path, [], ["nDCG@10", "RR", "AP", "R@10", "Judged@5"], table)
    assert not scores.values.any()
    assert scores.missing.all()
    assert set(scores.means().values()) == {0.0}
