"""Systems, folding, fusion, snippets and runs: made by hand, and held against what they should be."""

import json
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from liebig.base import workspace
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Query
from liebig.bm25.analysis import Analyzer
from liebig.cli import make_app
from liebig.collection import Collection
from liebig.indexes.exact import ExactIndex
from liebig.search import fusion
from liebig.search.explain import snippet
from liebig.search.fusion import Hits, weighted, weighted_by
from liebig.search.systems import Folded, Hybrid, SentenceScores, System, fold, open_system
from liebig.stages.bm25 import BM25Config, run as run_bm25
from liebig.stages.retrieve import RetrieveConfig, run
from liebig.vectors import Shard, write_shard, write_summary

PASSAGES = [
    ("p0", "Flow", "the boundary layer of a laminar flow", "d0"),
    ("p1", "Flow", "heat transfer in a turbulent boundary layer", "d0"),
    ("p2", "Shock", "a shock wave ahead of a blunt body", "d1"),
    ("p3", "Wing", "lift of a wing in supersonic flow", "d2"),
]
QUERIES = [("q0", "boundary layer"), ("q1", "shock waves"), ("q2", "wings lifting"), ("p3", "flow")]


@pytest.fixture
def collection(tmp_path):
    folder = tmp_path / "collection"
    (folder / "judgements").mkdir(parents=True)
    rows = [{"id": i, "title": t, "text": x, "doc": d} for i, t, x, d in PASSAGES]
    (folder / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in QUERIES)
    )
    (folder / "judgements" / "dev.tsv").write_text("q0\tp0\t1\nq1\tp2\t1\nq2\tp3\t1\n")
    return folder


@pytest.fixture
def bm25(tmp_path, collection):
    with workspace.stage(tmp_path / "bm25", kind="bm25", recipe={}, inputs={}) as folder:
        run_bm25(BM25Config(collection=collection), folder)
    return tmp_path / "bm25"


def vectors_of(path, ids, rows, about=None):
    with workspace.stage(path, kind="encode", recipe={}, inputs={}) as folder:
        write_shard(folder.path / "shards" / "0", ids, np.array(rows, np.float32), "fp32")
        write_summary(folder.path, "fp32", 2, ["0"], about or {}, len(ids))
    return path


@pytest.fixture
def dense(tmp_path):
    """Passage vectors on which q1 is answered by p3, and q0 by p1."""
    passages = vectors_of(tmp_path / "pv", ["p0", "p1", "p2", "p3"], [[1, 0], [2, 0], [0, 1], [0, 2]])
    queries = vectors_of(tmp_path / "qv", ["q0", "q1", "q2", "p3"], [[1, 0], [0, 1], [0.1, 1], [1, 1]])
    return passages, queries


def searched(out, **values):
    with workspace.stage(out, kind="search", recipe={}, inputs={}, resume=False) as folder:
        run(RetrieveConfig.model_validate(values), folder)
    return {path.stem: lines(path) for path in out.glob("*.trec")}


def lines(path):
    return [line.split() for line in path.read_text().splitlines()]


def test_a_run_holds_what_the_index_finds_in_its_order(tmp_path, collection, bm25):
    found = searched(tmp_path / "out", collection=collection, bm25=bm25, k=2)["bm25"]
    system = open_system(bm25)
    for query, text in QUERIES:
        hits = [line for line in found if line[0] == query]
        assert [line[2] for line in hits] == [id for id, _ in system.ask(text, 2)]
        assert [int(line[3]) for line in hits] == list(range(1, len(hits) + 1))
        scores = [np.float32(line[4]) for line in hits]
        assert all(a > b for a, b in pairwise(scores))


def test_query_vectors_and_both_systems_give_three_runs(tmp_path, collection, bm25, dense):
    runs = searched(
        tmp_path / "out", collection=collection, bm25=bm25, dense=dense[0], vectors=dense[1], k=3, split="dev"
    )
    assert sorted(runs) == ["bm25", "dense", "hybrid"]
    assert [line[2] for line in runs["dense"] if line[0] == "q1"] == ["p3", "p2", "p0"]
    assert {line[0] for line in runs["hybrid"]} == {"q0", "q1", "q2"}


