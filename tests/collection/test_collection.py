"""A collection gives back what was written into it, by iteration and by id."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import liebig.collection as module
from liebig.base.errors import CorruptError, DataError
from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, ScoredPair, Section, Tuple
from liebig.collection import Collection, lookup
from liebig.collection.id_table import IdTable, Repeat
from liebig.collection.lookup import hash64
from liebig.collection.offset_index import OffsetIndex
from liebig.collection.writer import CollectionWriter
from liebig.formats import detect
from liebig.formats.items import Item, Options, Where

PASSAGES = [
    Passage("p1", "text\tone\n", "Title", "d1"),
    Passage("p2", "", ""),
    Passage("ü 3", "\u2028three\0"),
]
QUERIES = [Query("q1", "who?", ("a", "b")), Query("q2", "what?"), Query("q3", "never judged")]
DOCUMENTS = [Document("d1", "Title", (Section("", ("One.", "Two.")), Section("H", ())), {"url": "u"})]
GROUPS = [Group("q1", ("p1",), ("p2", "ü 3"), (1.5,), (0.25, -2.0)), Group("q2", ("p2",))]
PAIRS, TUPLES = [ScoredPair("a", "b", 2.5)], [Tuple("a", "b", ("c", "d")), Tuple("e", "f")]
JUDGED = {"train": [Judgement("q1", "p1", 1), Judgement("q1", "p2", -1)], "test": [Judgement("q2", "ü 3", 2)]}
HERE = Where("here", 7)


def write(folder, records, split=""):
    with CollectionWriter(folder) as writer:
        for record in records:
            writer.add(Item(record, HERE, split))
    return writer


@pytest.fixture
def collection(tmp_path):
    with CollectionWriter(tmp_path) as writer:
        for record in [*PASSAGES, *QUERIES, *DOCUMENTS]:
            writer.add(Item(record, HERE))
        for split, found in JUDGED.items():
            for record in found:
                writer.add(Item(record, HERE, split))
        for record in [*GROUPS, *PAIRS, *TUPLES]:
            writer.add(Item(record, HERE, "train"))
    return Collection(tmp_path)


def test_iteration_gives_back_what_was_written(collection):
    assert list(collection.passages()) == PASSAGES
    assert list(collection.queries()) == QUERIES
    assert list(collection.documents()) == DOCUMENTS
    assert {split: list(collection.judgements(split)) for split in JUDGED} == JUDGED
    assert (list(collection.groups("train")), list(collection.groups("test"))) == (GROUPS, [])
    assert (list(collection.pairs("train")), list(collection.tuples("train"))) == (PAIRS, TUPLES)


def test_every_record_is_found_by_its_id(collection):
    assert [collection.passage(p.id) for p in reversed(PASSAGES)] == PASSAGES[::-1]
    assert [collection.query(q.id) for q in QUERIES] == QUERIES
    assert collection.document("d1") == DOCUMENTS[0]


def test_counts_and_splits(collection):
    assert [collection.count(kind) for kind in ("passages", "queries", "documents")] == [3, 3, 1]
    assert collection.splits == ("test", "train")
    assert [q.id for q in collection.queries("train")] == ["q1", "q2"]
    assert [q.id for q in collection.queries("test")] == ["q2"]


def test_a_collection_read_as_a_source_is_the_same_collection(collection, tmp_path):
    (collection.path / "summary.json").write_text("{}")
    [found] = detect(collection.path)
    assert found.format.name == "collection"
    with CollectionWriter(tmp_path / "again") as writer:
        for item in found.items(Options()):
            writer.add(item)
    for name in (
        "passages.jsonl",
        "queries.jsonl",
        "documents.jsonl",
        "judgements/train.tsv",
        "groups/train.jsonl",
    ):
        assert (tmp_path / "again" / name).read_bytes() == (collection.path / name).read_bytes()


def test_an_unknown_id_and_an_unknown_split_are_refused(collection):
    with pytest.raises(DataError, match="no query with the id 'nobody'"):
        collection.query("nobody")
    with pytest.raises(DataError, match="no split 'dev'; it has test, train"):
        list(collection.judgements("dev"))


def test_queries_listed_for_a_split_are_its_queries(tmp_path):
    with CollectionWriter(tmp_path) as writer:
        for split, name in (("train", "a"), ("test", "b"), ("test", "a")):
            writer.add(Item(Query(name, name), HERE, split))
    collection = Collection(tmp_path)
    assert collection.splits == ("test", "train")
    assert [[q.id for q in collection.queries(split)] for split in ("train", "test")] == [["a"], ["a", "b"]]


def test_a_collection_of_passages_alone_is_normal(tmp_path):
    write(tmp_path, PASSAGES)
    collection = Collection(tmp_path)
    assert list(collection.documents()) == list(collection.queries()) == []
    assert collection.splits == ()
    assert not collection.has("documents")


def test_a_folder_that_is_no_collection_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a collection"):
        Collection(tmp_path)


def test_a_record_that_comes_again_is_kept_once(tmp_path):
    writer = write(tmp_path, [PASSAGES[0], PASSAGES[1], PASSAGES[0]])
    assert list(Collection(tmp_path).passages()) == PASSAGES[:2]
    assert (writer.counts["passages"], writer.repeated["passages"]) == (2, 1)


def test_an_id_with_other_contents_is_refused_with_its_place(tmp_path):
    with pytest.raises(DataError, match="here, line 7: the id 'p1' was used before for another passage"):
        write(tmp_path, [Passage("p1", "one"), Passage("p1", "two")])


def test_a_run_is_no_part_of_a_collection(tmp_path):
    with pytest.raises(DataError, match="this is a run"):
        write(tmp_path, [Hit("q", "p", 1.0, 1)])


@pytest.mark.parametrize("split", ["../up", "a/b", ".hidden", "", "x" * 200, "ü"])
def test_a_split_whose_name_is_no_file_name_is_refused(tmp_path, split):
    if split:
        with pytest.raises(DataError, match="cannot be the name of a split"):
            write(tmp_path, JUDGED["train"], split)
    else:
        write(tmp_path, JUDGED["train"], split)
        assert Collection(tmp_path).splits == ("train",)


def test_without_an_index_one_is_made(collection, tmp_path):
    for path in (collection.path / "index").iterdir():
        path.unlink()
    again = Collection(collection.path)
    assert again.passage("ü 3") == PASSAGES[2]
    assert again.count("passages") == 3


def test_a_damaged_index_is_refused(collection):
    path = collection.path / "index" / "passages.hashes.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptError):
        Collection(collection.path).passage("p1")


@pytest.mark.parametrize("offset", [5, 10**6, 2**64 - 1])
def test_an_index_of_another_file_finds_nothing_wrong_silently(collection, offset):
    index = OffsetIndex.build([hash64("p1")], [offset])
    index.save(collection.path / "index" / "passages")
    with pytest.raises(CorruptError, match="points to a missing record"):
        Collection(collection.path).passage("p1")


def test_two_ids_with_one_hash_are_told_apart(tmp_path, monkeypatch):
    write(tmp_path, [Passage("a", "one"), Passage("b", "two")])
    index = OffsetIndex.load(tmp_path / "index" / "passages")
    OffsetIndex(np.zeros_like(index.hashes), np.array(index.offsets)).save(tmp_path / "index" / "passages")
    for module_name in ("offset_index", "lookup"):
        monkeypatch.setattr(f"liebig.collection.{module_name}.hash64", lambda name: 0)
    collection = Collection(tmp_path)
    assert [collection.passage(name).text for name in ("b", "a")] == ["two", "one"]
    assert [passage.text for passage in collection.some_passages(["b", "c"])] == ["two"]


def test_a_broken_line_is_named(collection):
    path = collection.path / "groups" / "train.jsonl"
    path.write_text(path.read_text() + '{"query": "q"}\n{"positives": []}\n')
    with pytest.raises(DataError, match=r"train\.jsonl, line 4: the record has no field 'query'"):
        list(collection.groups("train"))


@given(st.lists(st.tuples(st.integers(0, 40).map(str), st.integers(0, 2).map(str)), max_size=200))
@settings(max_examples=60)
def test_the_ledger_answers_as_a_dictionary_would(entries):
    ledger, known = IdTable(), {}
    for name, content in entries:
        expected = (
            Repeat.NEW if name not in known else Repeat.SAME if known[name] == content else Repeat.OTHER
        )
        known.setdefault(name, content)
        assert ledger.add(name, content, 0) is expected
    assert len(ledger) == len(known)


def test_the_ledger_grows_and_keeps_its_index():
    ledger = IdTable()
    for number in range(20_000):
        assert ledger.add(f"id{number}", str(number), number * 10) is Repeat.NEW
    assert ledger.add("id777", "777", 0) is Repeat.SAME
    assert ledger.add("id777", "778", 0) is Repeat.OTHER
    index = ledger.index()
    assert [index.candidates(f"id{n}") for n in (0, 777, 19_999)] == [[0], [7770], [199_990]]
    assert index.candidates("nobody") == []
    assert index.all_candidates(["id777", "nobody", "id0", "id777"]) == [0, 7770]


def test_the_module_says_what_is_in_the_folder():
    assert all(kind in (module.__doc__ or "") for kind in (*module.KINDS, *module.SPLIT_KINDS))


def test_ids_of_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(lookup, "hash_rows", lambda values, offsets: np.zeros(len(offsets) - 1, np.uint64))
    ids = lookup.memory_ids(["a", "b", "long"])
    assert ids.find_all(["b", "x", "long", "a", "a much longer one"]).tolist() == [1, -1, 2, 0, -1]
