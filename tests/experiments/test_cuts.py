"""Questions cut out of passages, the trial of each recipe, and tables made of kept values."""

import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.base import pipeline
from liebig.collection import Collection
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
HOME = ROOT / "experiments" / "encoders"


def load(monkeypatch, name):
    monkeypatch.syspath_prepend(str(HOME))
    sys.modules.pop(name, None)
    return __import__(name)


@pytest.fixture
def wiki(tmp_path):
    draw = random.Random(1)
    words = [f"w{number}" for number in range(500)]
    folder = tmp_path / "wiki"
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(400):
            text = " ".join(" ".join(draw.sample(words, 20)).capitalize() + "." for _ in range(3))
            file.write(json.dumps({"_id": f"p{number}", "title": f"Title {number}", "text": text}) + "\n")
    return folder


def cut(monkeypatch, wiki, out, *more):
    cuts = load(monkeypatch, "cuts")
    words = ["cuts.py", str(wiki), str(out), "--passages", "200", *more]
    monkeypatch.setattr(sys, "argv", words)
    cuts.main()
    return cuts


def test_questions_are_words_of_one_sentence_of_their_passage(wiki, tmp_path, monkeypatch):
    cuts = cut(monkeypatch, wiki, tmp_path / "cuts")
    stage = pipeline.plan_stages(STAGES, {"init": {"paths": [str(tmp_path / "cuts")]}}, tmp_path / "runs")
    pipeline.run(stage, lambda _: None)
    collection = Collection(stage[0].out)
    texts = {passage.id: passage for passage in collection.passages()}
    asking = sorted({*cuts.ASKING}, key=len, reverse=True)
    questions = {query.id: query.text for query in collection.queries("cuts")}
    seen = []
    for judgement in collection.judgements("cuts"):
        passage = texts[judgement.passage]
        said = questions[judgement.query].removesuffix("?").removesuffix(passage.title).lower()
        said = re.sub(rf"^({'|'.join(asking)}) ", "", said).split()
        assert any(is_part(said, sentence) for sentence in passage.text.lower().split(". "))
        seen.append(passage.id)
    assert {*map(seen.count, seen)} <= {1, 2, 3}
    assert 150 < len({*seen}) < 250
    assert len(seen) > 2.5 * len({*seen})
    assert len(questions) == len({*questions.values()}) == len(seen)


def is_part(some, sentence):
    """Whether the words come in this order in the sentence."""
    rest = iter(sentence.replace(".", "").split())
    return len(some) >= 4 and all(word.strip(".") in rest for word in some)


def test_questions_are_the_same_again(wiki, tmp_path, monkeypatch):
    for name in ("one", "two"):
        cut(monkeypatch, wiki, tmp_path / name)
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/cuts.tsv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_question_words_and_titles_can_be_left_out(wiki, tmp_path, monkeypatch):
    shares = {"asking": "--asking", "titled": "--titled"}
    with_ = {"asking": lambda text: text.endswith("?"), "titled": lambda text: "Title" in text}
    for name, option in shares.items():
        for share in ("0", "1"):
            cut(monkeypatch, wiki, tmp_path / name / share, "--each", "1", option, share)
            rows = (tmp_path / name / share / "queries.jsonl").read_text().splitlines()
            found = [with_[name](json.loads(row)["text"]) for row in rows]
            assert found == [share == "1"] * len(rows)
            assert 150 < len(rows) < 250


def test_a_passage_without_a_sentence_gives_no_question(monkeypatch):
    cuts = load(monkeypatch, "cuts")
    assert cuts.question("Title", "Too short. To ask.", random.Random(0)) is None


def test_recipes_differ_in_what_is_learned_and_are_tuned_alike(monkeypatch):
    each = load(monkeypatch, "each")
    tree = each.stages("start", "store", Path("labelled"), 1.0)
    planned = {item.name: item.config for item in pipeline.plan_stages(STAGES, tree, Path("runs"))}
    assert sorted(planned) == sorted(name for row in each.ROWS for name in row)
    own = {"objective", "source", "model", "loop", "batch_tokens"}
    assert len({planned[name].model_dump_json(exclude=own) for name in each.RECIPES}) == 1
    tuned = [planned[f"tuned-{name}"] for name in ("mlm", *each.RECIPES)]
    assert len({config.model_dump_json(exclude={"model", "pooling"}) for config in tuned}) == 1
    assert planned["cocondenser"].model.path == Path("runs/condenser/model")
    small = pipeline.plan(STAGES, ROOT / "recipes" / "encoders" / "small.toml", [], Path("runs/small"))
    first = next(item.config for item in small if item.name == "retriever-1")
    own = {"model", "pooling", "collection", "groups"}
    assert tuned[0].model_dump(exclude=own) == first.model_dump(exclude=own)


def test_a_table_is_made_of_the_values_that_were_kept(tmp_path, monkeypatch, capsys):
    evaluate = load(monkeypatch, "evaluate")
    draw = np.random.default_rng(0)
    values = {name: {"squad-wiki": draw.random((50, 3)).round(6)} for name in ("bm25", "mini")}
    evaluate.save(values, {"squad-wiki": [f"q{number}" for number in range(50)]}, "test", tmp_path)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "--out", str(tmp_path), "--measures", "RR@10"])
    evaluate.main()
    said = capsys.readouterr().out
    assert "| RR@10, test | squad-wiki |" in said
    for name, by_set in values.items():
        assert f"| {name} | {by_set['squad-wiki'][:, 1].mean():.3f} (" in said
    assert (tmp_path / "results.md").read_text().strip() == said.strip()
