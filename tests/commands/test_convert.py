"""`liebig convert` writes a collection in any format, and runs in any form; read back they are the same."""

import json

import pytest

from liebig.base.config import inputs, parse
from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, ScoredPair, Section, Tuple
from liebig.base.workspace import stage
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats import detect, formats
from liebig.formats.items import Item, Options, Where
from liebig.stages import convert, init
from liebig.stages.convert import ConvertConfig
from liebig.stages.init import InitConfig

RUNS = {name: format.run.name for name, format in formats().items() if format.run}
TARGETS = [name for name, format in formats().items() if format.write]
PASSAGES = [Passage("1", "one text", "A title"), Passage("2", "two", ""), Passage("30", "three", "B")]
QUERIES = [Query("7", "who is it", ("text", "x")), Query("8", "what now")]
DOCUMENTS = [Document("d1", "Doc", (Section("", ("P one.", "P two.")), Section("Part", ("P three.",))))]
GROUPS = [Group("7", ("1",), ("2", "30")), Group("8", ("2",), ("1",))]
TRAIN, TEST = [Judgement("7", "1", 1), Judgement("7", "2", 0)], [Judgement("8", "2", 2)]
PAIRS = [ScoredPair("a", "b", 2.5)]
TUPLES = [Tuple("q", "p", ("n1", "n2"))]


@pytest.fixture
def collection(tmp_path):
    splits = [(TRAIN, "train"), (GROUPS, "train"), (TEST, "test"), (PAIRS, "dev"), (TUPLES, "dev")]
    with CollectionWriter(tmp_path / "collection") as writer:
        for records, split in [([*PASSAGES, *QUERIES], ""), *splits]:
            for record in records:
                writer.add(Item(record, Where("here"), split))
    (tmp_path / "collection" / "summary.json").write_text("{}")
    return tmp_path / "collection"


def to(source, out, name, **values):
    config = parse(ConvertConfig, {"source": str(source), "to": name, **values})
    with stage(out, kind="convert", recipe=config.model_dump(mode="json"), inputs=inputs(config)) as folder:
        convert.run(config, folder)
    return out


def records(path, kind, name=None, **options):
    found = [item for one in detect(path, name) for item in one.items(Options(**options))]
    return [item.record for item in found if isinstance(item.record, kind)]


def test_beir_comes_back_whole(collection, tmp_path):
    out = to(collection, tmp_path / "out", "beir")
    assert records(out, Passage) == PASSAGES
    assert records(out, Query) == QUERIES
    assert {*records(out, Judgement)} == {*TRAIN, *TEST}
    assert sorted(p.name for p in (out / "qrels").iterdir()) == ["test.tsv", "train.tsv"]


TOLD = {
    "beir": {"beir"},
    "msmarco-qrels": {"trec-qrels"},
    "huggingface": {"passages", "questions", "qrels-rows"},
}


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ("msmarco", "trec", "dpr")])
def test_what_is_written_is_told_by_its_own_names(collection, tmp_path, name):
    out = to(collection, tmp_path / "out", name)
    assert {found.format.name for found in detect(out)} == TOLD.get(name, {name})


@pytest.mark.parametrize("compress", ["gz", "xz", "zst"])
def test_packed_files_come_back_the_same(collection, tmp_path, compress):
    out = to(collection, tmp_path / "out", "beir", compress=compress)
    assert (out / f"corpus.jsonl.{compress}").is_file()
    assert records(out, Passage) == PASSAGES


def test_one_split_alone_can_be_written(collection, tmp_path):
    out = to(collection, tmp_path / "out", "msmarco-qrels", split="test")
    assert [p.name for p in out.glob("*.tsv")] == ["qrels.test.tsv"]
    assert records(out / "qrels.test.tsv", Judgement) == TEST


def test_the_families_write_all_they_hold(collection, tmp_path):
    out = to(collection, tmp_path / "m", "msmarco")
    assert records(out, Passage) == PASSAGES
    assert {*records(out, Query)} == {Query(q.id, q.text) for q in QUERIES}
    assert records(out, Group) == GROUPS
    out = to(collection, tmp_path / "t", "trec")
    assert {*records(out, Judgement)} == {*TRAIN, *TEST}
    out = to(collection, tmp_path / "d", "dpr")
    assert records(out / "psgs.tsv", Passage) == PASSAGES
    assert [g.negatives for g in records(out / "train.json", Group)] == [("2", "30"), ("1",)]


def test_tevatron_comes_back(collection, tmp_path):
    out = to(collection, tmp_path / "out", "tevatron-v2")
    assert records(out / "corpus.jsonl", Passage, "tevatron-v2") == PASSAGES
    assert records(out / "train.jsonl", Group, "tevatron-v2") == GROUPS


def test_a_hugging_face_folder_comes_back(collection, tmp_path):
    out = to(collection, tmp_path / "out", "huggingface", split="test")
    assert records(out, Passage) == PASSAGES
    assert records(out, Judgement) == TEST
    datasets = pytest.importorskip("datasets")
    loaded = datasets.Dataset.from_parquet(
        str(out / "corpus" / "corpus-00000-of-00001.parquet"), cache_dir=str(tmp_path)
    )
    assert loaded["_id"][:] == ["1", "2", "30"]


def test_every_target_writes_something_that_is_read_again(collection, tmp_path):
    for name in sorted(TARGETS):
        out = to(collection, tmp_path / name, name)
        assert [item for one in detect(out) for item in one.items(Options())], name


def test_documents_are_written_with_their_sections(tmp_path):
    with CollectionWriter(tmp_path / "c") as writer:
        for record in DOCUMENTS:
            writer.add(Item(record, Where("here")))
    again = to(tmp_path / "c", tmp_path / "docs", "documents") / "documents.jsonl"
    assert records(again, Document) == DOCUMENTS


