"""Every file of a folder is read, or listed with the reason why it was not."""

import gzip
import io
import json
import tarfile

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
    texts = {"a.md", "b.md", "sub/c.md", "d.md", "e.md", "config.json", "list.json", "qrels.tsv"}
    assert ids == {*texts, "stock.csv:1"}
    files = summary["files"]
    assert [files[name] for name in ("seen", "read", "skipped", "ignored")] == [12, 9, 1, 2]
    assert files["not_read"] == [
        {"suffix": ".docx", "reason": "a lock file of Office", "files": 1},
        {"suffix": ".jsonl", "reason": "this is not valid JSON", "files": 1},
        {"suffix": ".png", "reason": "picture", "files": 1},
    ]
    listed = (tmp_path / "out" / "skipped.txt").read_text().splitlines()
    assert listed[0] == "12 files seen = 9 read + 3 not read"
    assert listed[5].startswith(f"{folder}/broken.jsonl, line 2: ")
    assert f"{folder}/picture.png: picture" in listed


def test_every_file_seen_was_read_or_is_listed(folder):
    ledger = Ledger(strict=False)
    for match in detect(folder, None, ledger):
        try:
            list(match.items(Options(ledger=ledger)))
        except DataError as error:
            ledger.skip(error)
    assert ledger.unexplained() == []
    assert sum(ledger.counts().values()) == 2 * len(ledger.seen)
    assert ledger.ignored == {
        f"{folder}/picture.png": "picture",
        f"{folder}/~$report.docx": "a lock file of Office",
    }


def test_a_file_of_a_folder_is_kept_as_a_whole_or_not_at_all(folder, tmp_path):
    lines = [json.dumps({"ticket": n, "body": f"Printer {n} burns."}) for n in range(300)]
    (folder / "broken.jsonl").write_text("\n".join([*lines, "{", ""]))
    (folder / "zebra.jsonl").write_text("\n".join(lines))
    collection, summary = init(folder, tmp_path / "out")
    assert collection.count("documents") == 309
    total = sum(len(document.text) for document in collection.documents())
    assert (summary["counts"]["documents"], summary["lengths"]["documents"]["total"]) == (309, total)
    assert collection.document("zebra.jsonl:300").text == "ticket: 299; body: Printer 299 burns."
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
    assert [summary["files"][name] for name in ("seen", "read", "skipped", "ignored")] == [2, 1, 1, 0]


def test_every_file_of_a_folder_without_texts_is_read(tmp_path):
    """Nothing but code and one table is no data set."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "stock.csv").write_text(STOCK)
    (folder / "tool.py").write_text("def weigh():\n    return 1\n")
    (folder / "README").write_text("About the tool.\n")
    collection, summary = init(folder, tmp_path / "out")
    assert {document.id for document in collection.documents()} == {"stock.csv:1", "tool.py:weigh", "README"}
    assert summary["files"]["not_read"] == []


def test_files_of_one_name_do_not_stop_the_reading(tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        (folder / "README.md").write_text(f"# About\n\nThis is {folder.name}.\n")
    (second / "notes.txt").write_text("Plain.\n")
    (second / "notes.txt.gz").write_bytes(gzip.compress(b"Packed.\n"))
    config = parse(InitConfig, {"paths": [str(first), str(second)]})
    with stage(
        tmp_path / "out", kind="init", recipe=config.model_dump(mode="json"), inputs=inputs(config)
    ) as out:
        run(config, out)
    ids = {document.id for document in Collection(tmp_path / "out").documents()}
    assert ids == {"README.md", "two/README.md", "notes.txt", "notes.txt.gz"}


def test_a_reader_that_fails_in_any_way_is_listed(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    (tmp_path / "b.tex").write_text("Text.\n")
    monkeypatch.setattr("liebig.formats.tex.plain", lambda text: 1 // 0)
    ledger = Ledger(strict=False)
    [match] = detect(tmp_path, None, ledger)
    assert [item.record.id for item in match.items(Options(ledger=ledger))] == ["a.md"]
    assert "b.tex: cannot be read completely" in str(ledger.errors[0])


def test_of_a_large_log_both_ends_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.formats.line_text.LOG_END", 1000)
    monkeypatch.setattr("liebig.formats.line_text.CHUNK", 100)
    (tmp_path / "a.log").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    ledger = Ledger(strict=False)
    [match] = detect(tmp_path, None, ledger)
    [item] = match.items(Options(ledger=ledger))
    head, tail = item.record.sections
    assert head.paragraphs[0].startswith("line 1\n")
    assert tail.paragraphs[-1].endswith("line 1000")
    for section in (head, tail):
        for place, block in zip(section.places, section.paragraphs):
            assert block.startswith(f"line {place}\n"), "lines have their numbers in the file"
    [limit] = ledger.cut.values()
    assert limit.endswith("bytes are not")
    assert "cut" not in item.record.metadata


def test_links_of_an_archive_are_files_or_are_listed(tmp_path):
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "a.tar.gz", "w:gz") as archive:
        text = b"A zither lies in the attic.\n"
        kinds = {
            "notes/zither.md": (tarfile.REGTYPE, ""),
            "notes/hard.md": (tarfile.LNKTYPE, "notes/zither.md"),
            "soft.md": (tarfile.SYMTYPE, "notes/../notes/zither.md"),
            "outside.md": (tarfile.SYMTYPE, "/etc/hostname"),
            "above.md": (tarfile.SYMTYPE, "../notes/zither.md"),
            "gone.md": (tarfile.LNKTYPE, "nothing.md"),
            "loop.md": (tarfile.SYMTYPE, "loop.md"),
            "pipe": (tarfile.FIFOTYPE, ""),
        }
        for name, (kind, target) in kinds.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = len(text) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(text))
    collection, summary = init(tmp_path / "in", tmp_path / "out")
    read = {f"a.tar.gz/{name}" for name in ("notes/zither.md", "notes/hard.md", "soft.md")}
    assert {document.id for document in collection.documents()} == read
    assert [summary["files"][name] for name in ("seen", "read", "skipped", "ignored")] == [8, 3, 5, 0]
    listed = (tmp_path / "out" / "skipped.txt").read_text()
    assert listed.count(": this is a link out of the archive, a pipe or a device, not a file") == 5
