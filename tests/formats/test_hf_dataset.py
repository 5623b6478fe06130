"""Data sets of the Hugging Face hub, from a hub on this machine: Parquet files only, and no code is run."""

import json
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from liebig.base.errors import DataError
from liebig.base.records import Document, Judgement, Passage, Query, Section
from liebig.cli import make_app
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.search.retriever import Retriever
from tests.worlds.hub import connect, serving

ROWS = [{"id": f"d{n}", "title": f"T{n}", "text": f"text {n}", "year": 1840 + n} for n in range(4)]


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


@pytest.fixture
def home(tmp_path):
    """A benchmark as MTEB has it, articles in two splits, a data set of many parts, and one with a script."""
    home = tmp_path / "models" / "datasets" / "someone"
    number = "00000-of-00001.parquet"
    table(home / "bench" / "corpus" / f"corpus-{number}", [{"_id": "d", "title": "T", "text": "x"}])
    table(home / "bench" / "queries" / f"queries-{number}", [{"_id": "q", "text": "who?"}])
    for split in ("train", "test"):
        rows = [{"query-id": "q", "corpus-id": "d", "score": 2 if split == "test" else 1}]
        table(home / "bench" / "default" / f"{split}-{number}", rows)
    (home / "bench" / "README.md").write_text("# Bench")
    table(home / "articles" / "data" / "train-00000-of-00002.parquet", ROWS[:2])
    table(home / "articles" / "data" / "train-00001-of-00002.parquet", ROWS[2:3])
    table(home / "articles" / "data" / f"validation-{number}", ROWS[3:])
    for language in ("de", "en", "fr", "la", "nl", "pl", "pt", "sv", "tr"):
        table(home / "wiki" / f"2026.{language}" / f"train-{number}", [{**ROWS[0], "text": language}])
    (home / "scripted").mkdir()
    (home / "scripted" / "scripted.py").write_text("raise SystemExit('code was run')")
    table(
        home / "scripted@converted" / "queries" / "queries" / "0000.parquet", [{"_id": "q", "text": "who?"}]
    )
    (home / "bare").mkdir()
    (home / "bare" / "data.bin").write_bytes(b"x")
    table(home / "large@converted" / "default" / "partial-train" / "0000.parquet", ROWS)
    (home / "large").mkdir()
    return home


@pytest.fixture
def server(home, tmp_path, monkeypatch):
    with serving(tmp_path / "models") as made:
        connect(monkeypatch, made, tmp_path / "cache")
        yield made


def items(name, **options):
    return [item for found in detect(name) for item in found.items(Options(**options))]


def test_a_benchmark_is_corpus_queries_and_judgements(server):
    found = items("hf:someone/bench")
    assert [item.record for item in found[:1] + found[-1:]] == [Passage("d", "x", "T"), Query("q", "who?")]
    assert {(item.record, item.split) for item in found[1:-1]} == {
        (Judgement("q", "d", 1), "train"),
        (Judgement("q", "d", 2), "test"),
    }
    assert len(found) == 4


def test_a_split_keeps_what_belongs_to_every_split(server):
    records = [item.record for item in items("hf:someone/bench:test")]
    assert Judgement("q", "d", 2) in records
    assert {type(record) for record in records} == {Passage, Query, Judgement}
    assert len(records) == 3


def test_the_shards_of_a_split_are_read_in_order_and_fetched_as_they_are_read(server):
    found = (item for match in detect("hf:someone/articles:train") for item in match.items(Options()))
    first = next(found).record
    assert first == Document("d0", "T0", (Section("", ("text 0",)),), {"year": "1840"})
    assert not any("00001-of" in path for path in server.requests)
    assert [item.record.id for item in found] == ["d1", "d2"]
    assert [item.record.id for item in items("hf:someone/articles:validation")] == ["d3"]


def test_a_data_set_of_many_parts_wants_one_named(server):
    with pytest.raises(DataError, match=r"has 9 parts.*2026\.de, 2026\.en"):
        items("hf:someone/wiki")
    (item,) = items("hf:someone/wiki/2026.en:train")
    assert item.record.text == "en"


