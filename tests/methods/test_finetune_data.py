"""Training data: what is read, how it rotates, and what is refused with file and line."""

import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

from liebig.base import machine
from liebig.base.errors import DataError
from liebig.base.machine import helpers
from liebig.base.records import Passage
from liebig.collection import Collection
from liebig.methods import labelled
from liebig.methods.labelled import NamedTexts, cache_tokens, open_tokens, read_examples, tokenise, write
from liebig.methods.retrieval import RandomPassages, RetrievalBatches
from liebig.methods.samplers import (
    GroupChoice,
    mix_in_random,
    pick_negatives,
    pick_positives,
    random_batches,
    sequential_batches,
)
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World
from tests.worlds.finetuning import examples, random_texts, write_collection


def tevatron(positives, negatives, item, epoch, seed, n):
    """Tevatron v1's rule, written down from its description."""
    hashed = hash(item + seed)
    positive = positives[(hashed + epoch) % len(positives)]
    size = n - 1
    offset = epoch * size % len(negatives)
    shuffled = list(negatives)
    random.Random(hashed).shuffle(shuffled)
    return positive, (shuffled * 2)[offset : offset + size]


@pytest.mark.parametrize("epoch", [0, 1, 2, 7])
@pytest.mark.parametrize("item", [0, 5, 1234])
def test_rotation_is_tevatrons(epoch, item):
    positives, negatives = list("abc"), list(range(30))
    one, some = tevatron(positives, negatives, item, epoch, 42, 8)
    assert positives[pick_positives(3, item, epoch, 42)[0]] == one
    assert [negatives[i] for i in pick_negatives(30, item, epoch, 42, 7)] == some


def test_few_negatives_are_drawn_with_replacement_and_always_the_same():
    found = pick_negatives(2, 3, 1, 0, 7)
    assert len(found) == 7
    assert set(found) <= {0, 1}
    assert found == pick_negatives(2, 3, 1, 0, 7)
    assert pick_negatives(0, 3, 1, 0, 7) == []


def test_a_share_of_negatives_is_random():
    drawn = [mix_in_random([0] * 4, 0.1, i, 0, 0, 4, range(1000)) for i in range(500)]
    assert np.mean(np.array(drawn) == 0) == pytest.approx(0.1, abs=0.03)
    assert mix_in_random([5, 6], 1.0, 0, 0, 0, 2, range(9)) == [5, 6]


def test_random_negatives_are_drawn_from_the_whole_collection(tmp_path):
    """Also passages that no example names, with their own tokens; what is judged relevant never counts as one."""
    folder = write_collection(tmp_path / "c", queries=40)
    groups = folder / "groups" / "train.jsonl"
    groups.write_text("".join(groups.read_text().splitlines(keepends=True)[:4]))
    with (folder / "judgements" / "train.tsv").open("a") as file:
        file.write("".join(f"q1\tp{i}\t1\n" for i in range(20, 44)))
    collection = Collection(folder)
    read = read_examples(collection, "train")
    shape = RoleLayout(Tokenizer.train([p.text for p in collection.passages()], "wordpiece", 200, True), 24)
    tokens = {tuple(shape.lists([p])[0]): p.id for p in collection.passages()}
    assert len(read.examples.passages) < 10
    assert len(tokens) == 44

    def maker(world):
        texts = [
            Ragged.concatenate(tokenise(named, shape), np.int32) for named in (read.queries, read.passages)
        ]
        choice = GroupChoice(negatives=30, hard=0.0, seed=1, pool=44)
        sampler = sequential_batches(4, 4)
        return RetrievalBatches(
            read.examples, *texts, sampler, choice, world, random=RandomPassages(collection, shape)
        )

    whole = maker(World())(0)
    seen = [tokens[tuple(row)] for row in unpacked(whole.sides["passage"].packed)]
    assert [seen[31 * i] for i in range(4)] == ["p0", "p1", "p2", "p3"]
    assert len(set(seen)) > 35
    relevant = {"p1", *(f"p{i}" for i in range(20, 44))}
    left_out = [column for column in whole.extras["exclude"][1].tolist() if column >= 0]
    assert left_out == [column for column, name in enumerate(seen) if name in relevant and column != 31]
    shares = [maker(World(rank, 2))(0) for rank in range(2)]
    rows = [row for share in shares for row in unpacked(share.sides["passage"].packed)]
    assert [tokens[tuple(row)] for row in rows] == seen
    assert torch.cat([share.extras["exclude"] for share in shares]).equal(whole.extras["exclude"])


def unpacked(packed):
    return [packed.tokens[a:b].tolist() for a, b in pairwise(packed.offsets.tolist())]


