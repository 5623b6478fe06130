"""Queries of a collection: shards, resuming, processes, what is left out, and what reads the result."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.main import get_command

from liebig.base import config as recipes, pipeline
from liebig.base.errors import DataError
from liebig.cli import make_app
from liebig.collection import Collection
from liebig.queries.consistency import clean
from liebig.queries.decoding import Engine
from liebig.stages import STAGES
from liebig.stages.queries_generate import QueriesGenerateConfig
from liebig.train.distributed import World
from tests.worlds.processes import together
from tests.worlds.queries import question

STAGE = STAGES["queries generate"]


def recipe(collection: Path, source: dict, *overrides: str) -> QueriesGenerateConfig:
    values = {"collection": str(collection), "source": source, "device": "cpu"}
    return recipes.load(QueriesGenerateConfig, None, overrides, values)


def model(t5: Path, **told: object) -> dict:
    return {"kind": "model", "path": str(t5), "query_length": 12, **told}


def run(config: QueriesGenerateConfig, out: Path) -> Path:
    pipeline.run_stage(STAGE, config, out)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    names = (
        "queries.jsonl",
        "generated.jsonl",
        "judgements/generated.tsv",
        "passages.jsonl",
        "generation.json",
    )
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def generated(collection, t5, tmp_path_factory) -> Path:
    return run(recipe(collection, model(t5), "shard=7"), tmp_path_factory.mktemp("generated") / "g")


def test_the_result_is_a_collection_whose_judgements_tie_queries_to_passages(generated, collection):
    made = Collection(generated)
    assert [p.id for p in made.passages()] == [p.id for p in Collection(collection).passages()]
    texts = {query.id: query.text for query in made.queries()}
    tied = [(j.query, j.passage) for j in made.judgements("generated")]
    rows = [json.loads(line) for line in (generated / "generated.jsonl").read_text().splitlines()]
    assert [(row["passage"], q) for row in rows for q in row["queries"]] == [(p, texts[q]) for q, p in tied]
    assert all(1 <= n <= 5 for n in Counter(p for _, p in tied).values())


def test_shards_and_order_do_not_change_a_query(generated, collection, t5, tmp_path):
    one = run(recipe(collection, model(t5, budget=40), "shard=1000"), tmp_path / "one")
    assert contents(one) == contents(generated)


def test_resumed_is_uninterrupted_and_finished_shards_are_left_alone(
    generated, collection, t5, tmp_path, monkeypatch
):
    config, calls = recipe(collection, model(t5), "shard=7"), []
    write = Engine.write

    def breaking(self, sources, *rest):
        calls.append(len(sources))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(self, sources, *rest)

    monkeypatch.setattr(Engine, "write", breaking)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "g")
    done = len(list((tmp_path / "g.partial" / "shards").glob("*.jsonl")))
    run(config, tmp_path / "g")
    assert contents(tmp_path / "g") == contents(generated)
    assert done >= 1
    assert sum(calls[3:]) == 20 - 7 * done


def generate(world: World, words: list[str]) -> None:
    get_command(make_app())(words, standalone_mode=False)


def test_two_processes_write_what_one_writes(generated, collection, t5, tmp_path):
    words = ["queries", "generate", str(collection), "source.kind=model", f"source.path={t5}"]
    words += ["source.query_length=12", "--shard", "7", "--device", "cpu", "--out", str(tmp_path / "two")]
    together(generate, 2, tmp_path / "processes", words)
    assert contents(tmp_path / "two") == contents(generated)


def test_a_limit_draws_passages_by_seed_and_smaller_draws_lie_in_larger_ones(collection, t5, tmp_path):
    found = []
    for limit in (3, 6):
        out = run(recipe(collection, model(t5), f"limit={limit}", "count=1"), tmp_path / str(limit))
        rows = [json.loads(line) for line in (out / "generated.jsonl").read_text().splitlines()]
        found.append({row["passage"]: row["queries"] for row in rows})
    assert [len(one) for one in found] == [3, 6]
    assert found[0].items() <= found[1].items()


def test_a_split_can_say_which_passages_are_written_for(collection, t5, tmp_path):
    out = run(recipe(collection, model(t5), "of_split=dev", "count=1"), tmp_path / "out")
    rows = [json.loads(line) for line in (out / "generated.jsonl").read_text().splitlines()]
    assert [row["passage"] for row in rows] == [f"p{i}" for i in range(10, 20)]


def test_repetitions_and_empty_queries_are_left_out_and_counted():
    counts: Counter[str] = Counter()
    assert clean(["What is it?", "what  is it", " ", "?!", "Who is it"], counts) == [
        "What is it?",
        "Who is it",
    ]
    assert counts == {"empty": 2, "duplicates": 1, "queries": 2}


def written(folder: Path, queries: dict[str, list[str]]) -> Path:
    path = folder / "some.jsonl"
    path.write_text("".join(json.dumps({"passage": p, "queries": q}) + "\n" for p, q in queries.items()))
    return path


def test_queries_of_a_file_are_taken_as_they_are(collection, tmp_path):
    other = ["the castle of nowhere", question(3)]
    path = written(tmp_path, {"p3": [*other, question(4)], "p4": [question(4)]})
    plain = run(recipe(collection, {"kind": "file", "path": str(path)}), tmp_path / "plain")
    assert {q.id: q.text for q in Collection(plain).queries()} == {
        "p3#0": other[0], "p3#1": other[1], "p3#2": question(4), "p4#0": question(4),
    }  # fmt: skip


def test_the_labels_behind_queries_are_known_from_a_file_and_from_its_folder(generated, collection, tmp_path):
    about = {**json.loads((generated / "generation.json").read_text()), "labels": ["some, train: 3 pairs"]}
    (tmp_path / "generation.json").write_text(json.dumps(about))
    (tmp_path / "generated.jsonl").write_bytes((generated / "generated.jsonl").read_bytes())
    for number, path in enumerate((tmp_path, tmp_path / "generated.jsonl")):
        made = run(recipe(collection, {"kind": "file", "path": str(path)}), tmp_path / str(number))
        assert json.loads((made / "generation.json").read_text())["labels"] == ["some, train: 3 pairs"]


def test_queries_of_no_passage_are_refused(collection, tmp_path):
    path = written(tmp_path, {"nowhere": ["first"]})
    with pytest.raises(DataError, match="has a query left"):
        run(recipe(collection, {"kind": "file", "path": str(path)}), tmp_path / "a")


def test_a_file_that_is_not_of_generated_queries_names_the_line(collection, tmp_path):
    file = tmp_path / "queries.jsonl"
    file.write_text('{"passage": "p3", "queries": ["a b"]}\n{"passage": 3}\n')
    with pytest.raises(DataError, match="line 2"):
        run(recipe(collection, {"kind": "file", "path": str(file)}), tmp_path / "out")
    with pytest.raises(DataError, match="no generated queries"):
        run(recipe(collection, {"kind": "file", "path": str(tmp_path)}), tmp_path / "out")
