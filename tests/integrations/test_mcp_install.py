"""`liebig mcp install`: what it writes into the settings of clients, and what it leaves alone."""

import json
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from liebig.cli import make_app
from liebig.commands.mcp_install import COPY
from liebig.search.retriever_folder import RetrieverDescription, write


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home and a working directory of a test's own, with a retriever in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes", RetrieverDescription(1, "bm25", "collection", "bm25"))
    return tmp_path


def install(*words):
    return CliRunner().invoke(make_app(), ["mcp", "install", "notes", *words])


FILES = {
    "claude-code": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "vscode": (".vscode/mcp.json", "servers"),
}


@pytest.mark.parametrize("client", FILES)
def test_an_entry_is_added_and_the_rest_stays(home, client):
    name, table = FILES[client]
    file, parse = home / name, tomllib.loads if name.endswith("toml") else json.loads
    result = install("--client", client, "--yes")
    assert result.exit_code == 0, result.output
    first = parse(file.read_text())
    entry = first[table]["notes"]
    assert [entry["command"], *entry["args"]] == [sys.executable, "-m", "liebig", "mcp", str(home / "notes")]
    before = file.read_bytes()
    result = install("--client", client, "--name", "other", "--yes")
    assert result.exit_code == 0, result.output
    after = parse(file.read_text())
    assert set(after[table]) == {"notes", "other"}
    assert after[table]["notes"] == entry
    assert file.with_name(file.name + COPY).read_bytes() == before
    assert "other" in result.stdout  # shown


def test_nothing_is_written_without_consent(home):
    result = install("--client", "cursor")
    assert (result.exit_code, "Nothing was written" in result.stderr) == (0, True)
    assert not (home / ".cursor").exists()
    printed = install("--client", "cursor", "--print")
    assert json.loads(printed.stdout)["mcpServers"]["notes"]
    assert not (home / ".cursor").exists()


def test_comments_of_toml_stay_and_a_name_is_not_taken_twice(home):
    (home / ".codex").mkdir()
    file = home / ".codex" / "config.toml"
    file.write_text("# mine\nmodel = 'x'\n")
    assert install("--client", "codex", "--yes").exit_code == 0
    assert file.read_text().startswith("# mine\nmodel = 'x'\n\n[mcp_servers.")
    assert "has it already" in install("--client", "codex", "--yes").stderr
    file.write_text(file.read_text().replace("args = [", 'args = ["-v", '))
    again = install("--client", "codex", "--yes")
    assert (again.exit_code, "already has" in again.stderr) == (2, True)


@pytest.mark.parametrize("text", ["mcp_servers = 1", "mcp_servers = {a = {command = 'x'}}", "= no TOML"])
def test_toml_that_cannot_be_appended_to_is_left_alone(home, text):
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(text)
    result = install("--client", "codex", "--yes")
    assert (result.exit_code, "--print" in result.stderr) == (2, True)
    assert (home / ".codex" / "config.toml").read_text() == text


def test_a_name_may_have_any_character(home):
    result = install("--client", "codex", "--name", "notes 😀", "--yes")
    assert result.exit_code == 0, result.output
    written = (home / ".codex" / "config.toml").read_text(encoding="utf-8")
    assert list(tomllib.loads(written)["mcp_servers"]) == ["notes 😀"]


@pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", '{"mcpServers": []}'])
def test_settings_that_cannot_be_changed_are_left_alone(home, text):
    (home / ".mcp.json").write_text(text)
    result = install("--client", "claude-code", "--yes")
    assert (result.exit_code, "--print" in result.stderr) == (2, True)
    assert (home / ".mcp.json").read_text() == text


def test_an_unknown_client_and_a_folder_that_is_no_retriever_are_refused(home):
    assert "cursor" in install("--client", "curser").stderr
    result = CliRunner().invoke(make_app(), ["mcp", "install", ".", "--client", "cursor"])
    assert (result.exit_code, "not a retriever" in result.stderr) == (2, True)