def test_a_batch_is_a_function_of_the_step_and_shares_make_the_whole():
    data = examples([[i] for i in range(10)], [[i + 10, i + 11] for i in range(10)], 21)
    queries, passages = random_texts(10, 1), random_texts(21, 2)

    def maker(world):
        return RetrievalBatches(
            data, queries, passages, random_batches(10, 5, 3), GroupChoice(2, seed=3), world
        )

    whole, again = maker(World())(3), maker(World())(3)
    parts = [maker(World(rank, 2))(3) for rank in range(2)]
    assert whole.sides["passage"].packed.tokens.equal(again.sides["passage"].packed.tokens)
    for side in ("query", "passage"):
        tokens = np.concatenate([part.sides[side].packed.tokens.numpy() for part in parts])
        assert tokens.tolist() == whole.sides[side].packed.tokens.tolist()
    assert [row for part in parts for row in part.extras["targets"].tolist()] == whole.extras[
        "targets"
    ].tolist()


def test_every_example_comes_once_an_epoch_and_the_rest_is_a_smaller_batch():
    sampler = random_batches(23, 5, 0)
    seen = np.concatenate([sampler(step) for step in range(sampler.steps)])
    assert sampler.steps == 5
    assert sorted(seen.tolist()) == list(range(23))
    assert sequential_batches(10, 4)(0).tolist() == [0, 1, 2, 3]
    assert sampler(0).tolist() != sampler(sampler.steps).tolist()


@pytest.mark.parametrize(
    "make", [lambda n, p: sequential_batches(n, 5, p), lambda n, p: random_batches(n, 5, 0, p)]
)
@pytest.mark.parametrize(
    ("n", "processes", "sizes"), [(11, 1, [5, 6]), (13, 4, [5, 8]), (14, 4, [5, 5, 4]), (3, 1, [3])]
)
def test_a_rest_too_small_for_a_batch_joins_the_last_one(make, n, processes, sizes):
    sampler = make(n, processes)
    for epoch in range(2):
        batches = [sampler(epoch * sampler.steps + step) for step in range(sampler.steps)]
        assert [len(batch) for batch in batches] == sizes
        assert sorted(np.concatenate(batches).tolist()) == list(range(n))


def test_groups_of_several_files_are_joined_and_scores_kept(tmp_path):
    one = write_collection(tmp_path / "one", scores=True)
    other = tmp_path / "other" / "groups"
    other.mkdir(parents=True)
    (other / "train.jsonl").write_text('{"query": "q0", "positives": ["p0"], "negatives": ["p9"]}\n')
    read = read_examples(Collection(one), "train", groups=[one, other.parent])
    assert [read.examples.passages[i] for i in read.examples.negatives[0]] == ["p1", "p2", "p3", "p4", "p9"]
    assert read.examples.scores is None
    alone = read_examples(Collection(one), "train").examples
    assert alone.teacher(1).tolist() == [5.0, 0.0, -1.0, -2.0, -3.0]


def test_judgements_are_enough(tmp_path):
    folder = write_collection(tmp_path / "c")
    (folder / "groups" / "train.jsonl").unlink()
    found = read_examples(Collection(folder), "train").examples
    assert len(found) == 24
    assert not len(found.negatives.values)


def test_a_smaller_subset_lies_in_a_larger_one(collection):
    sets = [set(read_examples(Collection(collection), "train", queries=n).examples.queries) for n in (5, 12)]
    assert (len(sets[0]), len(sets[1])) == (5, 12)
    assert sets[0] < sets[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "q3", "positives": []}', "has no positive"),
        ('{"query": "q3", "positives": ["p3"], "negatives": ["p3"]}', "a positive and a negative"),
        ('{"query": "q3", "positives": ["p99"]}', "no passage 'p99'"),
        ('{"query": "q99", "positives": ["p3"]}', "no query 'q99'"),
        ('{"query": "q3", "positives": ["empty"]}', "empty text"),
        ('{"query": "q3", "positives": ["p3"], "positive_scores": [1, 2]}', "1 positives and 2 scores"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, line, message):
    folder = write_collection(tmp_path / "c")
    with (folder / "passages.jsonl").open("a") as file:
        file.write('{"id": "empty", "title": "", "text": " "}\n')
    path = folder / "groups" / "train.jsonl"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:3], "", line]) + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_examples(Collection(folder), "train")
    assert (str(caught.value.file), caught.value.line) == (str(path), 5)


def test_an_unknown_passage_of_a_second_file_is_said_with_that_file(tmp_path):
    folder = write_collection(tmp_path / "c")
    path = tmp_path / "mined" / "groups" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"query": "q0", "positives": ["p0"]}\n{"query": "q3", "positives": ["p3", "p99"]}\n')
    with pytest.raises(DataError, match="no passage 'p99'") as caught:
        read_examples(Collection(folder), "train", groups=[folder, tmp_path / "mined"])
    assert (str(caught.value.file), caught.value.line) == (str(path), 2)


def test_what_is_judged_beside_the_groups_is_relevant_too(tmp_path):
    folder = write_collection(tmp_path / "c", queries=4)
    with (folder / "judgements" / "train.tsv").open("a") as file:
        file.write("q0\tp2\t1\n")
    found = read_examples(Collection(folder), "train").examples
    two = found.content[found.passages.index("p2")]
    assert two in found.relevant[0]
    assert two not in found.relevant[1]


