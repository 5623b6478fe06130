"""Formats are detected from names and first lines, or named."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Hit, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.formats import detect, formats
from liebig.formats.items import Options

SAMPLES = {
    name: next(iter(format.sample.items())) for name, format in formats().items() if len(format.sample) == 1
}
KINDS = {
    Document: "documents",
    Passage: "passages",
    Query: "queries",
    Judgement: "judgements",
    Group: "groups",
    ScoredPair: "pairs",
    Tuple: "tuples",
    Hit: "hits",
}


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_told_from_its_own_sample(tmp_path, name):
    [found] = detect(put(tmp_path, *SAMPLES[name]))
    assert found.format.name == name
    assert found.why == formats()[name].reason


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_reads_the_same_when_its_format_is_given(tmp_path, name):
    path = put(tmp_path, *SAMPLES[name])
    told, given = (
        [item for one in found for item in one.items(Options())]
        for found in (detect(path), detect(path, name))
    )
    assert told == given
    assert told


def test_every_format_that_can_be_read_has_a_sample():
    assert {f.name for f in formats().values() if f.read and not f.prefix} == {
        f.name for f in formats().values() if f.sample
    }


@pytest.mark.parametrize("name", [format.name for format in formats().values() if format.sample])
def test_every_sample_is_recognised_and_yields_the_kinds_its_format_names(tmp_path, name):
    sample = formats()[name].sample
    for path, text in sample.items():
        put(tmp_path, path, text)
    [match] = detect(tmp_path if len(sample) > 1 else tmp_path / next(iter(sample)))
    assert match.format.name == name
    kinds = {KINDS[type(item.record)] for item in match.items(Options())}
    assert kinds
    assert kinds <= set(match.format.yields)


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(DataError, match="write beir"):
        detect(tmp_path, "biere")


def test_a_folder_of_data_files_gives_each_its_own_format(tmp_path):
    for name in ("msmarco-passages", "msmarco-queries", "msmarco-id-triples"):
        put(tmp_path, *SAMPLES[name])
    put(tmp_path, "README.md", "# About\n\nNothing.\n")
    assert {found.format.name for found in detect(tmp_path)} == {
        "msmarco-passages",
        "msmarco-queries",
        "msmarco-id-triples",
    }


def test_a_folder_of_prose_is_texts_even_with_a_data_file_in_it(tmp_path):
    for n in range(3):
        put(tmp_path, f"{n}.md", "# One\n\nText.\n")
    put(tmp_path, "extra.json", "{}")
    [found] = detect(tmp_path)
    assert found.format.name == "texts"


def test_files_of_a_folder_that_are_not_read_are_told(tmp_path):
    put(tmp_path, "README.md", "What this is.\n")
    put(tmp_path, "a.md", "# One\n\nText.\n")
    put(tmp_path, "b.md", "# Two\n\nText.\n")
    assert detect(tmp_path)[-1].why == "a folder of 3 files"
    put(tmp_path, "one.jsonl", '{"_id": "1", "text": "a"}\n')
    assert [(found.format.name, found.why) for found in detect(tmp_path)][1] == (
        "texts",
        "a folder of 3 files",
    )
    assert detect(tmp_path)[0].format.name == "table", "passages among texts are rows of a table"
    put(tmp_path, "two.jsonl", '{"_id": "2", "text": "b"}\n')
    assert detect(tmp_path)[-1].why.endswith("; 2 other files are ignored: .md")


def test_a_folder_of_trec_text_files_is_not_prose(tmp_path):
    put(tmp_path, *SAMPLES["trec-topics"])
    put(tmp_path, *SAMPLES["trec-qrels"])
    assert {found.format.name for found in detect(tmp_path)} == {"trec-topics", "trec-qrels"}


def test_rocketqa_folder_is_titled_passages(tmp_path):
    put(tmp_path, "para.txt", "0\ttext\n")
    put(tmp_path, "para.title.txt", "0\ttitle\n")
    [found] = detect(tmp_path)
    assert found.format.name == "msmarco-titled"


def test_pyserini_results_are_told_on_one_line_and_on_many(tmp_path):
    results = {
        "q1": {"question": "who", "answers": [], "contexts": [{"docid": "1", "score": 2.0, "text": "x"}]}
    }
    for number, indent in enumerate((None, 2)):
        [found] = detect(put(tmp_path, f"run{number}.json", json.dumps(results, indent=indent)))
        assert found.format.name == "dpr-results"
        query, hit = [item.record for item in found.items(Options())]
        assert (query.id, hit.query, hit.passage) == ("q1", "q1", "1")


def test_an_empty_file_and_a_strange_one_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "strange.bin2").write_bytes(bytes(range(256)))
    for name in ("empty.jsonl", "strange.bin2"):
        with pytest.raises(DataError):
            detect(tmp_path / name)


@pytest.mark.parametrize("text", ["1\t2\t1\n1\t3\t0\n", "1\t2\t1\n2\t3\t1\n"])
def test_three_columns_with_grades_are_judgements(tmp_path, text):
    [found] = detect(put(tmp_path, "x.tsv", text))
    assert found.format.name == "beir-qrels"
    assert len(list(found.items(Options()))) == 2


def test_another_encoding_is_named_with_the_way_to_convert_it(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"_id": "1", "text": "a"}\n'.encode("utf-16"))
    with pytest.raises(DataError, match=r"UTF-16 text.*iconv"):
        detect(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes("café".encode("latin1"))
    with pytest.raises(DataError, match=r"not UTF-8 text.*iconv -f latin1"):
        detect(tmp_path / "b.jsonl")


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.rst", "a.html"])
@pytest.mark.parametrize(
    "text", ["[ ] one thing to do", "{% extends base %}", "[[link]] and so on", "id\ttext\nb\tc"]
)
def test_a_text_may_begin_with_a_bracket_and_a_page_with_a_tab(tmp_path, name, text):
    if name == "a.txt" and "\t" in text:
        return  # two columns in a .txt are a table
    [found] = detect(put(tmp_path, name, text))
    assert found.format.name in ("texts", "lines")
    assert len(list(found.items(Options()))) == 1


@pytest.mark.parametrize("text", ['{"_id": "1", "text": "x"}\n', '[\n  {\n "_id": "1", "text": "x"}\n]'])
def test_rows_in_a_file_named_txt_are_rows(tmp_path, text):
    [found] = detect(put(tmp_path, "corpus.txt", text))
    assert found.format.name == "passages"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("qrels.test.txt", "q1 0 d1 1\nq1 0 d2 x\n", 2),
        ("qrels.dev.tsv", "1\t0\t7\tx\n2\t0\t8\t1\n", 1),
        ("qrels/test.tsv", "q1\td1\tx\nq2\td2\t1\n", 1),
        ("qidpidtriples.train.full.2.tsv", "1\t2\t3\n5\t6\n", 2),
        ("run.trec", "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 nan t\n", 2),
    ],
)
def test_a_damaged_line_does_not_make_another_format_of_a_file(tmp_path, name, text, line):
    with pytest.raises(DataError) as error:
        [item for found in detect(put(tmp_path, name, text)) for item in found.items(Options())]
    assert error.value.line == line


def test_judgements_are_never_taken_for_prose(tmp_path):
    with pytest.raises(DataError, match="--format"):
        detect(put(tmp_path, "qrels.txt", "q1 0 d1\nq1 0 d2 1\nq1 0 d3 1\n"))


@pytest.mark.parametrize("name", ["talk.pptx", "mail.eml", "letter.odt", "tool.py"])
def test_a_file_of_training_data_does_not_hide_the_files_beside_it(tmp_path, name):
    (tmp_path / "pairs.jsonl").write_text('{"anchor": "how deep is it", "positive": "nine metres"}\n')
    for n in range(6):
        (tmp_path / f"{n}{name}").write_bytes(b"# The well\n")
    (tmp_path / "README.md").write_text("# Wells\n")
    matches = detect(tmp_path)
    assert [match.format.name for match in matches] == ["table", "texts"]
    assert len(list(matches[1].source.files())) == 7


@pytest.mark.parametrize(("texts", "names"), [(9, ["tuples"]), (10, ["table", "texts"])])
def test_parquet_files_of_training_data_make_a_data_set_beside_few_texts(tmp_path, texts, names):
    table = pyarrow.Table.from_pylist([{"anchor": "how deep is it", "positive": "nine metres"}])
    parquet.write_table(table, tmp_path / "train.parquet")
    for n in range(texts):
        put(tmp_path, f"{n}.md", "# The well\n")
    assert [match.format.name for match in detect(tmp_path)] == names


def test_a_data_set_may_have_a_script(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"anchor": "how deep is it", "positive": "nine metres"}\n')
    (tmp_path / "load.py").write_text("print(1)\n")
    assert [match.format.name for match in detect(tmp_path)] == ["tuples"]
