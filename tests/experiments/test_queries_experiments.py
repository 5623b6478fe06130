"""What the comparison of spans and queries rests on: pairs, tasks as files, processes that fail, the table."""

import json
import lzma
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.collection import Collection
from liebig.methods.sources.pairs import PairSource
from liebig.methods.sources.token_rows import SpecialTokens
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

HOME = Path(__file__).parents[2] / "experiments" / "queries"
OURS = ("arms", "tasks", "pool", "results", "table", "comparison", "passages")


@pytest.fixture
def home(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME.parent))
    monkeypatch.syspath_prepend(str(HOME))
    yield
    for name in OURS:
        sys.modules.pop(name, None)


def write_generated(folder: Path) -> None:
    """Three passages: with two queries, with none, with one."""
    texts = {"a": "rivers run to the sea", "b": "nobody asks", "c": "stones lie still"}
    queries = {"a": ["where do rivers run?", "what runs to the sea?"], "b": [], "c": ["do stones move?"]}
    (folder / "judgements").mkdir()
    rows = [{"id": i, "title": f"On {i}", "text": text, "doc": "d"} for i, text in texts.items()]
    named = [(f"{p}-{n}", p, text) for p, found in queries.items() for n, text in enumerate(found)]
    generated = [{"passage": p, "queries": found} for p, found in queries.items()]
    asked = [{"id": i, "text": text, "answers": []} for i, _, text in named]
    for name, lines in (("passages", rows), ("generated", generated), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "judgements" / "generated.tsv").write_text("".join(f"{i}\t{p}\t1\n" for i, p, _ in named))


@pytest.mark.parametrize("most", [None, 1])
def test_the_comparison_draws_the_pairs_that_the_recipe_would(home, tmp_path, most):
    import arms

    write_generated(tmp_path)
    tokenizer = Tokenizer.from_folder(encoders.folder())
    usual = PairSource.read(Collection(tmp_path), "generated", tokenizer, 126, anchor="passage", most=most)
    made = arms.read_pairs(tmp_path / "passages.jsonl", tmp_path / "generated.jsonl", tokenizer)
    arms.save_pairs(made, tmp_path / "pairs.npz", "abc", ["some labels"])
    kept = arms.load_pairs(tmp_path / "pairs.npz", SpecialTokens.of(tokenizer))
    kept = arms.first_only(kept) if most == 1 else kept
    assert len(kept) == len(usual) == 2
    for epoch in range(4):
        one, two = (source.draw(np.arange(2), epoch, 5) for source in (usual, kept))
        assert one.tokens.to_lists() == two.tokens.to_lists()


def test_other_queries_make_other_pairs(home, tmp_path):
    import arms
    import comparison

    write_generated(tmp_path)
    given = Namespace(prepared=tmp_path, queries=tmp_path, passages=None, start=encoders.folder())
    frame = SpecialTokens.of(Tokenizer.from_folder(encoders.folder()))
    comparison.pairs(given)
    first = (tmp_path / arms.PAIRS).stat().st_mtime_ns
    comparison.pairs(given)
    assert (tmp_path / arms.PAIRS).stat().st_mtime_ns == first, "the same are not made again"
    (tmp_path / "generated.jsonl").write_text('{"passage": "c", "queries": ["why?"]}\n')
    comparison.pairs(given)
    assert len(arms.load_pairs(tmp_path / arms.PAIRS, frame)) == 1


def test_an_arm_knows_its_labels_also_through_the_generator(home, tmp_path):
    import arms
    import comparison
    import tasks

    write_generated(tmp_path)
    (tmp_path / "generation.json").write_text('{"labels": ["squad, train: 9 pairs"]}')
    comparison.pairs(Namespace(prepared=tmp_path, queries=tmp_path, passages=None, start=encoders.folder()))
    shape = RoleLayout(Tokenizer.from_folder(encoders.folder()), 16)
    asked = tasks.Questions(shape.ids(["one", "two"]), Ragged.from_lists([[0], [1]]), np.arange(2))
    task = tasks.Task(asked.texts, np.arange(2), asked, Ragged.from_lists([[1], [0]]), {"squad": asked})
    for name in ("labelled", "scifact"):
        tasks.save(task, tmp_path / f"{name}.npz")
    bench = arms.Bench(encoders.folder(), tmp_path, tmp_path, arms.Settings(), torch.device("cpu"))
    spans, asking = (arms.labels(bench, f"cotmae-{kind}") for kind in ("spans", "queries"))
    assert spans == {"zero-shot": [], "tuned": ["squad, train: 2 questions"]}
    assert asking["zero-shot"] == ["squad, train: 9 pairs (through the generator)"]
    assert asking["tuned"] == [*asking["zero-shot"], *spans["tuned"]]


def test_a_start_that_is_not_there_is_said_with_what_makes_it(home, tmp_path, monkeypatch):
    import comparison

    monkeypatch.setattr(
        sys, "argv", ["", "prepare", str(tmp_path / "made"), "--start", str(tmp_path / "gone")]
    )
    with pytest.raises(SystemExit, match=r"gone is no encoder's folder: .*mini-v0.toml"):
        comparison.main()
    assert not (tmp_path / "made").exists()