def test_an_unknown_passage_of_a_judgement_is_said_with_its_line(tmp_path):
    folder = write_collection(tmp_path / "c", queries=4)
    (folder / "groups" / "train.jsonl").unlink()
    path = folder / "judgements" / "train.tsv"
    path.write_text("q0\tp0\t1\nq1\tp77\t1\n")
    with pytest.raises(DataError, match="no passage 'p77'") as caught:
        read_examples(Collection(folder), "train")
    assert (str(caught.value.file), caught.value.line) == (str(path), 2)


def test_tokens_on_disk_are_those_in_memory(tmp_path):
    tokenizer = Tokenizer.train(["stone river bread cloud"], "wordpiece", 100, True)
    shape = RoleLayout(tokenizer, 40, prompt="stone: ", title="separator")
    texts = [Passage(str(i), "river bread " * 3 * i, "cloud") for i in range(5)]
    write(tmp_path / "texts", [shape.ids(texts[:2]), shape.ids(texts[2:])])
    memory, disk = shape.all_ids(texts), open_tokens(tmp_path / "texts")
    assert memory.to_lists() == disk.to_lists()
    assert disk.lengths.max() == 40
    assert disk[1].tolist().count(tokenizer.sep) == 2


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize(
    "how", [{}, {"bare": True}, {"title": "separator"}, {"lowercase": True, "prompt": "stone: "}]
)
def test_texts_tokenised_together_are_those_tokenised_one_by_one(kind, how):
    tokenizer = Tokenizer.train(["stone river bread cloud"] * 4, kind, 300, True)
    shape = RoleLayout(tokenizer, 12, **how)
    records = [Passage(str(i), "river Bread " * (i % 9), "cloud" if i % 2 else "") for i in range(40)]

    def alone(record):
        title = tokenizer.encode(record.title)
        if record.title and shape.title == "separator":
            ids = [*title, tokenizer.sep, *tokenizer.encode(record.text)]
        else:
            text = shape.prompt + (record.title + " " if record.title else "") + record.text
            ids = tokenizer.encode(text.lower() if shape.lowercase else text)
        return ids[:12] if shape.bare else tokenizer.wrap(ids[: 12 - len(tokenizer.wrap([]))])

    expected = [alone(record) for record in records]
    assert shape.all_ids(iter(records)).to_lists() == expected
    assert shape.lists(records) == expected
    assert shape.lists([]) == []
    assert max(map(len, expected)) == 12


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_the_number_of_processes_does_not_change_a_token(tmp_path, monkeypatch, forked_helpers, kind):
    collection = Collection(write_collection(tmp_path / "c", queries=9))
    records = list(collection.queries() if kind == "query" else collection.passages())[::-1]
    shape = RoleLayout(Tokenizer.train([record.text for record in records], "wordpiece", 100, True), 12)
    named = NamedTexts(collection.path, kind, [record.id for record in records])
    monkeypatch.setattr(labelled, "AT_ONCE", 2)
    monkeypatch.setattr(machine, "START", 1e-9)
    started, found = [], {}
    for count in (1, 2):
        monkeypatch.setattr(machine, "free_cores", lambda count=count: count)
        monkeypatch.setattr(machine, "helpers", lambda n, *rest: started.append(n) or helpers(n, *rest))
        found[count] = Ragged.concatenate(tokenise(named, shape), np.int32)
    assert started == [2]
    assert found[1].to_lists() == shape.lists(records)
    assert found[2].to_lists() == found[1].to_lists()


def test_what_was_tokenised_is_taken_and_not_tokenised_again(tmp_path):
    shape = RoleLayout(Tokenizer.train(["stone river"], "wordpiece", 100, True), 12)
    first = cache_tokens(tmp_path / "texts", shape.parts(["stone", "river stone"]), World())
    again = cache_tokens(tmp_path / "texts", iter(lambda: pytest.fail("tokenised again"), None), World())
    assert again.to_lists() == first.to_lists() == shape.lists(["stone", "river stone"])


def test_a_separator_is_only_asked_for_where_there_is_a_title():
    tokenizer = Tokenizer.train(["stone river"], "wordpiece", 100, True)
    del tokenizer._roles["sep"]
    shape = RoleLayout(tokenizer, 12, title="separator", bare=True)
    assert shape.lists(["stone river"]) == [tokenizer.encode("stone river")]


def test_helpers_start_without_torch():
    names = "liebig.methods.labelled, liebig.text.layout, liebig.store.prepare"
    code = f"import sys, {names}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_no_texts_are_no_tokens(tmp_path):
    shape = RoleLayout(Tokenizer.train(["stone river"], "wordpiece", 100, True), 12)
    assert len(shape.all_ids(())) == 0
    write(tmp_path / "none", ())
    assert len(open_tokens(tmp_path / "none")) == 0
