"""The papers' tables as runs: every row is runnable or says why not, plans, and runs in its smoke form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig.base import config, pipeline
from liebig.base.errors import DataError, RecipeError
from liebig.cli import make_app
from liebig.evaluation.tables import published
from liebig.paper_plan import plan_papers
from liebig.reproduce import Reproduction, beside_paper, cell, measured, paper_rows, select
from liebig.stages import STAGES
from tests.worlds import papers

ROWS = [row for row in paper_rows() if row.runs]
OWN = re.compile("BERT|RoBERTa|ICT|Condenser|coCondenser|CoT-MAE|Contriever|MoCo|SimCLR|Crop|ABS|queries")
# Every kind of stage that a row has: pairs, triplets, generated queries, labels with words, soft labels, batches by
# difficulty, an analysis; `make smoke` runs all rows.
IN_SUITE = (
    "condenser/table-2/bert-1-k-triplets", "condenser/table-3/ict-1-k-labels", "condenser/figure-2/condenser",
    "cocondenser/table-3/cocondenser-soft-labels",
    "query-as-context/table-1/cot-mae-with-query-as-context-50k-retriever-2", "condenser-abs/table-1/roberta-abs",
    "contriever/table-6/contriever",
)  # fmt: skip


def test_the_thirty_tables_and_fifteen_figures_are_there():
    named = {(table["paper"], table["table"]) for table in published()["tables"]}
    kinds = [table.split()[0] for _, table in named]
    assert (kinds.count("Table"), kinds.count("Figure")) == (30, 15)


def test_runs_and_reasons_name_rows_of_their_table():
    for table in published()["tables"]:
        names = {name for name, *_ in table["rows"]}
        assert {*table.get("runs", {}), *table.get("cannot", {})} <= names, (table["paper"], table["table"])
    assert len({row.slug for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("paper", list(published()["papers"]))
def test_a_row_that_a_paper_trained_is_runnable_or_says_why(paper):
    """The last rows of a comparison are the paper's; figures of other papers stand above them."""
    borrowed = {
        ("condenser", "BERT + NLI"), ("condenser", "ME-BERT"), ("cocondenser", "DPR-PAQ"), ("cocondenser", "ME-BERT"),
        ("query-as-context", "ColBERT"), ("query-as-context", "Condenser"), ("query-as-context", "coCondenser"),
        ("query-as-context", "CoT-MAE"), ("contriever", "ColBERT"), ("cocondenser", "Adaptive Batch"),
    }  # fmt: skip
    open_rows = [
        row.slug
        for row in paper_rows()
        if row.paper == paper and OWN.search(row.name) and not row.runs and not row.reason
    ]
    left = [
        slug
        for slug, row in ((row.slug, row) for row in paper_rows())
        if slug in open_rows and not any(row.paper == p and row.name.startswith(name) for p, name in borrowed)
    ]
    assert not left


def planned(rows, tmp_path, **options) -> Reproduction:
    work = Reproduction(STAGES, tmp_path / "out", tmp_path / "data", **options)
    for row in rows:
        work.add(row)
    return work


def test_every_row_plans_and_stages_are_shared(tmp_path):
    work = planned(ROWS, tmp_path)
    counts = {"pretrain": 0, "bm25": 0, "finetune": 0}
    for item in work.made.values():
        counts[item.stage.name] = counts.get(item.stage.name, 0) + 1
    assert counts["bm25"] <= 6, "of MS MARCO passages, documents, ABS's part, NQ, TriviaQA"
    assert counts["finetune"] < len(ROWS) * 2
    order = {folder: place for place, folder in enumerate(work.made)}
    for place, item in enumerate(work.made.values()):
        for path in config.inputs(item.config).values():
            read = [order[folder] for folder in (path, *path.parents) if folder in order]
            assert not read or min(read) < place, "a stage comes after what it reads"
    assert Path("data/condenser") not in work.missing.values(), "it is made"
    with pytest.raises(DataError, match=r"not there.*docs/data\.md"):
        work.stages()


def test_a_folder_that_is_there_is_not_made(tmp_path):
    row = select("condenser/table-7/condenser-with-hard-negatives-batch-64")
    (tmp_path / "data" / "condenser").mkdir(parents=True)
    kinds = {item.stage.name for item in planned(row, tmp_path).made.values()}
    assert "pretrain" not in kinds
    assert "pretrain" in {item.stage.name for item in planned(row, tmp_path / "other").made.values()}


