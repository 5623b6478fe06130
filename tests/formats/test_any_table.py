"""A table of any columns is documents: text from the columns that hold text, the rest as metadata."""

import json
from dataclasses import replace

import pyarrow
import pytest
from pyarrow import parquet

from liebig.base.records import Document, Section, Tuple
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger

STOCK = "sku,name,location,stock\nA-100,Steel bolt M8,Aisle 3,120\nB-7,Copper wire,Aisle 12,4\n"
BODY = "The printer in room 4 burns whenever it is given more than a dozen pages.\n\nIt smells, too."
TICKET = {"ticket": 71, "subject": "Printer on fire", "body": BODY}


def read(path, name=None):
    ledger = Ledger()
    matches = detect(path, name, ledger)
    items = [item for match in matches for item in match.items(Options(ledger=ledger))]
    records = [_without_file(item.record) for item in items]
    return [match.format.name for match in matches], records, ledger


def _without_file(record):
    """A record without what it says about its file."""
    if not isinstance(record, Document):
        return record
    own = {"path", "folder", "type", "size", "modified"}
    return replace(record, metadata={name: v for name, v in record.metadata.items() if name not in own})


def test_rows_say_which_file_and_line_they_are_from(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "stock.csv").write_text(STOCK)
    [match] = detect(tmp_path / "in")
    second = list(match.items(Options()))[1].record
    assert {"path": "stock.csv", "folder": ".", "type": "csv"}.items() <= second.metadata.items()
    assert (second.sections[0].unit, second.sections[0].places) == ("line", (3,))


def test_a_csv_of_any_columns_is_documents_and_says_which_hold_text(tmp_path):
    (tmp_path / "stock.csv").write_text(STOCK)
    names, records, ledger = read(tmp_path / "stock.csv")
    assert names == ["table"]
    assert records[0] == Document(
        "stock.csv:1",
        "Steel bolt M8",
        (Section("", ("sku: A-100; location: Aisle 3; stock: 120",)),),
        {"sku": "A-100", "location": "Aisle 3", "stock": "120"},
    )
    assert list(ledger.tables.values()) == ["text from the columns name, sku, location, stock"]


def test_rows_of_a_csv_that_are_shorter_or_longer_than_the_header_are_read(tmp_path):
    (tmp_path / "stock.csv").write_text("name,shelf,remark\nBolt\nWire,3,bent, rusty\n")
    _, records, _ = read(tmp_path / "stock.csv")
    assert [record.title for record in records] == ["Bolt", "Wire"]
    assert [record.sections for record in records][1] == (Section("", ("shelf: 3; remark: bent  rusty",)),)