def test_a_query_can_leave_out_itself(tmp_path, collection, bm25):
    found = {}
    for exclude in (False, True):
        runs = searched(tmp_path / f"{exclude}", collection=collection, bm25=bm25, k=3, exclude_self=exclude)
        found[exclude] = [line[2] for line in runs["bm25"] if line[0] == "p3"]
    assert found == {False: ["p0", "p3", "p1"], True: ["p0", "p1"]}


def test_passages_are_folded_to_their_documents(tmp_path, collection, bm25):
    runs = searched(tmp_path / "out", collection=collection, bm25=bm25, k=3, fold=True)
    assert [line[2] for line in runs["bm25"] if line[0] == "q0"] == ["d0"]


def test_documents_of_all_that_is_found_are_looked_up_at_once(tmp_path, collection, bm25, monkeypatch):
    asked = []
    all_at_once = Collection.some_passages

    def counted(self, names):
        asked.append(sorted(names))
        return all_at_once(self, asked[-1])

    monkeypatch.setattr(Collection, "some_passages", counted)
    monkeypatch.setattr(Collection, "passage", None)
    searched(tmp_path / "out", collection=collection, bm25=bm25, k=3, fold=True)
    assert asked == [["p0", "p1", "p2", "p3"]]


def test_pieces_of_passages_are_folded_to_the_documents_of_the_passages(tmp_path, collection, bm25, dense):
    rows = [[1, 0], [3, 0], [0, 1], [2, 0]]
    pieces = vectors_of(tmp_path / "pieces", ["p0#0", "p1#0", "p1#1", "p2#0"], rows, {"pieces": True})
    runs = searched(
        tmp_path / "out", collection=collection, bm25=bm25, dense=pieces, vectors=dense[1], k=2, fold=True
    )
    assert {line[2] for run in runs.values() for line in run} <= {"d0", "d1", "d2"}
    assert [line[2] for line in runs["dense"] if line[0] == "q0"] == ["d0", "d1"]


def test_folding_a_collection_that_has_not_what_is_found_is_refused(tmp_path, collection, bm25):
    (collection / "passages.jsonl").write_text('{"id": "p0", "title": "", "text": "x", "doc": "d0"}\n')
    with pytest.raises(DataError, match="3 passages that were found are not in the collection, such as 'p1'"):
        searched(tmp_path / "out", collection=collection, bm25=bm25, k=3, fold=True)


def test_vectors_of_pieces_are_folded_without_being_asked(tmp_path, collection, dense):
    rows = [[1, 0], [3, 0], [0, 1], [2, 0]]
    pieces = vectors_of(tmp_path / "pieces", ["p0#0", "p0#1", "p1#0", "p2#0"], rows, {"pieces": True})
    runs = searched(tmp_path / "out", collection=collection, dense=pieces, vectors=dense[1], k=2)
    assert [line[2] for line in runs["dense"] if line[0] == "q0"] == ["p0", "p2"]


def test_an_index_without_a_model_says_so(tmp_path, collection, dense):
    with pytest.raises(RecipeError, match="which model"):
        searched(tmp_path / "out", collection=collection, dense=dense[0], k=1)


HITS: Hits = [("a#1", 5.0), ("b#0", 4.0), ("a#0", 3.0), ("c", 2.0), ("b#2", 2.0)]


def test_folding_by_hand():
    assert fold(HITS, 3) == [("a", 5.0), ("b", 4.0), ("c", 2.0)]
    assert fold(HITS, 1) == [("a", 5.0)]


class Many(System):
    """A document with many pieces ahead of the others."""

    name = "many"

    def search(self, queries, k):
        hits = [(f"a#{i}", 100.0 - i) for i in range(50)] + [("b#0", 1.0), ("c#0", 0.5)]
        return [hits[:k] for _ in queries]


class Other(Many):
    name = "other"


def test_folding_looks_further_until_there_are_enough_documents():
    assert [id for id, _ in Folded(Many()).ask("", 3)] == ["a", "b", "c"]


