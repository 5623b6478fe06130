"""Every file of a folder is read, or listed with the reason why it was not."""

import json

import pytest

from liebig.base.config import inputs, parse
from liebig.base.errors import DataError
from liebig.base.workspace import stage
from liebig.collection import Collection
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.stages.init import InitConfig, run

STOCK = "sku,name,location,stock\nA-100,Steel bolt M8,Aisle 3,120\n"


@pytest.fixture
def folder(tmp_path):
    """Texts, tables and files that are neither."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.md", "b.md", "sub/c.md", "d.md", "e.md"):
        (folder / name).write_text("# T\n\nText.\n")
    (folder / "stock.csv").write_text(STOCK)
    (folder / "config.json").write_text('{\n  "retries": 3,\n  "hosts": ["a", "b"]\n}\n')
    (folder / "list.json").write_text("[\n1,\n2\n]\n")
    (folder / "broken.jsonl").write_text('{"ticket": 1, "body": "It burns."}\n{"ticket": \n')
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "qrels.tsv").write_text("q\td\t1\n")
    (folder / "~$report.docx").write_bytes(b"\x0auser")
    return folder


def init(source, out, **options):
    config = parse(InitConfig, {"paths": [str(source)], **options})
    with stage(out, kind="init", recipe=config.model_dump(mode="json"), inputs=inputs(config)) as folder:
        run(config, folder)
    return Collection(out), json.loads((out / "summary.json").read_text())


def test_an_odd_file_does_not_stop_the_reading_of_a_folder(folder, tmp_path):
    collection, summary = init(folder, tmp_path / "out")
    ids = {document.id for document in collection.documents()}
    assert ids == {"a.md", "b.md", "sub/c.md", "d.md", "e.md", "stock.csv:1"}
    assert summary["files"] == {"seen": 11, "read": 6, "skipped": 1, "ignored": 4}
    assert (tmp_path / "out" / "skipped.txt").read_text().startswith(f"{folder}/broken.jsonl, line 2: ")


def test_every_file_seen_was_read_or_is_listed(folder):
    ledger = Ledger(strict=False)
    for match in detect(folder, None, ledger):
        try:
            list(match.items(Options(ledger=ledger)))
        except DataError as error:
            ledger.skip(error)
    assert ledger.unexplained() == []
    assert sum(ledger.counts().values()) == 2 * len(ledger.seen)
    assert ledger.ignored[f"{folder}/config.json"] == "cannot detect the format"
    assert not any("~$" in label for label in ledger.seen), "lock files are no documents"


def test_a_file_of_a_folder_is_kept_as_a_whole_or_not_at_all(folder, tmp_path):
    lines = [json.dumps({"ticket": n, "body": f"Printer {n} burns."}) for n in range(300)]
    (folder / "broken.jsonl").write_text("\n".join([*lines, "{", ""]))
    (folder / "zebra.jsonl").write_text("\n".join(lines))
    collection, summary = init(folder, tmp_path / "out")
    assert collection.count("documents") == 306
    assert summary["counts"]["documents"] == sum(
        e["count"] for e in summary["lengths"]["documents"]["histogram"]
    )
    assert collection.document("zebra.jsonl:300").text == "body: Printer 299 burns."
    assert not any(document.id.startswith("broken") for document in collection.documents())


def test_a_bad_line_of_a_file_that_was_named_is_an_error(folder, tmp_path):
    with pytest.raises(DataError, match=r"broken.jsonl, line 2"):
        init(folder / "broken.jsonl", tmp_path / "out")
    with pytest.raises(DataError, match=r"broken.jsonl, line 2"):
        init(folder, tmp_path / "strict", strict=True)


def test_a_data_set_of_several_files_lists_the_one_that_is_broken(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "collection.tsv").write_text("0\tfirst\n1\tsecond\n")
    (folder / "queries.dev.tsv").write_text("7\twho\n8\twhat\tthen\n")
    collection, summary = init(folder, tmp_path / "out")
    assert (collection.count("passages"), collection.has("queries")) == (2, False)
    assert summary["files"] == {"seen": 2, "read": 1, "skipped": 1, "ignored": 0}