def test_what_a_format_cannot_hold_is_refused_and_leaves_nothing(tmp_path):
    with CollectionWriter(tmp_path / "c") as writer:
        writer.add(Item(Passage("1", "two\nlines"), Where("here")))
    with pytest.raises(DataError, match="--collapse"):
        to(tmp_path / "c", tmp_path / "out", "msmarco-titled")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_line_breaks_are_refused_or_collapsed(tmp_path):
    with CollectionWriter(tmp_path / "c") as writer:
        writer.add(Item(Passage("1", "two\nlines\there", "T"), Where("here")))
    with pytest.raises(DataError, match="--collapse"):
        to(tmp_path / "c", tmp_path / "out", "msmarco-titled")
    out = to(tmp_path / "c", tmp_path / "out", "msmarco-titled", collapse=True)
    assert records(out / "corpus.tsv", Passage) == [Passage("1", "two lines here", "T")]


def test_a_collection_without_what_a_format_needs_is_refused(tmp_path):
    with CollectionWriter(tmp_path / "c") as writer:
        writer.add(Item(Passage("1", "x"), Where("here")))
    with pytest.raises(DataError, match="nothing that trec-qrels can store"):
        to(tmp_path / "c", tmp_path / "out", "trec-qrels")


def test_an_unknown_split_is_refused(collection, tmp_path):
    with pytest.raises(DataError, match="no split 'nope'; it has dev, test, train"):
        to(collection, tmp_path / "out", "beir", split="nope")


TREC = "7 Q0 2 1 1.5 t\n7 Q0 1 2 2.5 t\n7 Q0 30 3 1.5 t\n8 Q0 1 1 0.5 t\n"
ORDER = [("7", "1"), ("7", "30"), ("7", "2"), ("8", "1")]


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "run.trec").write_text(TREC)
    return tmp_path / "run.trec"


@pytest.mark.parametrize(("name", "file"), sorted(RUNS.items()))
def test_a_trec_run_converts_to_every_form_in_the_order_trec_eval_sees(
    run_file, collection, tmp_path, name, file
):
    out = to(run_file, tmp_path / "out", name, collection=str(collection))
    hits = records(out / file, Hit, name)
    assert [(hit.query, hit.passage) for hit in hits] == ORDER


@pytest.mark.parametrize("name", sorted(RUNS))
def test_every_form_of_run_converts_back_to_trec(run_file, collection, tmp_path, name):
    there = to(run_file, tmp_path / "there", name, collection=str(collection)) / RUNS[name]
    back = to(there, tmp_path / "back", "trec-run", format=name, tag="again") / "run.trec"
    assert [tuple(line.split()[::2])[:2] for line in back.read_text().splitlines()] == ORDER
    assert back.read_text().splitlines()[0].endswith(" again")


def test_dpr_results_hold_texts_scores_as_strings_and_whether_they_answer(run_file, collection, tmp_path):
    out = to(
        run_file, tmp_path / "out", "dpr-results", collection=str(collection), id_prefix="wiki:", depth=1
    )
    first, second = json.loads((out / "results.json").read_text())
    assert first["question"] == "who is it"
    assert first["ctxs"] == [
        {"id": "wiki:1", "title": "A title", "text": "one text", "score": "2.500000", "has_answer": True}
    ]
    assert second["ctxs"][0]["has_answer"] is False


def test_dpr_results_find_the_collections_ids_by_the_question(collection, tmp_path):
    rows = [
        {"question": "what now", "answers": [], "ctxs": [{"id": "2", "score": "1", "title": "", "text": ""}]}
    ]
    (tmp_path / "r.json").write_text(json.dumps(rows))
    out = to(tmp_path / "r.json", tmp_path / "out", "trec-run", collection=str(collection))
    assert (out / "run.trec").read_text().startswith("8 Q0 2 1 ")


def test_dpr_results_without_a_collection_ask_for_it(run_file, tmp_path):
    with pytest.raises(DataError, match="--collection"):
        to(run_file, tmp_path / "out", "dpr-results")


def test_a_run_whose_queries_are_scattered_is_refused(tmp_path):
    (tmp_path / "run.trec").write_text("7 Q0 1 1 2.5 t\n8 Q0 1 1 0.5 t\n7 Q0 2 2 1.5 t\n")
    with pytest.raises(DataError, match="are not consecutive"):
        to(tmp_path / "run.trec", tmp_path / "out", "msmarco-run")


def test_a_collection_is_no_run_and_qrels_are_none(collection, tmp_path):
    with pytest.raises(DataError, match="this is a collection"):
        to(collection, tmp_path / "out", "trec-run")
    (tmp_path / "qrels.txt").write_text("7 0 1 1\n")
    with pytest.raises(DataError, match="not a run but TREC or MS MARCO qrels"):
        to(tmp_path / "qrels.txt", tmp_path / "out", "trec-run")


def test_init_then_convert_then_init_is_the_same_collection(collection, tmp_path):
    out = to(collection, tmp_path / "beir", "beir")
    config = parse(InitConfig, {"paths": [str(out)]})
    with stage(tmp_path / "again", kind="init", recipe={}, inputs={}) as folder:
        init.run(config, folder)
    again = Collection(tmp_path / "again")
    assert list(again.passages()) == PASSAGES
    assert list(again.judgements("train")) == TRAIN


def test_judgements_make_groups_where_a_split_has_none(collection, tmp_path):
    out = to(collection, tmp_path / "out", "tevatron-v2", split="test")
    assert records(out / "test.jsonl", Group, "tevatron-v2") == [Group("8", ("2",))]
    rows = json.loads((to(collection, tmp_path / "d", "dpr-train", split="test") / "test.json").read_text())
    assert [row["question"] for row in rows] == ["what now"]
