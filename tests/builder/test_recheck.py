"""`liebig check`: the check of a build on a folder that is there already."""

import json

import pytest

from liebig.builder.recheck import recheck
from liebig.builder.update import update
from liebig.cli import main
from liebig.search.retriever_folder import read
from tests.worlds.books import TOPICS, write_documents


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A retriever of a few documents."""
    home = tmp_path_factory.mktemp("recheck")
    made(write_documents(home / "source", TOPICS), home / "out")
    return home / "out"


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def run(monkeypatch, *arguments, options=()):
    monkeypatch.setattr("sys.argv", ["liebig", *options, "check", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_a_folder_is_checked_as_it_was_built_and_stays_as_it_is(folder):
    before = files(folder)
    built = json.loads((folder / read(folder).checks / "checks.json").read_text())
    checks = recheck(folder, None, print)
    assert files(folder) == before
    assert checks["served"] == built["chosen"]
    assert (checks["questions"], checks["choice"]) == (built["questions"], built["choice"])
    expected = {row["name"]: row["expected"] for row in built["rows"]}
    assert {row["name"]: row["expected"] for row in checks["rows"]} == pytest.approx(expected, abs=2e-3)


def test_questions_of_a_user_are_asked_too(folder, tmp_path, monkeypatch, capsys):
    file = tmp_path / "q.jsonl"
    rows = [{"question": f"who had {topic} first", "relevant": [f"{topic}.md"]} for topic in TOPICS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(monkeypatch, folder, "--questions", file, "--json") in (0, None)
    checks = json.loads(capsys.readouterr().out)
    assert checks["questions"]["yours"] == len(TOPICS)
    assert set(checks["questions"]) > {"yours"}
    assert checks["headline"].endswith("points.")


def test_the_result_is_printed_quietly_too(folder, monkeypatch, capsys):
    assert run(monkeypatch, folder, options=["--quiet"]) in (0, None)
    said = capsys.readouterr().out
    assert " best here, with " in said
    assert said.rstrip().splitlines()[-1].startswith("The folder answers with ")


def test_what_cannot_be_checked_is_one_sentence(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, tmp_path / "nowhere") == 2
    assert "there is no such file or folder" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path) == 2
    assert "the folder is not a retriever" in capsys.readouterr().err


def test_a_folder_of_words_alone_has_nothing_to_compare(made, tmp_path, monkeypatch, capsys):
    (tmp_path / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": f"d{n}", "text": f"Ячмень растёт в поле номер {n}."}) + "\n" for n in range(5)
        )
    )
    made(tmp_path / "corpus.jsonl", tmp_path / "out", model=None)
    assert run(monkeypatch, tmp_path / "out") == 2
    assert "has one index only" in capsys.readouterr().err
    assert not update(tmp_path / "out", [], print).new
