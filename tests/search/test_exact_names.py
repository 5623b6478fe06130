"""A question that names something letter by letter: words have more say than in other questions."""

from __future__ import annotations

import pytest

from liebig.base.records import Query
from liebig.builder.judge import BASELINE, SystemJudge
from liebig.builder.questions import Question
from liebig.search.fusion import EXACT_ALONE, EXACT_AMONG, exact_weight, weighted_by


@pytest.mark.parametrize(
    "name",
    ["lru_cache", "os.path", "CreateFileW", "--dry-run", "src/a.py", "./run.sh", "sha256", "KB-4711", "4711234",
     "std::vector", "a.b@example.org", "5f4dcc3b", "`parse_args()`", "PROJ_12,"],
)  # fmt: skip
def test_names_of_things(name):
    assert exact_weight(name) == EXACT_ALONE
    assert exact_weight(f"where is {name} used?") == EXACT_AMONG


@pytest.mark.parametrize(
    "question",
    ["what limits the growth of barley?", "in the 1980s", "e.g. the U.S. army", "his/her flat", "python 3.11",
     "it's 40th", "wie heißt der Fluß", "2004年に発見されたDNA分子", "-word", "NASA", "", "well-known"],
)  # fmt: skip
def test_ordinary_words(question):
    assert exact_weight(question) == 0


def test_a_retriever_gives_words_their_say(retriever):
    hybrid, now = retriever.current.systems()["hybrid"], retriever.current.description
    for question, weight in (("barley", now.weight), ("KB-4711", EXACT_ALONE)):
        answer = hybrid.answer([Query("", question)], 5)
        fuse = weighted_by(weight, now.norm, spread=now.spread)
        assert answer.hits[0] == fuse([hits[0] for hits in answer.parts.values()])[:5]


def test_the_check_compares_hybrids_as_they_are_served():
    lists = {"bm25": [[("a", 2.0), ("b", 1.0)]] * 2, "start": [[("b", 1.0), ("c", 0.5), ("a", 0.4)]] * 2}
    asked = [Question(text, ("a",), "title") for text in ("barley", "KB-4711")]
    usual, exact = SystemJudge(asked, lists).answers(BASELINE)
    assert usual == weighted_by(0.5, "minmax")([lists["bm25"][0], lists["start"][0]])
    assert exact == weighted_by(EXACT_ALONE, "minmax")([lists["bm25"][0], lists["start"][0]])


def test_very_long_words_are_looked_at_in_no_time():
    for word in ("1a" * 50_000 + "!x", "a" * 100_000 + "-", "a/" * 50_000 + "!"):
        assert exact_weight(word) == 0