def test_passages_are_whole_or_not_there(home, tmp_path, monkeypatch):
    import passages

    article = {"id": 7, "title": "T", "sections": [{"p": ["word " * 130, "word " * 80]}, {"p": ["few"]}]}
    whole = lzma.compress("".join(json.dumps(article) + "\n" for _ in range(40)).encode())
    words = ["", str(tmp_path), str(tmp_path / "out"), "--parts", "0"]
    monkeypatch.setattr(sys, "argv", words)
    (tmp_path / "articles-0.jsonl.xz").write_bytes(whole[:-40])
    with pytest.raises(EOFError):
        passages.main()
    assert not (tmp_path / "out" / "passages.jsonl").exists()
    (tmp_path / "articles-0.jsonl.xz").write_bytes(whole)
    monkeypatch.setattr(sys, "argv", [*words, "--most", "3"])
    passages.main()
    rows = [json.loads(line) for line in (tmp_path / "out" / "passages.jsonl").read_text().splitlines()]
    assert [len(row["text"].split()) for row in rows] == [100, 100, 100]


def test_a_task_is_the_same_from_its_file_and_knows_the_right_passages(home, tmp_path):
    import tasks

    shape = RoleLayout(Tokenizer.from_folder(encoders.folder()), 16)
    texts = shape.ids(["one", "two two", "three"])
    asked = tasks.Questions(texts, Ragged.from_lists([[0], [1, 2], [2]]), np.array([0, 1, 1]))
    made = tasks.Task(texts, np.arange(3), asked, Ragged.from_lists([[1], [0], [0, 1]]), {"set": asked})
    tasks.save(made, tmp_path / "task.npz")
    kept = tasks.load(tmp_path / "task.npz")
    assert kept.passages.to_lists() == made.passages.to_lists()
    assert kept.examples().negatives[2].tolist() == [0, 1]
    assert kept.tests["set"].documents.tolist() == [0, 1, 1]
    vectors = np.eye(3, dtype=np.float32)
    values = kept.values({"": 2 * vectors, "set": vectors}, torch.device("cpu"), cosine=True)["set"]
    assert values[[0, 2]].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert values[1, 1:].tolist() == [1, 1]


def test_the_table_holds_arms_against_the_spans_of_their_objective(home, tmp_path, capsys):
    import results
    import table

    for arm, better in (("cocondenser-spans", 0), ("cocondenser-queries", 0.1), ("start", 0)):
        for seed in (1, 2):
            values = {"tuned|squad": np.full((30, 3), 0.5 + better)}
            facts = {"documents": {"squad": [i // 2 for i in range(30)]}, "pretraining": {}}
            facts["labels"] = {"zero-shot": [], "tuned": ["squad, train: 5 questions"]}
            results.store(tmp_path / "results" / f"{arm}-{seed}.json", values, facts)
    table.write(tmp_path)
    lines = {line["arm"]: line for line in json.loads((tmp_path / "results.json").read_text())}
    assert lines["cocondenser-queries"]["difference"]["mean"] == pytest.approx(0.1)
    assert lines["cocondenser-queries"]["p_holm"] < 0.01
    assert (lines["cocondenser-queries"]["runs"], lines["cocondenser-queries"]["documents"]) == (2, 15)
    assert "p" not in lines["start"]
    (row,) = [row for row in capsys.readouterr().out.splitlines() if "| cocondenser-queries |" in row]
    assert row.startswith("| tuned | squad (30) | cocondenser-queries | 2 | 0.6000 ")
    assert row.endswith("| squad, train: 5 questions |"), "a row states which labels it used"


def test_runs_make_the_table(home, tmp_path):
    import results
    import table

    random = np.random.default_rng(0)
    for arm in ("cocondenser-spans", "cocondenser-queries", "start"):
        for seed in (1, 2):
            values = {f"{state}|squad": random.random((8, 3)) for state in table.STATES}
            facts = {
                "arm": arm,
                "seed": seed,
                "documents": {"squad": [0, 0, 1, 1, 2, 2, 3, 3]},
                "testing": 1.0,
            }
            made = (
                {"steps": 5, "tokens": 90, "tokens_an_example": 9, "seconds": 2.0} if arm != "start" else {}
            )
            facts |= {
                "labels": {"zero-shot": [], "tuned": ["l"]},
                "pretraining": made,
                "tuning": {"seconds": 1.0},
            }
            results.store(tmp_path / "results" / f"{arm}-{seed}.json", values, facts)
    table.write(tmp_path)
    assert "| cocondenser-queries less start | " in (tmp_path / "results.md").read_text()


def test_a_run_that_was_cut_off_is_not_in_the_table(home, tmp_path):
    import results
    import table

    facts = {"documents": {"squad": [0, 1]}, "pretraining": {}, "labels": {"zero-shot": [], "tuned": []}}
    results.store(tmp_path / "results" / "start-1.json", {"tuned|squad": np.zeros((2, 3))}, facts)
    (tmp_path / "results" / "start-2.npz").write_bytes(b"cut o")
    (tmp_path / "results" / "start-3.partial").write_text('{"cut')
    table.write(tmp_path)
    assert [line["runs"] for line in json.loads((tmp_path / "results.json").read_text())] == [1]
    table.write(tmp_path / "results")  # where there are no runs, a table without rows
    assert json.loads((tmp_path / "results" / "results.json").read_text()) == []
