"""Reranking as a system: by hand, in a retriever's folder, and in the commands."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from liebig.base import workspace
from liebig.base.config import parse
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Passage, Query
from liebig.cli import make_app
from liebig.commands.search import ask_retriever
from liebig.model.cross_encoder import CrossEncoder
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read, write
from liebig.search.systems import Hybrid, Recorded, Reranked
from liebig.stages.retrieve import RetrieveConfig, run

QUESTION = "which nutrient limits the growth of barley"
DEPTH = 3


@pytest.fixture(scope="session")
def cross(small_model, tmp_path_factory):
    """The folder of a cross-encoder with a head that separates texts."""
    folder = tmp_path_factory.mktemp("cross") / "model"
    torch.manual_seed(0)
    model = CrossEncoder.start(small_model, length=64)
    with torch.no_grad():
        for name, weights in model.backbone.model.named_parameters():
            if name.startswith("classifier"):
                weights.mul_(20)
    model.eval().save(folder)
    return folder


@pytest.fixture(scope="session")
def reranking_folder(folder, cross, tmp_path_factory):
    """A retriever's folder that has a reranker."""
    out = tmp_path_factory.mktemp("reranking") / "folder"
    shutil.copytree(folder, out, symlinks=True)
    shutil.copytree(cross, out / "reranker")
    write(out, replace(read(out), reranker="reranker", depth=DEPTH))
    return out


def test_the_first_hits_are_ordered_by_both_scores_and_those_below_stay():
    queries = [Query("q", "x"), Query("r", "y")]
    parts = [
        Recorded("a", {"q": [("p1", 9.0), ("p2", 8.0), ("p3", 5.0), ("p4", 4.0)], "r": []}),
        Recorded("b", {"q": [], "r": []}),
    ]
    asked = []

    def score(pairs):
        asked.extend((query.id, [p.id for p in passages]) for query, passages in pairs)
        known = {"p1": -1.0, "p2": 3.0, "p3": 1.0}
        return [np.array([known[p.id] for p in passages], np.float32) for _, passages in pairs]

    hybrid = Hybrid(parts, lambda _: lambda lists: lists[0])
    system = Reranked(hybrid, score, lambda id: Passage(id, ""), depth=3)
    answer = system.answer(queries, 4)
    # (9, 8, 5) and (-1, 3, 1) are (1, .75, 0) and (0, 1, .5), and each counts half.
    assert answer.hits == [[("p2", 0.875), ("p1", 0.5), ("p3", 0.25), ("p4", -0.75)], []]
    assert asked == [("q", ["p1", "p2", "p3"]), ("r", [])]
    assert list(answer.parts) == ["a", "b", "hybrid"]
    assert [id for id, _ in answer.parts["hybrid"][0]] == ["p1", "p2", "p3", "p4"]
    assert system.search(queries[:1], 1) == [[("p2", 0.875)]]


def test_a_retriever_reranks_its_hybrid(reranking_folder, cross):
    retriever = Retriever.from_folder(reranking_folder)
    assert retriever.systems == ("hybrid", "dense", "bm25", "reranked")
    hybrid = retriever.search(QUESTION, 6, "hybrid")
    passages = [retriever.passage(result.id) for result in hybrid[:DEPTH]]
    scores = CrossEncoder.load(cross, device="cpu").score([(QUESTION, passage) for passage in passages])
    results = retriever.search(QUESTION, 6, "reranked")
    own = np.array([result.score for result in hybrid[:DEPTH]])
    both = sum((part - part.min()) / (part.max() - part.min()) / 2 for part in (own, scores))
    order = np.argsort(-both, kind="stable")
    assert [r.id for r in results] == [passages[i].id for i in order] + [r.id for r in hybrid[DEPTH:]]
    assert [r.score for r in results[:DEPTH]] == pytest.approx(both[order].tolist(), rel=1e-4, abs=1e-4)
    assert [r.ranks["hybrid"] for r in results[:DEPTH]] == (order + 1).tolist()
    assert set(results[0].ranks) == {"bm25", "dense", "hybrid"}
    with pytest.raises(RecipeError, match="explained by its parts"):
        retriever.explain(QUESTION, results[0].id, "reranked")


def test_any_folder_takes_a_reranker_that_is_named(folder, reranking_folder, cross):
    plain = Retriever.from_folder(folder)
    assert ("reranked" in plain.systems, plain.reranker) == (False, None)
    with pytest.raises(RecipeError, match="no reranked"):
        plain.search(QUESTION, system="reranked")
    given = Retriever.from_folder(folder, reranker=cross)
    own = Retriever.from_folder(reranking_folder)
    best = [r.id for r in own.search(QUESTION, DEPTH, "reranked")]
    assert set(best) <= {r.id for r in given.search(QUESTION, 8, "reranked")}
    assert not given.reload()


def test_the_commands_rerank(reranking_folder, tmp_path):
    expected = [r.id for r in Retriever.from_folder(reranking_folder).search(QUESTION, 4, "reranked")]
    words = ["search", str(reranking_folder), QUESTION, "--k", "4", "--system", "reranked", "--no-group"]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(make_app(), words)
    assert shown.exit_code == 0, shown.output
    assert "hybrid 1" in shown.output
    places = [shown.output.index(f"  {id}, bm25") for id in expected]
    assert places == sorted(places)
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "queries.jsonl").write_text(json.dumps({"id": "q", "text": QUESTION}) + "\n")
    config = {"collection": tmp_path / "queries", "retriever": reranking_folder, "system": "reranked", "k": 4}
    with workspace.stage(tmp_path / "out", kind="retrieve", recipe={}, inputs={}) as out:
        run(parse(RetrieveConfig, config), out)
    lines = (tmp_path / "out" / "reranked.trec").read_text().splitlines()
    assert [line.split()[2] for line in lines] == expected
    runs = sorted(path.stem for path in (tmp_path / "out").glob("*.trec"))
    assert runs == ["bm25", "dense", "hybrid", "reranked"]


@pytest.fixture
def retrieve(folder, cross, tmp_path):
    """Runs `retrieve` with a reranker that is named; gives the names of the runs."""
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "queries.jsonl").write_text(json.dumps({"id": "q", "text": QUESTION}) + "\n")

    def answer(**fields):
        config = {"collection": tmp_path / "queries", "retriever": folder, "reranker": cross, **fields}
        with workspace.stage(tmp_path / "out", kind="retrieve", recipe={}, inputs={}) as out:
            run(parse(RetrieveConfig, config), out)
        return {path.stem for path in (tmp_path / "out").glob("*.trec")}

    return answer


def test_a_reranker_that_is_named_answers(folder, cross, retrieve):
    words = ["search", str(folder), QUESTION, "--reranker", str(cross), "--json"]
    assert json.loads(CliRunner().invoke(make_app(), words).stdout)["system"] == "reranked"
    assert "reranked" in retrieve()


@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid"])
def test_a_system_that_does_not_use_the_reranker_that_is_named_is_refused(folder, cross, retrieve, system):
    sentence = f"the system {system} does not use a reranker"
    with pytest.raises(RecipeError, match=sentence):
        ask_retriever(folder, system=system, reranker=str(cross))
    with pytest.raises(RecipeError, match=sentence):
        retrieve(system=system)


def test_a_wrong_depth_is_refused(reranking_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reranking_folder, copy, symlinks=True)
    (copy / "retriever.json").write_text(json.dumps(read(copy).row() | {"depth": 0}))
    with pytest.raises(DataError, match="depth = 0"):
        Retriever.from_folder(copy)
