"""What the experiments of fine-tuning rest on: answers found word for word, passages of a hundred words, the table."""

import json
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.records import Passage

HOME = Path(__file__).parents[2] / "experiments" / "finetuning"


@pytest.fixture
def sets(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import sets

    yield sets
    for name in ("sets", "methods", "run"):
        sys.modules.pop(name, None)


def test_answers_are_found_word_for_word(sets):
    passages = [
        Passage("a", "Built in 1889, the Eiffel Tower."),
        Passage("b", "An Eiffelesque tower of 18 89 steps"),
        Passage("c", "THE EIFFEL TOWER again"),
    ]
    found = sets.answering([["eiffel tower"], ["1889", "steps"], ["nothing here"], ["."]], passages)
    assert found == [[0, 2], [0, 1], [], [0]]


def test_passages_have_a_hundred_words_and_short_rests_are_dropped(sets, tmp_path):
    article = {
        "title": "T",
        "sections": [{"h": "", "p": ["word " * 130, "word " * 80]}, {"h": "", "p": ["few"]}],
    }
    with lzma.open(tmp_path / "articles-0.jsonl.xz", "wt") as file:
        file.write(json.dumps(article) + "\n")
    assert [len(text.split()) for _, text in sets.wiki_passages(tmp_path)] == [100, 100]


def test_the_table_is_of_the_settings_that_dev_chose(sets, tmp_path, capsys):
    import run as driver
    from methods import Result, Settings

    random = np.random.default_rng(0)
    for method, gain in (("random", 0.0), ("mined", 0.2)):
        for seed in (1, 2):
            for lr, dev in ((1e-4, 0.1), (1e-3, 0.4)):
                values = np.clip(random.random((40, 3)) * 0.5 + gain + lr * 100, 0, 1)
                result = Result(dev, {"scifact": values}, [dev])
                path = driver.result_path(tmp_path, "scifact", method, Settings(lr=lr), seed)
                driver.store(path, "scifact", method, Settings(lr=lr), seed, result, 1.0)
    driver.write(tmp_path, 2)
    lines = json.loads((tmp_path / "results.json").read_text())
    assert [(line["method"], line["settings"]["lr"], line["runs"]) for line in lines] == [
        ("random", 1e-3, 2),
        ("mined", 1e-3, 2),
    ]
    assert lines[1]["difference"]["mean"] == pytest.approx(0.2, abs=0.06)
    assert lines[1]["p_holm"] < 0.01
    assert "| scifact | scifact (40) | mined | 2 |" in capsys.readouterr().out
