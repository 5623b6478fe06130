"""Folders that the real `datasets` package wrote, read without it."""

import contextlib

import pyarrow
import pytest
from pyarrow import parquet

from liebig.base.errors import DataError
from liebig.base.records import Judgement, Passage, Query, ScoredPair, Tuple
from liebig.formats import detect
from liebig.formats.items import Options

CORPUS = [{"_id": f"d{n}", "title": "T" if n else None, "text": f"text {n}"} for n in range(2500)]
QUERIES = [{"_id": "q1", "text": "who?"}]
QRELS = [{"query-id": "q1", "corpus-id": "d7", "score": 1}]


def items(path):
    return [item for found in detect(path) for item in found.items(Options())]


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets")


def test_a_dataset_saved_to_disk_is_tuples(tmp_path, datasets):
    rows = [{"anchor": f"a{n}", "positive": "b", "negative": "c"} for n in range(3000)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "ds", num_shards=2)
    found = items(tmp_path / "ds")
    assert [item.record for item in found] == [Tuple(f"a{n}", "b", ("c",)) for n in range(3000)]
    assert {item.split for item in found} == {"train"}


def test_the_splits_of_a_saved_dictionary_are_splits(tmp_path, datasets):
    def made(text):
        return datasets.Dataset.from_list([{"sentence1": text, "sentence2": "y", "score": 0.5}])

    parts = {"train": made("a"), "validation": made("b"), "test": made("c")}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "ds")
    found = items(tmp_path / "ds")
    assert {item.split: item.record for item in found} == {
        "train": ScoredPair("a", "y", 0.5),
        "dev": ScoredPair("b", "y", 0.5),
        "test": ScoredPair("c", "y", 0.5),
    }


def test_a_saved_dictionary_of_corpus_queries_and_qrels(tmp_path, datasets):
    parts = {"corpus": CORPUS, "queries": QUERIES, "test": QRELS}
    made = {name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}
    datasets.DatasetDict(made).save_to_disk(tmp_path / "ds")
    check_retrieval(items(tmp_path / "ds"))


def test_parquet_folders_of_configs(tmp_path, datasets):
    for config, split, rows in (
        ("corpus", "corpus", CORPUS),
        ("queries", "queries", QUERIES),
        ("default", "test", QRELS),
    ):
        path = tmp_path / config / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir()
        datasets.Dataset.from_list(rows).to_parquet(path)
    (tmp_path / "README.md").write_text("# A data set\n")
    check_retrieval(items(tmp_path))


def check_retrieval(found):
    records = [item.record for item in found]
    passages = [record for record in records if isinstance(record, Passage)]
    assert passages == [Passage(row["_id"], row["text"], row["title"] or "") for row in CORPUS]
    assert [record for record in records if isinstance(record, Query)] == [Query("q1", "who?")]
    assert [(item.record, item.split) for item in found if isinstance(item.record, Judgement)] == [
        (Judgement("q1", "d7", 1), "test")
    ]


def test_caches_of_the_package_are_left_alone(tmp_path, datasets):
    rows = [{"anchor": "a", "positive": "b"}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "ds")
    (tmp_path / "ds" / "cache-0123.arrow").write_bytes(b"junk")
    assert [item.record for item in items(tmp_path / "ds")] == [Tuple("a", "b")]


def test_both_forms_of_arrow_files_are_read(tmp_path):
    table = pyarrow.Table.from_pylist([{"anchor": "a", "positive": "b"}])
    with pyarrow.ipc.new_file(str(tmp_path / "file.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pyarrow.ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert [item.record for item in items(tmp_path)] == [Tuple("a", "b")] * 2


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_table_cut_or_flipped_anywhere_is_a_sentence_and_no_crash(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    table = pyarrow.Table.from_pylist([{"anchor": "a" * 50, "positive": "b"}] * 20)
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        for spoilt in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            path.write_bytes(spoilt)
            with contextlib.suppress(DataError):
                items(path)


def test_a_parquet_file_inside_a_zip_is_read(tmp_path):
    import zipfile

    parquet.write_table(pyarrow.Table.from_pylist([{"anchor": "a", "positive": "b"}]), tmp_path / "x.parquet")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "x.parquet", "x.parquet")
    assert [item.record for item in items(tmp_path / "z.zip")] == [Tuple("a", "b")]
