"""liebig.toml: a folder says how it is built, and can neither name a command nor anything outside of itself."""

import sys

import pytest

from liebig.base.errors import RecipeError
from liebig.builder.project_file import read_project
from liebig.cli import main
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read
from tests.worlds.books import write_documents


def run(monkeypatch, *words):
    """The exit code of a command line."""
    monkeypatch.setattr(sys, "argv", ["liebig", *words])
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


def test_build_and_update_need_no_arguments(small_model, tmp_path, monkeypatch, capsys):
    folder = write_documents(tmp_path / "folder")
    (folder / "drafts").mkdir()
    (folder / "drafts" / "zither.md").write_text("# Zither\n\nA zither.\n")
    (folder / "liebig.toml").write_text('exclude = ["drafts/"]\nminutes = 0\n')
    monkeypatch.chdir(folder)
    assert run(monkeypatch, "build", "--model", str(small_model), "--quiet") == 0
    retriever = Retriever.from_folder(folder / ".liebig")
    assert {document.id for document in retriever.current.collection.documents()} == {
        path.name for path in folder.glob("*.md")
    }
    (folder / "liebig.toml").write_text("minutes = 0\n")
    assert run(monkeypatch, "update", "--quiet") == 0
    assert retriever.reload()
    assert retriever.search("zither", k=1, system="bm25")[0].doc == "drafts/zither.md"
    assert read(folder / ".liebig").more["exclude"] == []
    assert run(monkeypatch, "update") == 0
    assert "Nothing has changed." in capsys.readouterr().err


def test_options_of_the_command_line_count_before_those_of_the_file(tmp_path):
    (tmp_path / "liebig.toml").write_text('language = "de"\nminutes = 3\n')
    config = read_project(tmp_path, {"minutes": 5.0}).config
    assert (config.language, config.minutes, config.sources) == ("de", 5.0, (str(tmp_path),))


@pytest.mark.parametrize(
    "line, sentence",
    [
        ('sources = ["../other"]', "sources = '../other' is outside of the folder"),
        ('sources = ["/etc"]', "sources = '/etc' is outside of the folder"),
        ('sources = ["link"]', "sources = 'link' is outside of the folder"),
        ('sources = ["absent"]', "sources = 'absent' does not exist"),
        ("sources = [3]", "sources = 3 is not a path"),
        ('out = "../out"', "out = '../out' is outside of the folder"),
        ('model = "/models/x"', "model = '/models/x' is outside of the folder"),
        ('questions = "~/../../etc/passwd"', "is outside of the folder"),
        ('convert = {".pdf" = "rm -rf /"}', "convert"),
    ],
)
def test_what_a_folder_must_not_say_is_one_sentence(tmp_path, line, sentence):
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "folder" / "liebig.toml").write_text(line + "\n")
    with pytest.raises(RecipeError) as error:
        read_project(tmp_path / "folder")
    assert sentence in str(error.value)
    assert "liebig.toml" in str(error.value)


def test_without_a_source_and_a_file_the_sentence_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("build", "update"):
        assert run(monkeypatch, command) == 2
        assert "no source is named, and there is no liebig.toml here" in capsys.readouterr().err
