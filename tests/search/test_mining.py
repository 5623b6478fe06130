"""Hard negatives: every rule by a case made by hand, and files that stream."""

import json
import random

import pytest

from liebig.base import workspace
from liebig.base.errors import DataError
from liebig.base.records import Group, Passage
from liebig.collection import Collection
from liebig.search.mine import Miner, QueryLines, Take, nearly, shared, triples
from liebig.stages.mine import MineConfig, run

TEXTS = {f"n{i}": f"passage number {i} speaks of something else entirely {i}" for i in range(20)}
TEXTS |= {
    "pos": "The Eiffel Tower is 330 metres tall and stands in Paris, France.",
    "same": "the eiffel tower is 330 metres tall,  and stands in Paris - France",
    "near": "The Eiffel Tower is 330 metres tall and stands in Paris, France. It was built in 1889.",
}


def lookup(id):
    if id not in TEXTS:
        raise DataError(f"no {id}")
    return Passage(id, TEXTS[id])


def run_file(path, *lists):
    """A run of q0, q1, … with scores 100, 99, …"""
    rows = [
        f"q{q} Q0 {id} {rank} {101 - rank} tag\n"
        for q, ids in enumerate(lists)
        for rank, id in enumerate(ids, 1)
    ]
    path.write_text("".join(rows))
    return QueryLines(path)


def mined(path, ids, positives=("pos",), **options):
    take = {name: options.pop(name) for name in list(options) if name in Take.__dataclass_fields__}
    source = Take(run_file(path / "run", ids), **{"random": False, **take})
    miner = Miner([source], lookup, **options)
    (group,) = miner.mine(["q0"], lambda query: positives)
    return group, miner.counts


def test_positives_and_their_copies_are_dropped_and_counted(tmp_path):
    group, counts = mined(tmp_path, ["n1", "pos", "same", "near", "n2"])
    assert group == Group("q0", ("pos",), ("n1", "n2"))
    assert counts["dropped: judged positive"] == 1
    assert counts["dropped: the text of a positive"] == 1
    assert counts["dropped: nearly the text of a positive"] == 1


def test_copies_are_kept_on_request(tmp_path):
    group, _ = mined(tmp_path, ["pos", "same", "near"], duplicates=None)
    assert group.negatives == ("same", "near")


def test_the_range_of_ranks_is_kept(tmp_path):
    ids = [f"n{i}" for i in range(10)]
    assert mined(tmp_path, ids, first=3, depth=5)[0].negatives == ("n2", "n3", "n4")
    assert mined(tmp_path, ids, keep=2)[0].negatives == ("n0", "n1")


def test_a_sample_is_drawn_from_the_range_and_depends_on_the_seed_alone(tmp_path):
    ids = [f"n{i}" for i in range(20)]
    draws = {mined(tmp_path, ids, random=True, keep=5, depth=15, seed=seed)[0].negatives for seed in range(5)}
    assert len(draws) == 5
    assert all(set(draw) <= set(ids[:15]) and len(set(draw)) == 5 for draw in draws)
    again = [mined(tmp_path, ids, random=True, keep=5, seed=3)[0].negatives for _ in range(2)]
    assert again[0] == again[1]


def test_sources_come_one_after_the_other_without_repeats(tmp_path):
    one = Take(run_file(tmp_path / "a", ["n1", "n2", "n3"]), keep=2, random=False)
    two = Take(run_file(tmp_path / "b", ["n2", "n7", "n8"]), keep=2, random=False)
    (group,) = Miner([one, two], lookup).mine(["q0"], lambda query: ["pos"])
    assert group.negatives == ("n1", "n2", "n7", "n8")


def test_queries_without_positives_or_hits_are_counted(tmp_path):
    source = Take(run_file(tmp_path / "a", ["n1"]))
    miner = Miner([source], lookup)
    groups = list(miner.mine(["q0", "q5", "q6"], lambda query: ["pos"] if query != "q6" else []))
    assert [group.query for group in groups] == ["q0", "q5"]
    assert miner.counts["queries without a positive"] == 1
    assert miner.counts["queries that a run does not have"] == 1
    assert miner.counts["queries without a negative"] == 1


def test_lines_of_a_query_may_stand_in_several_places(tmp_path):
    (tmp_path / "run").write_text("q1 Q0 a 1 3 t\nq2 Q0 b 1 3 t\n\nq1 Q0 c 2 9 t\nq10 Q0 d 1 1 t\n")
    blocks = QueryLines(tmp_path / "run")
    assert blocks.hits("q1") == [("c", 9.0), ("a", 3.0)]
    assert blocks.hits("q10") == [("d", 1.0)]
    assert blocks.hits("q") == []


