"""`liebig demo` on a few modules: its stages, what it says, and what it leaves; a second run makes nothing again."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from liebig import encoders
from liebig.base import pipeline
from liebig.builder.build import BuildConfig, build
from liebig.commands import demo
from liebig.demo import in_words
from liebig.evaluation.stage_runs import find_stages
from liebig.export import Target
from liebig.export.models import card
from liebig.model.encoder import Encoder
from liebig.search.retriever_folder import read, write
from liebig.stages import STAGES
from liebig.stages.report import BUILT, in_words as in_report
from tests.worlds.report_commands import understood_commands
from tests.worlds.shared import made_once

FEW = "stdlib:heapq,shlex,statistics,bisect"
MINUTES = 0.002  # a few steps


@pytest.fixture(scope="module", autouse=True)
def bundled(small_model):
    """A tiny encoder in place of the bundled one, which `make demo` trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "folder", lambda name=encoders.DEFAULT: small_model)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a demo, and what it said."""

    def make(folder):
        folder.mkdir()
        said = []
        demo.run(STAGES, folder / "demo", said.append, tell=said.append, source=FEW, minutes=MINUTES)
        (folder / "said.json").write_text(json.dumps(said))

    folder = made_once(tmp_path_factory, "demo", make)
    return folder / "demo", json.loads((folder / "said.json").read_text())


def test_names_become_words():
    assert in_words("collections.OrderedDict.move_to_end") == "collections ordered dict move to end"


def test_the_demo_leaves_a_page_runs_and_a_table(ran):
    out, said = ran
    text = "\n".join(said)
    assert (out / "report" / "report.html").is_file()
    assert (out / "found" / "hybrid.trec").is_file()
    assert all(
        name in text
        for name in (
            demo.BM25,
            demo.BEFORE,
            demo.AFTER,
            demo.UNTRAINED,
            demo.HYBRID,
            "95 %",
            "baseline",
        )
    )
    assert sum(line.startswith("  liebig ") for line in said) == 3
    assert said[-1] == encoders.ADVICE


def test_the_report_is_on_the_questions_that_chose_nothing(ran):
    out, said = ran
    judged = json.loads((out / "judged-bm25" / "results.json").read_text())["tasks"][0]
    asked = set((out / "collection" / "splits" / "test.txt").read_text().split())
    values = (out / "judged-bm25" / judged["values"]).read_text().splitlines()
    assert {json.loads(line)["query"] for line in values} == asked
    assert any(line.startswith(f"{len(asked)} questions that nothing was tuned on") for line in said)


def test_nothing_that_is_learnt_from_has_a_question_in_it(ran):
    out, _ = ran
    questions = {json.loads(line)["text"] for line in (out / "collection" / "queries.jsonl").open()}
    learnt = {json.loads(line)["text"] for line in (out / "pairs" / "queries.jsonl").open()}
    assert questions
    assert not questions & learnt


def test_the_folder_is_a_retriever(ran):
    from liebig.search.retriever import Retriever

    out, _ = ran
    found = Retriever.from_folder(out).search("merge sorted inputs into one", k=5, system="bm25")
    assert "heapq.merge" in {result.doc for result in found}
    kept = json.loads((out / "retriever.json").read_text())
    assert (out / kept["index"]).is_dir()


def test_every_command_of_the_report_is_understood(ran, monkeypatch):
    out, _ = ran
    report = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert understood_commands(report, out, monkeypatch) >= {"init", "bm25", "pretrain", "encode", "retrieve"}


def test_every_command_of_the_report_of_a_build_is_understood(tmp_path, monkeypatch):
    (tmp_path / "source").mkdir()
    for word in ("cat", "dog", "fish"):
        (tmp_path / "source" / f"{word}.txt").write_text(f"The {word} is hungry.")
    made = BuildConfig(sources=(str(tmp_path / "source"),), minutes=0)
    build(STAGES, made, tmp_path / "out", lambda line: None)
    config = STAGES["report"].config(folders=[tmp_path / "out"])
    pipeline.run_stage(STAGES["report"], config, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    commands = {"init", "passages", "bm25", "encode", "index"}
    assert understood_commands(page, tmp_path / "out", monkeypatch) == commands
    assert "Written by <code>liebig build</code>" in page
    said = [in_report(stage, {}) for stage in find_stages([tmp_path / "out"])]
    assert set(said) <= set(BUILT.values())
    costs = page.partition('<h2 id="costs">')[2].partition("</section>")[0]
    assert re.findall('<th scope="row">([^<]*)', costs)
    assert set(re.findall('<th scope="row">([^<]*)', costs)) <= set(said)


def test_the_report_says_which_labels_are_behind_a_system(ran):
    out, _ = ran
    for name in ("judged-bm25", "judged-before", "judged-after"):
        notes = json.loads((out / name / "results.json").read_text())["tasks"][0]["notes"]
        (note,) = (note for note in notes if note.startswith("Labels behind"))
        assert note.endswith(": none known."), "names of functions are no labels, and BM25 learns nothing"


def test_the_card_of_a_trained_encoder_says_that_it_was_trained(ran, tmp_path):
    out, _ = ran
    shutil.copytree(out, tmp_path / "demo")
    description = read(out)
    write(tmp_path / "demo", replace(description, index="index", model="model/model"))
    target = Target.of(tmp_path / "demo")
    text = card(target, Encoder.load(target.model))
    assert "The encoder was trained on it" in text
    assert f'"minutes": {MINUTES}' in text


def test_the_encoder_that_is_not_trained_yet_is_not_taken_for_a_large_one(ran, tmp_path):
    from liebig.demo import STAGES as own

    shutil.copytree(ran[0] / "collection", tmp_path / "collection")
    stages = {**STAGES, **{stage.name: stage for stage in own}}
    seconds = demo._seconds(pipeline.plan_stages(stages, demo.first_half(FEW, MINUTES), tmp_path))
    assert seconds("vectors") == seconds("vectors-before") > 0


def test_a_second_run_makes_nothing_again(ran):
    out, _ = ran
    said = []
    demo.run(STAGES, out, said.append, tell=said.append, source=FEW, minutes=MINUTES)
    stages = [line for line in said if line.startswith("[")]
    assert len(stages) == len(demo.LINES)
    assert all(line.endswith("up to date") for line in stages)


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (
            0.1,
            "improved the untrained hybrid: nDCG@10 +0.100 (+0.050 to +0.150), 3 questions better and 1 worse.",
        ),
        (
            -0.1,
            "hurt the untrained hybrid: nDCG@10 -0.100 (-0.150 to -0.050), 3 questions better and 1 worse.",
        ),
        (
            0.04,
            "made no measurable difference to the untrained hybrid: nDCG@10 +0.040 (-0.010 to +0.090), "
            "3 questions better and 1 worse.",
        ),
    ],
)
def test_what_is_said_of_training_follows_the_interval(mean, words):
    difference = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}
    compared = {"difference": difference, "wins": 3, "losses": 1}
    training = {"pairs": [{"measure": "nDCG@10", "a": demo.HYBRID, "comparison": compared}]}
    assert demo.gain(training) == f"Training on the corpus {words}"


def test_the_gain_over_the_untrained_hybrid_comes_first(ran):
    out, said = ran
    told = next(line for line in said if line and not line.startswith("["))
    assert told.startswith("Training on the corpus ")
    assert "the untrained hybrid: nDCG@10 " in told
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    verdict = page.partition('class="verdict"')[2]
    assert verdict.partition("<p>")[2].startswith("Trained hybrid against untrained hybrid: ")
