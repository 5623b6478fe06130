"""What a build serves has been compared as it is served, and is not worse than what anybody can put together."""

import json
import lzma
import os
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from liebig.base.statistics import ALPHA
from liebig.builder import check
from liebig.builder.judge import BASELINE, DOUBT, PLAIN, SystemChoice, SystemJudge
from liebig.builder.questions import Question
from liebig.search.retriever_folder import read
from liebig.search.systems import weighted_by

DATA = Path(os.environ.get("LIEBIG_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Letters that the bundled encoder does not know: Ethiopic, and rare Han characters, which stand without spaces.
SCRIPTS = {"spaced": ("\u1200", 300, " ", ". "), "unspaced": ("\u3400", 2000, "", "。")}


def write_unreadable(path, script, documents=90):
    """Documents of a few sentences that share some words, in letters that only BM25 can tell apart."""
    first, letters, space, stop = SCRIPTS[script]
    draw = random.Random(0)

    def word():
        return "".join(chr(ord(first) + draw.randrange(letters)) for _ in range(2 if space == "" else 4))

    words = [word() for _ in range(100)]
    rows = []
    for number in range(documents):
        own = draw.sample(words, 6)
        # Of any length, because the encoder sees that a passage is shorter than others.
        sentences = [
            space.join([*draw.sample(own, 3), *draw.sample(words, draw.randint(2, 12))])
            for _ in range(draw.randint(3, 6))
        ]
        rows.append({"_id": f"d{number}", "title": "", "text": stop.join(sentences) + stop.strip()})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_build_leaves_out_what_its_questions_show_to_be_harmful(made, tmp_path, script):
    source = write_unreadable(tmp_path / "corpus.jsonl", script)
    lines = made(source, tmp_path / "out", model=None, language="none")
    description = read(tmp_path / "out")
    checks = check.read(tmp_path / "out" / description.checks)
    assert set(checks["questions"]) == {"sentence", "claim", "keywords"}
    rows = {row["name"]: row["difference"] for row in checks["rows"]}
    preferred = rows[SystemChoice(sentences=True).as_deployed.name]
    assert preferred["high"] < 0, "the fusion that is taken unless it does harm does harm here"
    assert checks["choice"] in (asdict(BASELINE), asdict(SystemChoice(system="bm25")))
    assert checks["predicted"]["difference"]["high"] >= 0
    assert any("does harm here" in line or line.startswith("BM25 is chosen") for line in lines)
    served = (description.system, description.weight, description.norm, description.sentences)
    assert served == (checks["choice"]["system"], PLAIN, "minmax", None)


def judge_of(values):
    """A judge whose systems have these values for 80 questions."""
    questions = [Question(f"q{i}", (f"p{i}",), "title") for i in range(80)]
    lists = [[] for _ in questions]
    judge = SystemJudge(questions, {"bm25": lists, "start": lists}, accept_unless_harmful=("start",))
    judge.sentences["start"] = lists
    judge.speeds = dict.fromkeys(("bm25", "start", "start sentences"), 1.0)
    judge._values.update(values)
    return judge


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_served_that_is_worse_than_the_plain_hybrid_or_a_part_of_it_beyond_chance(seed):
    generator = np.random.default_rng(seed)
    bm25, dense = SystemChoice(system="bm25"), SystemChoice(system="dense")
    hybrids = [BASELINE, BASELINE.as_deployed, SystemChoice(sentences=True).as_deployed]
    base = generator.random(80)
    values = {
        choice: np.clip(base + generator.normal(generator.normal(0, 0.05), 0.1, 80), 0, 1)
        for choice in (bm25, dense, *hybrids)
    }
    judge = judge_of(values)
    chosen = judge.choose(judge.every)
    assert chosen in values, "it has been compared as it is served"
    for other in (BASELINE, bm25, dense):
        worse = judge.difference(values[other], values[chosen], judge.every)
        assert not worse.significant or worse.mean <= DOUBT
    if not judge.better_than(hybrids[-1], judge.every):
        assert chosen == hybrids[-1], "what gained elsewhere is taken unless it does harm"


def test_the_check_compares_with_the_score_scale_of_the_folder():
    lists = [[(str(rank), 1 - rank / 100) for rank in range(20)]]
    judge = SystemJudge(
        [Question("q", ("3",), "title")], {"bm25": [[("3", 2.0)]], "start": lists}, scales={"start": 0.5}
    )
    fuse = weighted_by(PLAIN, "spread", spread=0.5)
    assert judge.answers(BASELINE.as_deployed)[0] == fuse([[("3", 2.0)], lists[0]])


@pytest.mark.parametrize(("name", "language"), [("fquad-fr", "fr"), ("jsquad-ja", "ja")])
def test_texts_of_other_languages_are_not_served_worse_than_by_the_plain_hybrid(
    made, tmp_path, name, language
):
    corpus = DATA / name / "corpus.jsonl.xz"
    if not corpus.is_file():
        pytest.skip(f"{corpus} is not there")
    with lzma.open(corpus, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    spread = lines[:: len(lines) // 60][:60]  # neighbours are of one article, which leaves too few questions
    (tmp_path / "corpus.jsonl").write_text("".join(spread), encoding="utf-8")
    made(tmp_path / "corpus.jsonl", tmp_path / "out", model=None, language=language)
    checks = check.read(tmp_path / "out" / read(tmp_path / "out").checks)
    difference = {row["name"]: row["difference"] for row in checks["rows"]}[checks["chosen"]]
    assert difference["high"] >= 0 or difference["p"] >= ALPHA