def test_the_stage_writes_groups_that_a_collection_reads(tmp_path):
    folder = tmp_path / "collection"
    (folder / "judgements").mkdir(parents=True)
    (folder / "passages.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in TEXTS.items())
    )
    (folder / "queries.jsonl").write_text('{"id": "q0", "text": "tower"}\n{"id": "q1", "text": "other"}\n')
    (folder / "judgements" / "train.tsv").write_text("q0\tpos\t1\nq0\tn1\t0\nq1\tn5\t2\n")
    run_file(tmp_path / "run", ["pos", "n1", "n2"], ["n5", "n6"])
    config = MineConfig.model_validate(
        {"collection": folder, "sources": [{"run": tmp_path / "run", "keep": 2}]}
    )
    with workspace.stage(tmp_path / "out", kind="mine", recipe={}, inputs={}) as out:
        run(config, out)
    run_file(tmp_path / "other", [], [], ["n1"])
    config = config.model_copy(
        update={"sources": [config.sources[0].model_copy(update={"run": tmp_path / "other"})]}
    )
    with (
        pytest.raises(DataError, match="no passage of the runs became a negative"),
        workspace.stage(tmp_path / "none", kind="mine", recipe={}, inputs={}) as out,
    ):
        run(config, out)
    groups = {group.query: group for group in Collection(tmp_path / "out").groups("train")}
    assert groups["q0"].positives == ("pos",)
    assert set(groups["q0"].negatives) == {"n1", "n2"}
    assert groups["q1"] == Group("q1", ("n5",), ("n6",))
    assert json.loads((tmp_path / "out" / "mining.json").read_text())["negatives"] == 3


def test_a_run_with_other_columns_is_refused(tmp_path):
    (tmp_path / "run").write_text("q0 n1 0.5\n")
    with pytest.raises(DataError, match="3 columns instead of 6"):
        QueryLines(tmp_path / "run").hits("q0")


@pytest.mark.parametrize("score", ["high", "nan"])
def test_a_score_that_is_no_number_is_refused(tmp_path, score):
    (tmp_path / "run").write_text(f"q0 Q0 n1 1 {score} tag\n")
    with pytest.raises(DataError, match="of query 'q0' is not a number"):
        QueryLines(tmp_path / "run").hits("q0")


@pytest.mark.parametrize("row", ["q0\tpos\tyes", "q0\tpos"])
def test_a_judgement_that_is_none_is_refused(tmp_path, row):
    from liebig.base.errors import DataError
    from liebig.stages.mine import Positives

    (tmp_path / "train.tsv").write_text(row + "\n")
    with pytest.raises(DataError, match="does not have the form query, passage, grade"):
        Positives(tmp_path / "train.tsv", 1).of("q0")


def test_memory_grows_by_no_more_than_the_ids_and_places_of_the_queries(tmp_path):
    import tracemalloc

    def peak(count):
        folder = tmp_path / str(count)
        (folder / "judgements").mkdir(parents=True)
        (folder / "passages.jsonl").write_text(
            "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in TEXTS.items())
        )
        (folder / "queries.jsonl").write_text("")
        (folder / "judgements" / "train.tsv").write_text("".join(f"q{i}\tpos\t1\n" for i in range(count)))
        run_file(folder / "run", *([["n1"]] * count))
        sources = [{"run": folder / "run"}, {"run": folder / "run"}]
        tracemalloc.start()
        with workspace.stage(folder / "out", kind="mine", recipe={}, inputs={}) as out:
            run(MineConfig(collection=folder, sources=sources), out)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(10)
    assert peak(800) - peak(200) < 400 * 600


def test_a_count_never_hides_a_text_that_is_nearly_the_same():
    draw, seen = random.Random(0), set()
    for _ in range(4000):
        vocabulary = "abcdefghijklmnopqrst"[: draw.choice([1, 2, 4, 20])]
        own = [draw.choice(vocabulary) for _ in range(draw.randint(0, 40))]
        cut = own[draw.randint(0, 4) : len(own) - draw.randint(0, 4)]
        other = [word if draw.random() < 0.97 else "z" for word in cut]
        share = draw.choice([0.0, 0.2, 0.5, 0.7, 0.8, 1.0])
        expected = shared(triples(other), triples(own)) >= share
        assert nearly(other, triples(own), share) == expected
        seen.add((share, expected))
    assert len(seen) == 11  # every share with both answers, but for 0, which all texts have


def test_a_share_that_is_met_exactly_is_met():
    words = [str(number) for number in range(102)]
    other = triples([*words[:57], *map(chr, range(200, 243))])
    assert shared(triples(words), other) == 55 / 98
    for share in (0.55, 55 / 98):
        assert nearly(words, other, share)
    same = frozenset([*triples(words[:57]), *((c, c, c) for c in map(chr, range(200, 245)))])
    assert len(same) == 100
    assert 0.55 * 100 > 55  # in floating point
    assert nearly(words, same, 0.55)
