"""`liebig evaluate`: from a run and a collection to results, with the conventions of the set."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from liebig.base.errors import DataError, RecipeError
from liebig.base.statistics import Interval
from liebig.evaluation.results import TaskResult, read_per_query, read_results
from liebig.evaluation.runs import FirstHits, found_in, ranked_in
from liebig.evaluation.suites import FORUMS
from liebig.evaluation.tables import published_notes, rich_table
from liebig.stages.evaluate import group_means
from tests.worlds.evaluation import BAD, GOOD, PASSAGES, beir_folder, run_evaluate, run_init, write_run


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return beir_folder(tmp_path / "cities")


def test_values_of_every_query_are_kept(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "good.trec", GOOD)
    out = run_evaluate(tmp_path / "out", system=run, collections=[collection], measures=["RR@10", "R@10"])
    results = read_results(out)
    task = results.tasks[0]
    per_query = read_per_query(out, task)
    assert (results.system, task.label, task.queries) == ("good", "cities test", 4)
    assert dict(zip(per_query.queries, per_query.of("RR@10"))) == {"q1": 1, "q2": 1, "q3": 0.5, "q4": 0}
    assert task.measures["R@10"].mean == np.mean([1, 1, 0.5, 0])
    assert task.measures["R@10"].low <= task.measures["R@10"].mean <= task.measures["R@10"].high


def test_remarks_say_what_is_missing_and_notes_what_is_too_shallow(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "good.trec", GOOD)
    task = read_results(run_evaluate(tmp_path / "out", system=run, collections=[collection])).tasks[0]
    assert task.remarks.startswith("4 queries, 1 missing, tied across the cut: 0 (nDCG@10)")
    assert any("more than 3 hits" in note for note in task.notes)


def test_answers_are_matched_in_the_text(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "run.trec", GOOD)
    common = {
        "system": run,
        "collections": [collection],
        "data": "answers",
        "measures": ["Answer@1", "Answer@2"],
    }
    plain = read_per_query(*_first(run_evaluate(tmp_path / "a", **common)))
    assert plain.of("Answer@1").tolist() == [1, 0, 0, 0]
    assert plain.of("Answer@2").tolist() == [1, 0, 1, 0]


def test_questions_and_passages_may_come_from_different_files(tmp_path: Path, collection: Path) -> None:
    questions = tmp_path / "questions.test.jsonl"
    questions.write_text((collection / "queries.jsonl").read_text())
    run = write_run(tmp_path / "run.trec", GOOD)
    common = {"measures": ["Answer@2"], "data": "answers"}
    apart = run_evaluate(tmp_path / "a", system=run, collections=[questions], passages=collection, **common)
    whole = run_evaluate(tmp_path / "b", system=run, collections=[collection], **common)
    assert (read_per_query(*_first(apart)).values == read_per_query(*_first(whole)).values).all()


def test_a_question_without_an_answer_is_left_out_of_files_and_collections_alike(tmp_path: Path) -> None:
    passages, asked = beir_folder(tmp_path / "cities"), tmp_path / "asked.test.jsonl"
    rows = [
        {"_id": "q1", "text": "capital", "answers": ["Berlin"]},
        {"_id": "q2", "text": "x", "answers": []},
    ]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_init(tmp_path / "asked", asked)
    run = write_run(tmp_path / "run.trec", GOOD)
    for name in (asked, tmp_path / "asked"):
        values = {"system": run, "collections": [name], "passages": passages, "data": "answers"}
        task = read_results(run_evaluate(tmp_path / f"out-{name.name}", **values)).tasks[0]
        assert (task.queries, task.measures["Answer@1"].mean) == (1, 1.0)
        assert "Left out, because they have no answer to match: 1 question." in task.notes


def test_papers_figures_stand_beside_judgements_of_the_same_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qrels = tmp_path / "2019qrels-pass.txt"
    qrels.write_text("".join(f"{query} 0 d{query} 3\n" for query in range(43)))
    run = write_run(tmp_path / "run.trec", {str(query): {f"d{query}": 1.0} for query in range(43)})
    out = run_evaluate(tmp_path / "out", system=run, collections=[qrels])
    assert read_results(out).tasks[0].same_as_published
    assert "coCondenser" in (out / "results.md").read_text()
    notes = len(published_notes(read_results(out).tasks[0]))
    assert f"results.md has {notes} notes on the papers' figures" in capsys.readouterr().out


def test_a_run_over_other_passages_cannot_be_matched(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "run.trec", {"q1": {"elsewhere": 1.0}})
    with pytest.raises(DataError, match=r"'elsewhere'.*passages=DIR"):
        run_evaluate(tmp_path / "out", system=run, collections=[collection], data="answers")


def test_self_retrieval_is_noted_and_excluded_by_the_suite(tmp_path: Path) -> None:
    own = {**PASSAGES, "q1": ("", "capital of Germany")}
    run = write_run(tmp_path / "run.trec", {"q1": {"q1": 9.0, "p1": 3.0}})
    plain = run_evaluate(
        tmp_path / "a", system=run, collections=[beir_folder(tmp_path / "cities", own)], measures=["RR@10"]
    )
    suite = run_evaluate(
        tmp_path / "b", system=run, collections=[beir_folder(tmp_path / "arguana", own)], measures=["RR@10"]
    )
    assert read_per_query(*_first(plain)).of("RR@10")[0] == 0.5
    assert any("exclude_self=true" in note for note in read_results(plain).tasks[0].notes)
    assert read_per_query(*_first(suite)).of("RR@10")[0] == 1.0
    assert any("own id is taken out" in note for note in read_results(suite).tasks[0].notes)
    kept = run_evaluate(
        tmp_path / "c", system=run, collections=[tmp_path / "arguana"], measures=["RR@10"], exclude_self=False
    )
    assert read_per_query(*_first(kept)).of("RR@10")[0] == 0.5
    assert not any("own id is taken out" in note for note in read_results(kept).tasks[0].notes)


def test_papers_figures_stand_beside_the_same_set_only(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.trec", GOOD)
    out = run_evaluate(tmp_path / "out", system=run, collections=[beir_folder(tmp_path / "scifact")])
    task = read_results(out).tasks[0]
    assert task.suite == "beir/scifact"
    assert not task.same_as_published
    assert "contriever" not in (out / "results.md").read_text()


def test_lines_of_a_query_may_lie_apart(tmp_path: Path, collection: Path) -> None:
    lines = write_run(tmp_path / "good.trec", GOOD).read_text().splitlines()
    apart = tmp_path / "apart.trec"
    apart.write_text("\n".join(sorted(lines, key=lambda line: line.split()[3])) + "\n")
    common = {"measures": ["RR@10", "nDCG@10"]}
    a = run_evaluate(tmp_path / "a", system=tmp_path / "good.trec", collections=[collection], **common)
    b = run_evaluate(tmp_path / "b", system=apart, collections=[collection], **common)
    assert (read_per_query(*_first(a)).values == read_per_query(*_first(b)).values).all()
    assert any("regrouped" in note for note in read_results(b).tasks[0].notes)


@pytest.mark.parametrize("data", ["judgements", "answers"])
def test_a_run_with_a_passage_found_twice_is_named(tmp_path: Path, collection: Path, data: str) -> None:
    run = tmp_path / "twice.trec"
    run.write_text("q1 Q0 p1 1 2 x\nq1 Q0 p1 2 1 x\n")
    with pytest.raises(DataError, match=r"twice\.trec: passage 'p1' is found twice for query 'q1'"):
        run_evaluate(tmp_path / "out", system=run, collections=[collection], data=data)


def test_hits_are_the_same_whether_their_lines_lie_together_or_apart(tmp_path: Path) -> None:
    lines = ["q1 Q0 a 1 3 x", "q1 Q0 b 2 2 x", "q1 Q0 c 3 2 x", "q2 Q0 d 1 1 x", "q2 Q0 e 2 0 x"]
    together, apart = tmp_path / "together.trec", tmp_path / "apart.trec"
    together.write_text("\n".join(lines) + "\n")
    apart.write_text("\n".join(lines[::2] + lines[1::2]) + "\n")
    assert found_in(together, 10) == found_in(apart, 10)
    assert found_in(together, 2) == {
        "q1": FirstHits(["a", "c"], frozenset({2})),
        "q2": FirstHits(["d", "e"], frozenset()),
    }
    assert ranked_in(apart, 1, ["q2", "q3"]) == {"q2": ["d"]}


def test_ties_across_the_cut_are_counted_for_answers_too(tmp_path: Path, collection: Path) -> None:
    run = tmp_path / "tied.trec"
    run.write_text("q1 Q0 p1 1 1 x\nq1 Q0 p2 2 1 x\nq2 Q0 p1 1 2 x\nq2 Q0 p2 2 1 x\n")
    values = {
        "system": run,
        "collections": [collection],
        "data": "answers",
        "measures": ["Answer@1", "Answer@2"],
    }
    task = read_results(run_evaluate(tmp_path / "out", **values)).tasks[0]
    assert "tied across the cut: 1 (Answer@1), 0 (Answer@2)" in task.remarks


def test_ids_in_another_encoding_are_refused_where_they_are_read(tmp_path: Path) -> None:
    run = tmp_path / "latin.trec"
    run.write_bytes("q1 Q0 café 1 1 x\n".encode("latin1"))
    with pytest.raises(DataError, match=r"latin\.trec: the id .* is not UTF-8 text"):
        ranked_in(run, 10)


def test_an_empty_run_is_all_zero(tmp_path: Path, collection: Path) -> None:
    empty = tmp_path / "empty.trec"
    empty.write_text("")
    task = read_results(run_evaluate(tmp_path / "out", system=empty, collections=[collection])).tasks[0]
    assert {interval.mean for interval in task.measures.values()} == {0.0}
    assert "4 missing" in task.remarks


@pytest.mark.parametrize("data", ["judgements", "answers"])
def test_a_run_of_other_queries_is_refused_with_ids_of_both(
    tmp_path: Path, collection: Path, data: str
) -> None:
    run = write_run(tmp_path / "other.trec", {f"dev-{i}": {"p1": 1.0} for i in range(9)})
    with pytest.raises(DataError, match="none of the queries") as error:
        run_evaluate(tmp_path / "out", system=run, collections=[collection], data=data)
    said = str(error.value)
    assert all(word in said for word in (str(run), str(collection), "'dev-0'", "'q1'", "To fix it"))
    assert not (tmp_path / "out").exists()


def test_queries_without_hits_are_counted_in_a_note(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "some.trec", {"q2": GOOD["q2"], "elsewhere": GOOD["q1"]})
    task = read_results(run_evaluate(tmp_path / "out", system=run, collections=[collection])).tasks[0]
    assert "Of 4 queries 3 have no hits in the run: they count as 0." in task.notes


def test_candidates_are_not_drawn_from_a_run_of_other_queries(tmp_path: Path, collection: Path) -> None:
    other = write_run(tmp_path / "other.trec", {"dev-1": {"p1": 1.0}})
    run = write_run(tmp_path / "good.trec", GOOD)
    with pytest.raises(DataError, match="none of the queries"):
        run_evaluate(tmp_path / "out", system=run, collections=[collection], candidates=other)


def test_dpr_results_and_qrels_files_are_read(tmp_path: Path, collection: Path) -> None:
    ctxs = [
        {"id": "p1", "title": "", "text": "x", "score": "2.5"},
        {"id": "p2", "title": "", "text": "y", "score": "1"},
    ]
    results = [{"query_id": "q1", "question": "capital?", "answers": ["Berlin"], "ctxs": ctxs}]
    run = tmp_path / "dpr.json"
    run.write_text(json.dumps(results))
    qrels = tmp_path / "judged.txt"
    qrels.write_text("q1 0 p2 1\nq2 0 p2 1\n")
    out = run_evaluate(tmp_path / "out", system=run, collections=[qrels], measures=["RR@10"])
    assert read_per_query(*_first(out)).of("RR@10").tolist() == [0.5, 0.0]


def test_several_collections_are_one_result_each(tmp_path: Path, collection: Path) -> None:
    run = write_run(tmp_path / "bad.trec", BAD)
    out = run_evaluate(tmp_path / "out", system=run, collections=[collection, collection])
    tasks = read_results(out).tasks
    assert len({task.values for task in tasks}) == 2
    assert all((out / task.values).is_file() for task in tasks)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"measures": ["Spearman"]}, "Spearman needs pairs"),
        ({"suite": "beir/nowhere"}, "no suite"),
        ({"split": "dev"}, "no split 'dev'"),
        ({"data": "pairs"}, "no pairs here"),
    ],
)
def test_what_does_not_fit_is_an_error_with_a_fix(
    tmp_path: Path, collection: Path, values: dict[str, object], what: str
) -> None:
    run = write_run(tmp_path / "good.trec", GOOD)
    with pytest.raises((RecipeError, DataError), match=what) as error:
        run_evaluate(tmp_path / "out", system=run, collections=[collection], **values)
    assert error.value.fix


def test_a_collection_is_not_a_run(tmp_path: Path, collection: Path) -> None:
    with pytest.raises(DataError, match="not like a run"):
        run_evaluate(tmp_path / "out", system=collection / "qrels" / "test.tsv", collections=[collection])


def test_macro_means_need_the_whole_group() -> None:
    entries = [entry(f"beir/cqadupstack/{forum}", i / 12) for i, forum in enumerate(FORUMS)]
    assert group_means(entries[:-1]) == {}
    assert group_means(entries) == {"beir/cqadupstack": {"nDCG@10": pytest.approx(sum(range(12)) / 144)}}


def entry(suite: str, mean: float) -> TaskResult:
    return TaskResult(
        suite, "test", "judgements", 1, {"nDCG@10": Interval(mean, mean, mean)}, "", suite=suite
    )


def _first(out: Path) -> tuple[Path, TaskResult]:
    return out, read_results(out).tasks[0]


def test_a_folder_stands_for_its_only_run(tmp_path: Path, collection: Path) -> None:
    file = write_run(tmp_path / "found" / "bm25.trec", GOOD)
    outs = [
        run_evaluate(tmp_path / f"out{i}", system=system, collections=[collection])
        for i, system in enumerate((file, file.parent))
    ]
    assert read_results(outs[0]).tasks == read_results(outs[1]).tasks
    write_run(tmp_path / "found" / "dense.trec", BAD)
    with pytest.raises(DataError, match=r"several runs: bm25\.trec, dense\.trec"):
        run_evaluate(tmp_path / "out", system=file.parent, collections=[collection])


def test_a_folder_without_run_or_model_is_said_to_be_neither(tmp_path: Path, collection: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="neither a run nor a model"):
        run_evaluate(tmp_path / "out", system=tmp_path / "nothing", collections=[collection])


def test_words_of_a_table_stay_on_a_narrow_terminal() -> None:
    table = rich_table(
        "", ["set", "from", *("nDCG@10",) * 4], [["a system", "this run", *("0.5 [0.4, 0.6]",) * 4]]
    )
    text = StringIO()
    Console(file=text, width=60).print(table)
    assert all(words in text.getvalue() for words in ("a system", "this run"))