def test_weighted_scores_by_hand():
    lists = [[("a", 10.0), ("b", 5.0), ("c", 0.0)], [("c", 3.0), ("a", 1.0)]]
    assert weighted(lists, [0.5, 0.5]) == [("a", 0.5), ("c", 0.5), ("b", 0.25)]
    assert weighted([[], [("a", 1.0)]], [0.5, 0.5]) == [("a", 0.5)]


def test_spread_keeps_how_sure_a_list_is():
    sure = [("a", 0.9), ("b", 0.5), ("c", 0.5)]
    unsure = [("a", 0.52), ("b", 0.51), ("c", 0.5)]
    words = [("b", 10.0), ("c", 4.0)]  # of fewer than were asked for: what was not found has 0

    def fused(vectors):
        return dict(weighted([words, vectors], [0.5, 0.5], "spread", [None, 0.4]))

    assert fused(sure) == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.2})
    assert fused(unsure) == pytest.approx({"a": 0.025, "b": 0.5125, "c": 0.2})
    many = [
        (str(i), 20.0 - i / 100) for i in range(fusion.FUSION_DEPTH)
    ]  # where more may have been found, the lowest is 0
    fused_many = dict(weighted([many], [1.0], "spread"))
    assert (fused_many["0"], fused_many["99"]) == (1, 0), "divided by the range, not by the best score"
    assert weighted([[("a", 0.0)], [("a", -1.0)]], [0.5, 0.5], "spread", [None, 0.4]) == [("a", 0.0)]
    assert fusion.spread_at([(str(i), 1 - i / 10) for i in range(20)]) == pytest.approx(
        fusion.SPREAD_TIMES * 0.9
    )
    assert fusion.spread_at([]) == 0


def test_a_weight_of_one_is_the_first_system_alone():
    lists = [[("a", 3.0), ("b", 2.0)], [("b", 9.0), ("a", 1.0)]]
    assert [id for id, _ in weighted_by(1.0, "minmax")(lists)] == ["a", "b"]


def test_a_hybrid_gives_its_parts_and_the_whole():
    answer = Hybrid([Many(), Other()], lambda _: weighted_by(0.5, "minmax")).answer([Query("q", "x")], 2)
    assert [len(hits) for hits in answer.hits] == [2]
    assert {name: len(lists[0]) for name, lists in answer.parts.items()} == {"many": 52, "other": 52}


def test_a_hybrid_scores_what_it_found_by_its_best_sentence():
    rng = np.random.default_rng(0)
    sizes = np.append(rng.integers(1, 40, 29), 30)
    ids = [f"p{text}#{i}" for text, size in enumerate(sizes) for i in range(size)]
    rows = rng.standard_normal((len(ids), 8)).astype(np.float32)
    cut = ids.index("p29#2")  # shards end inside the passage, and the second has one sentence of it
    shards = [
        Shard.in_memory(ids[a:b], rows[a:b], "fp32") for a, b in ((0, cut), (cut, cut + 1), (cut + 1, None))
    ]
    index, query = (
        ExactIndex("fp32", 8, shards, {"pieces": True}),
        rng.standard_normal((1, 8)).astype(np.float32),
    )
    scores = SentenceScores(index, lambda queries: query)
    found = [[("p3", 1.0), ("gone", 0.5)], [("p29", 1.0), ("p3", 0.2), ("p7", 0.1)]]
    best = {
        p: max(row @ query[0] for id, row in zip(ids, rows) if id.startswith(f"{p}#"))
        for p in ("p3", "p7", "p29")
    }
    [hits] = scores.search([Query("q", "x")], [found], 5)
    assert [id for id, _ in hits] == sorted(best, key=best.get, reverse=True)
    assert dict(hits) == pytest.approx(best, rel=1e-5)
    index.delete([id for id in ids if id.startswith("p7#")])
    assert {
        id for id, _ in SentenceScores(index, lambda queries: query).search([Query("q", "x")], [found], 5)[0]
    } == {"p3", "p29"}
    assert scores.search([Query("q", "x")], [[[("gone", 1.0)]]], 5) == [[]]
    several = [found, [[("gone", 1.0)]], [[("p12", 1.0), ("p3", 0.5)]]]
    together = SentenceScores(index, lambda queries: np.repeat(query, 3, axis=0))
    alone = [scores.search([Query("q", "x")], [lists], 2)[0] for lists in several]
    assert together.search([Query("q", "x")] * 3, several, 2) == alone

    class Few(System):
        name = "few"

        def search(self, queries, k):
            return [found[1] for _ in queries]

    answer = Hybrid([Few()], lambda _: weighted_by(0.0, "minmax"), scores).answer([Query("q", "x")], 2)
    assert answer.parts["sentences"] == [hits]


