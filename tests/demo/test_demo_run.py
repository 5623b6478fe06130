"""`liebig demo` on a few modules: it is a build, says what a build says, and then what judged questions say."""

import json
import re

import numpy as np
import pytest

from liebig import encoders
from liebig.base import pipeline, workspace
from liebig.builder import check, training
from liebig.builder.build import BuildConfig, build
from liebig.builder.judge import BASELINE
from liebig.commands import build as build_command, demo
from liebig.demo import MEASURES, JudgedBuild, by_document, judge, questions_for
from liebig.evaluation.stage_runs import find_stages
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read
from liebig.stages.report import BUILT, STAGE as REPORT, ReportConfig, in_words
from tests.worlds.report_commands import understood_commands
from tests.worlds.shared import made_once

FEW = "stdlib:heapq,shlex,statistics,bisect"
MINUTES = 0.002  # a few steps


@pytest.fixture(scope="module", autouse=True)
def bundled(small_model):
    """A tiny encoder in place of the bundled one, which `make demo` trains; few texts are enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "folder", lambda name=encoders.DEFAULT: small_model)
        patch.setattr(training, "FEWEST_TOKENS", 100)
        patch.setattr(training, "FEWEST_EXAMPLES", 4)
        yield


def run_demo(out):
    """Run the demo on a few modules; the lines that it says."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (demo, build_command):
            patch.setattr(module, "announce", lines.append)
        demo.run(out, source=FEW, minutes=MINUTES)
    return [line for text in lines for line in text.split("\n")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a demo, and what it said."""

    def make(folder):
        folder.mkdir()
        lines = run_demo(folder / "demo")
        (folder / "lines.json").write_text(json.dumps(lines))

    folder = made_once(tmp_path_factory, "demo", make)
    return folder / "demo", json.loads((folder / "lines.json").read_text())


def test_the_demo_is_a_build_and_says_what_a_build_says(ran):
    out, lines = ran
    before = (out / "retriever.json").read_bytes()
    of_build = []
    build(BuildConfig(sources=(FEW,), minutes=MINUTES), out, of_build.append)
    phases = [line for line in of_build if line.startswith("[")]
    assert all(line.endswith(": up to date") for line in phases), "the build's own recipes made the folder"
    assert (out / "retriever.json").read_bytes() == before
    assert [line for line in of_build if not line.startswith("[")] == lines_of_build(lines)
    assert workspace.read_manifest(out / "work" / "trained").recipe["loop"]["minutes"] == MINUTES


def lines_of_build(lines):
    """What is said between the phases and the report."""
    said = [line for line in lines if not line.startswith("[")]
    return said[: next(i for i, line in enumerate(said) if line.startswith("Report: ")) - 1]


def test_a_second_run_makes_nothing_again(ran):
    phases = [line for line in run_demo(ran[0]) if line.startswith("[")]
    assert phases
    assert all(line.endswith("up to date") for line in phases)


def test_the_table_of_judged_questions_follows(ran):
    out, lines = ran
    judged = lines[lines.index(f"Report: {out / 'report.html'}") :]
    chosen = check.read(out / read(out).checks)["chosen"]
    rows = [line for line in judged if re.match(r"  .*\d\.\d{3} to \d\.\d{3}", line)]
    assert [row.split("  ")[1] for row in rows] == list(dict.fromkeys(["BM25", BASELINE.name, chosen]))
    assert [row.split("  ")[1] for row in rows if row.endswith("<- chosen")] == [chosen]
    assert any("judged questions that nothing was tuned on" in line for line in judged)
    assert sum(line.startswith("  liebig ") for line in judged) == 3
    assert (out / "report.html").is_file()


def test_the_test_half_is_asked_and_no_question_was_learnt_from(ran):
    out, _ = ran
    documents = {passage.doc for passage in Retriever.from_folder(out).current.collection.passages()}
    asked = [question for question in questions_for(documents) if question.split == "test"]
    judged = judge(out)
    assert judged.questions == len(asked) > 0
    assert {len(values) for system in judged.systems.values() for values in system.values()} == {len(asked)}
    learnt = out / "work" / "questions" / "pairs" / "queries.jsonl"
    texts = {json.loads(line)["text"] for line in learnt.open()} if learnt.is_file() else set()
    assert not texts & {question.text for question in asked}


def test_the_folder_is_a_retriever(ran):
    hits = Retriever.from_folder(ran[0]).search("merge sorted inputs into one", k=5, system="bm25")
    assert "heapq.merge" in {hit.doc for hit in hits}


def test_a_document_counts_by_its_best_passage():
    hits = [("a-1", 9.0), ("b-0", 8.0), ("a-0", 7.0), ("c-0", 1.0)]
    ranked = by_document(hits, {"a-0": "a", "a-1": "a", "b-0": "b", "c-0": "c"})
    assert sorted(ranked, key=ranked.get, reverse=True) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([0.1] * 40, "improves on the untrained hybrid: nDCG@10 +0.100 (+0.100 to +0.100), 40 questions"),
        ([-0.1] * 40, "is worse than the untrained hybrid: nDCG@10 -0.100 (-0.100 to -0.100), 0 questions"),
        ([0.1, -0.1] * 20, "makes no measurable difference to the untrained hybrid: nDCG@10 "),
    ],
)
def test_what_is_said_of_the_choice_follows_the_interval(gains, words):
    base = np.full(len(gains), 0.5)
    systems = {
        name: {str(measure): values for measure in MEASURES}
        for name, values in {BASELINE.name: base, "other": base + gains}.items()
    }
    line = JudgedBuild(len(gains), 10, 20, "other", systems).lines()[-1]
    assert line.startswith(f"What the build chose {words}")


def test_nothing_is_said_of_a_build_that_chose_the_baseline():
    systems = {BASELINE.name: {str(measure): np.full(4, 0.5) for measure in MEASURES}}
    lines = JudgedBuild(4, 10, 20, BASELINE.name, systems).lines()
    assert lines[-1].endswith("baseline  <- chosen")


def test_every_command_of_the_report_is_understood(ran, monkeypatch):
    out, _ = ran
    report = (out / "report.html").read_text(encoding="utf-8")
    assert understood_commands(report, out, monkeypatch) >= {"init", "passages", "bm25", "pretrain", "encode"}


def test_every_command_of_the_report_of_a_build_is_understood(tmp_path, monkeypatch):
    (tmp_path / "source").mkdir()
    for word in ("cat", "dog", "fish"):
        (tmp_path / "source" / f"{word}.txt").write_text(f"The {word} is hungry.")
    made = BuildConfig(sources=(str(tmp_path / "source"),), minutes=0)
    build(made, tmp_path / "out", lambda line: None)
    pipeline.run_stage(REPORT, ReportConfig(folders=(tmp_path / "out",)), tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    commands = {"init", "passages", "bm25", "encode", "index"}
    assert understood_commands(page, tmp_path / "out", monkeypatch) == commands
    assert "Written by <code>liebig build</code>" in page
    said = [in_words(stage) for stage in find_stages([tmp_path / "out"])]
    assert set(said) <= set(BUILT.values())
    costs = page.partition('<h2 id="costs">')[2].partition("</section>")[0]
    assert re.findall('<th scope="row">([^<]*)', costs)
    assert set(re.findall('<th scope="row">([^<]*)', costs)) <= set(said)