def test_a_row_of_retriever_1_needs_no_retriever_2(tmp_path):
    made = planned(select("cocondenser/table-5/cocondenser-without-hard-negatives-batch-64"), tmp_path).made
    names = {folder.name.rpartition("-")[0] for folder in made}
    assert "retriever-1" in names
    assert not names & {"retriever-2", "mined-negatives"}


def test_a_searched_value_makes_a_run_each_and_overrides_reach_their_stages(tmp_path):
    [row] = select("condenser/table-2/bert-1-k-triplets")
    epochs = [
        i.config.loop.epochs for i in planned([row], tmp_path).made.values() if i.stage.name == "finetune"
    ]
    assert epochs == [1, 4, 8]
    work = planned([row], tmp_path, overrides=["model.loop.epochs=2"])
    assert [i.config.loop.epochs for i in work.made.values() if i.stage.name == "finetune"] == [2]
    (tmp_path / "data" / "wikipedia-sections").mkdir(parents=True)
    (tmp_path / "data" / "bert-base-uncased").mkdir()
    with pytest.raises(RecipeError, match="changes no stage"):
        planned([row], tmp_path, overrides=["retriever-9.limit=1"]).stages()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cocondenser/table-2", "judgements of the evaluation set are hidden"),
        ("query-as-context/table-5", "annotators"),
        ("condenser/table-99", "no paper, table or row"),
        ("condenser/table-4/ance", "figures of other systems"),
    ],
)
def test_what_cannot_be_run_says_why(name, says):
    with pytest.raises(RecipeError, match=says):
        select(name)


def test_a_plan_counts_hours_and_money_once_per_stage(tmp_path):
    rows = select("cocondenser/table-5")
    plan = plan_papers(list(planned(rows, tmp_path).made.values()), 3.0)
    assert plan.lines[0].split() == ["stage", "GPU", "cost"]
    whole = plan.document
    first = plan_papers(list(planned(rows[:1], tmp_path).made.values()), 3.0).document
    assert whole["price"] == pytest.approx(3 * whole["hours"])
    assert first["stages"].items() <= whole["stages"].items()
    # 503,000 queries, 3 epochs, 8 passages of 82 tokens and a query: 1 G tokens through 12 x 768 four times.
    hours = next(h for name, h in whole["stages"].items() if name.startswith("retriever-2"))
    assert hours == pytest.approx(
        502_939 * 3 * (10 + 8 * 82) * 4 * 2 * 12 * 12 * 768**2 / (788e12 * 0.45) / 3600
    )


@pytest.fixture(scope="session")
def paper_data(tmp_path_factory) -> Path:
    return papers.make(tmp_path_factory.mktemp("papers") / "data")


@pytest.fixture(scope="session")
def paper_runs(tmp_path_factory) -> Path:
    """One folder for all rows, so that they share their stages."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize("name", IN_SUITE)
def test_a_row_runs_in_its_smoke_form(name, paper_data, paper_runs):
    [row] = select(name)
    work = Reproduction(STAGES, paper_runs, paper_data, smoke=True)
    work.add(row)
    pipeline.run(work.stages(), lambda said: None)
    values = measured(work.shown[row])
    columns = [
        column for column in row.columns if column.partition(" ")[0] not in ("beir/mean", "beir/cqadupstack")
    ]
    there = [column for column in columns if cell(values, column)]
    assert there or not row.columns
    if not row.columns[:1] or not row.columns[0].startswith("beir/"):
        assert there == columns, "every set of the row has its toy"
    assert row.name in beside_paper([row], work.shown)


def test_the_command_lists_plans_and_runs(paper_data, paper_runs, monkeypatch):
    app = make_app()
    listed = CliRunner().invoke(app, ["reproduce"]).output
    rows = [line.strip() for line in listed.splitlines() if line.startswith(" ")]
    assert sorted(rows) == sorted(row.slug for row in ROWS), "a name for every row that can be run"
    words = [
        "reproduce",
        "condenser/table-1/bert-all-pairs",
        "--data",
        str(paper_data),
        "--out",
        str(paper_runs),
    ]
    plan = json.loads(CliRunner().invoke(app, [*words, "--plan", "--json"]).output)
    assert plan["data"] == {"data/stsb": True, "data/bert-base-uncased": True}
    done = CliRunner().invoke(app, [*words, "--smoke"])
    assert done.exit_code == 0, done.output
    page = (paper_runs / "condenser-table-1-bert-all-pairs.md").read_text()
    assert "| BERT, all pairs | paper | 0.825 |" in page
    assert re.search(r"\|  \| here \| -?\d\.\d{3} \|", page)