def text_of(pieces):
    return "".join(f"[{piece.text}]" if piece.marked else piece.text for piece in pieces)


def test_snippets_mark_words_by_their_stems():
    assert text_of(snippet("Waves, and a wave.", "the waving wave", Analyzer())) == "[Waves], and a [wave]."


def test_snippets_mark_what_was_searched_for_and_not_the_query_language():
    shown = text_of(snippet("Before a wave, a bird flies.", "wave -bird before:2024", Analyzer()))
    assert shown == "Before a [wave], a bird flies."


def test_snippets_show_the_window_with_most_terms():
    text = "filler " * 60 + "lift of a wing " + "filler " * 60 + "wing"
    shown = text_of(snippet(text, "wing lift", Analyzer(), window=12))
    assert shown.startswith("… filler")
    assert "[lift] of a [wing]" in shown
    assert shown.endswith(" …")


@pytest.mark.parametrize(
    "text, shown",
    [
        ("**Bold** `code` ``x y`` and *this*", "Bold code x y and this"),
        ("## Heading\n> see [the guide](a.md#b) ![a wing](w.png)", "Heading\nsee the guide a wing"),
        ("```bash\nls\n```\n:class:`Wing`", "ls\nWing"),
        ("| part | use | | --- | :-: | | wing | none | a | b", "| part | use | | wing | none | a | b"),
        ("```bash liebig build ``` **My corpus is small. Not so.**", "liebig build My corpus is small. Not so."),
        ("2**8, __init__, f(**a, **b), a * b, <b>x</b>", "2**8, __init__, f(**a, **b), a * b, <b>x</b>"),
    ],
)  # fmt: skip
def test_snippets_leave_out_markup_and_nothing_else(text, shown):
    assert text_of(snippet(text, "lift", Analyzer())) == shown


def test_snippets_work_without_spaces_and_without_matches():
    assert text_of(snippet("東京は首都です", "首都", Analyzer("none"))) == "東京は[首都]です"
    assert text_of(snippet("nothing here", "wing", Analyzer())) == "nothing here"
    assert snippet("", "wing", Analyzer()) == []


def test_a_device_that_is_not_there_is_a_recipe_error(tmp_path, collection, dense):
    with pytest.raises(RecipeError, match="no such device"):
        searched(tmp_path / "out", collection=collection, dense=dense[0], vectors=dense[1], device="cuda:99")


@pytest.mark.parametrize(
    ("gpus", "named", "device"), [(1, None, "cuda"), (1, "cpu", "cpu"), (0, None, "cpu")]
)
def test_the_gpu_searches_if_there_is_one(tmp_path, collection, dense, monkeypatch, gpus, named, device):
    class SeenError(Exception):
        pass

    def opened(path, *, threads, device):
        raise SeenError(device)

    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("liebig.stages.retrieve.open_index", opened)
    with pytest.raises(SeenError, match=f"^{device}$"):
        searched(tmp_path / "out", collection=collection, dense=dense[0], vectors=dense[1], device=named)


def test_an_unfinished_build_says_to_run_the_same_command_again(tmp_path):
    (tmp_path / "out" / "work").mkdir(parents=True)
    for command, *rest in (["search", "a question"], ["search"], ["serve"]):
        done = CliRunner().invoke(make_app(), [command, str(tmp_path / "out"), *rest])
        assert done.exit_code == 2
        assert "the build is not finished. To fix it: run the same command again" in done.stderr