@pytest.mark.parametrize("container", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_the_container_of_a_table_does_not_matter(tmp_path, container):
    path = tmp_path / f"tickets.{container}"
    row = TICKET if container != "tsv" else TICKET | {"body": BODY.replace("\n\n", " ")}
    if container == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    elif container == "tsv":
        path.write_text("\t".join(row) + "\n" + "\t".join(map(str, row.values())) + "\n")
    elif container == "csv":
        path.write_text(";".join(row) + '\n71;Printer on fire;"' + BODY + '"\n')
    else:
        path.write_text(json.dumps(row) if container == "jsonl" else json.dumps([row], indent=1))
    names, [record], _ = read(path)
    assert names == ["table"]
    paragraphs = tuple(row["body"].split("\n\n"))
    assert record == Document(
        f"tickets.{container}:1",
        "Printer on fire",
        (Section("", (*paragraphs, "ticket: 71")),),
        {"ticket": "71"},
    )


def test_columns_of_longer_text_are_sections_under_their_names(tmp_path):
    row = {"symptom": "the paper burns " * 8, "remedy": "turn it off and on " * 5, "url": "https://a.b/c"}
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    [record] = read(tmp_path / "x.jsonl")[1]
    assert [section.heading for section in record.sections] == ["symptom", "remedy"]
    assert record.metadata == {"url": "https://a.b/c"}


def test_a_table_of_numbers_alone_is_found_by_its_columns(tmp_path):
    (tmp_path / "gdp.csv").write_text("year,gdp\n2001,3.5\n2002,3.7\n")
    assert [record.text for record in read(tmp_path / "gdp.csv")[1]] == [
        "year: 2001; gdp: 3.5",
        "year: 2002; gdp: 3.7",
    ]


def test_a_table_without_a_header_keeps_its_first_row(tmp_path):
    (tmp_path / "flow.csv").write_text("2024-01-01,12.5,valve broken\n2024-01-02,13.5,valve mended\n")
    assert [record.text for record in read(tmp_path / "flow.csv")[1]] == [
        "column 1: 2024-01-01; column 2: 12.5; column 3: valve broken",
        "column 1: 2024-01-02; column 2: 13.5; column 3: valve mended",
    ]
    (tmp_path / "gdp.csv").write_text("country,2001,2002\nAustria,3.5,4.5\n")
    assert [record.text for record in read(tmp_path / "gdp.csv")[1]] == [
        "country: Austria; 2001: 3.5; 2002: 4.5"
    ]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_csv_in_another_encoding_is_a_table(tmp_path, encoding):
    """Spreadsheets export the code page of a country, or what they call Unicode text."""
    rows = "".join(
        f"{n};Die Tür des Büros {n} schließt nicht, und niemand weiß, wer dafür zuständig ist.\n"
        for n in range(9)
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mängel.csv").write_bytes(("Nr;Meldung\n" + rows).encode(encoding))
    names, records, ledger = read(tmp_path / "in")
    assert names == ["table"]
    assert [record.sections[0].paragraphs[0][:17] for record in records] == ["Die Tür des Büros"] * 9
    assert list(ledger.guessed.values()) == [encoding]
    assert read(tmp_path / "in" / "mängel.csv")[0] == ["table"]


@pytest.mark.parametrize("start", ["sep=;\r\nname;remark,note\r\n", "name;remark\n", "name|remark\n"])
def test_the_mark_between_columns_is_said_or_found(tmp_path, start):
    mark = "|" if "|" in start else ";"
    (tmp_path / "stock.csv").write_text(f"{start}Bolt{mark}of steel, or brass\n")
    [record] = read(tmp_path / "stock.csv")[1]
    assert record.title == "Bolt"
    assert record.text in ("remark: of steel, or brass", "remark,note: of steel, or brass")


def test_the_columns_of_a_wide_table_are_not_all_named(tmp_path):
    names = [f"c{n}" for n in range(15)]
    (tmp_path / "wide.csv").write_text(f"{','.join(names)}\n{','.join('1' * 15)}\n")
    [about] = read(tmp_path / "wide.csv")[2].tables.values()
    assert about == f"text from the columns {', '.join(names[:12])} and 3 more"


def test_an_object_on_one_line_is_no_table(tmp_path):
    tree = {"mill": {"stones": [{"age": 9}]}, "name": "Upper mill"}
    for name in ("tree.json", "rows.jsonl"):
        (tmp_path / name).write_text(json.dumps(tree))
    for _, records, _ in (read(tmp_path), read(tmp_path / "tree.json")):
        assert (records[-1].id, records[-1].text) == ("tree.json", "mill.stones.age: 9\nname: Upper mill")
    assert read(tmp_path)[1][0].id == "rows.jsonl:1"
    (tmp_path / "tree.json").write_text(json.dumps(tree, indent=2))
    assert read(tmp_path / "tree.json")[1][0].text == "mill.stones.age: 9\nname: Upper mill"


def test_a_hit_of_a_table_is_opened_where_it_lies_whatever_its_columns_say(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "pages.csv").write_text(
        "path,folder,size,remark\n/wiki/mill,/wiki,9,the mill stands\n"
    )
    [match] = detect(tmp_path / "in")
    [item] = match.items(Options())
    assert {"path": "pages.csv", "folder": ".", "size": "9"}.items() <= item.record.metadata.items()
    assert "path: /wiki/mill" in item.record.text


def test_rows_on_one_line_have_ids_of_their_own(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps([TICKET, TICKET | {"ticket": 72}]))
    assert [record.id for record in read(tmp_path / "x.json")[1]] == ["x.json:1", "x.json:2"]


def test_tables_of_one_name_in_two_folders_have_ids_of_their_own(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "stock.csv").write_text(STOCK)
    assert [record.id for record in read(tmp_path)[1]] == [
        f"{folder}/stock.csv:{n}" for folder in "ab" for n in (1, 2)
    ]


@pytest.mark.parametrize(
    "header",
    ["anchor,positive", "query,positive,negative_1", "question,answer,negative", "premise,hypothesis"],
)
def test_the_columns_of_training_data_are_training_data(tmp_path, header):
    (tmp_path / "train.csv").write_text(f"{header}\n" + ",".join("abc"[: header.count(",") + 1]) + "\n")
    names, [record], _ = read(tmp_path / "train.csv")
    assert names == ["tuples"]
    assert record == Tuple("a", "b", ("c",) if header.count(",") == 2 else ())


def test_questions_with_answers_are_documents_unless_they_are_named_training_data(tmp_path):
    (tmp_path / "faq.csv").write_text("question,answer\nWhere is the lobby?,On the ground floor.\n")
    [record] = read(tmp_path / "faq.csv")[1]
    assert (record.title, record.text) == ("Where is the lobby?", "answer: On the ground floor.")
    assert read(tmp_path / "faq.csv", "tuples")[1] == [Tuple("Where is the lobby?", "On the ground floor.")]


def test_a_row_with_nothing_but_a_title_is_found_by_it(tmp_path):
    (tmp_path / "x.csv").write_text("sku,name\nA-1,Steel bolt\n")
    [record] = read(tmp_path / "x.csv")[1]
    assert (record.title, record.text) == ("Steel bolt", "sku: A-1")
    (tmp_path / "y.csv").write_text("url,name\nhttps://a.b/c,Steel bolt\n")
    [record] = read(tmp_path / "y.csv")[1]
    assert (record.title, record.text) == ("Steel bolt", "Steel bolt")