def test_a_data_set_in_another_form_is_read_as_the_hub_converts_it(server):
    assert [item.record for item in items("hf:someone/scripted")] == [Query("q", "who?")]
    assert not any(path.endswith(".py") for path in server.requests)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hf:someone", "is not the name of a data set"),
        ("hf:someone/unknown", "has no public data set of this name"),
        ("hf:someone/bench:dev", "has no split 'dev'.*there are corpus, default"),
        ("hf:someone/bench/nowhere", "has no part 'nowhere'"),
        ("hf:someone/bare", "has no Parquet files.*hf download someone/bare --repo-type dataset"),
        ("hf:someone/large", "only the start of default/partial-train"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name, sentence, server):
    with pytest.raises(DataError, match=sentence):
        items(name)


def test_a_hub_that_cannot_be_reached_is_one_sentence(server, monkeypatch):
    said = "the Hugging Face hub cannot be reached.*hf download someone/bench --repo-type dataset --local-dir"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=said):
        items("hf:someone/bench")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(DataError, match=said):
        items("hf:someone/bench")


def init(*words):
    return CliRunner().invoke(make_app(), ["init", *map(str, words)])


def test_init_reads_a_name_and_other_names_of_columns(server, tmp_path):
    words = ("columns.id=title", "columns.text=text", "columns.title=id", "--out", tmp_path / "out")
    done = init("hf:someone/articles:train", *words)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    assert [(row["id"], row["title"]) for row in rows] == [("T0", "d0"), ("T1", "d1"), ("T2", "d2")]


def test_init_reads_a_parquet_file(tmp_path):
    rows = [{"key": n, "headline": f"T{n}", "body": f"text {n}", "text": "hidden"} for n in range(5)]
    table(tmp_path / "plain.parquet", ROWS)
    table(tmp_path / "own.parquet", rows)
    assert init(tmp_path / "plain.parquet", "--out", tmp_path / "plain").exit_code == 0
    names = ("columns.id=key", "columns.title=headline", "columns.text=body")
    assert init(tmp_path / "own.parquet", *names, "--out", tmp_path / "own").exit_code == 0
    (first, *rest) = (tmp_path / "own" / "documents.jsonl").read_text().splitlines()
    assert len(rest) == 4
    row = json.loads(first)
    assert (row["id"], row["title"], row["sections"][0]["paragraphs"]) == ("0", "T0", ["text 0"])
    assert row["metadata"] == {"text_": "hidden"}
    done = init(tmp_path / "own.parquet", "columns.text=story", "--out", tmp_path / "bad")
    assert done.exit_code == 2
    assert "there is no column 'story'. To fix it: name one of key, headline, body, text" in done.output


def test_a_retriever_is_built_from_a_name(server, tmp_path, small_model):
    words = ["build", "hf:someone/articles:train", "--minutes", "0", "--model", str(small_model)]
    done = CliRunner().invoke(make_app(), [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    retriever = Retriever.from_folder(tmp_path / "out")
    assert retriever.search("text", 1, "bm25", {"year": "1842"})[0].doc == "d2"


def test_a_parquet_file_is_read_a_row_group_at_a_time(tmp_path):
    """Memory that Arrow holds while rows are read: a few groups of 2 MB, of a file of 40 MB."""
    path = tmp_path / "large.parquet"
    schema = pyarrow.schema([("id", pyarrow.string()), ("text", pyarrow.string())])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for group in range(20):
            rows = [{"id": f"{group}-{n}", "text": f"{n} " + "x" * 2000} for n in range(1000)]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    before, most, count = pyarrow.total_allocated_bytes(), 0, 0
    for count, _ in enumerate(detect(path)[0].items(Options()), 1):
        most = max(most, pyarrow.total_allocated_bytes() - before) if count % 100 == 0 else most
    assert count == 20_000
    assert most < path.stat().st_size / 3


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch):
    table(tmp_path / "plain.parquet", ROWS)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    done = init(tmp_path / "plain.parquet", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "[parquet]'" in done.output
