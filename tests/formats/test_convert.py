"""Converters: what they are given and may do, how they fail, and where they can be named."""

import gzip
import sys
import zipfile

import pytest

from liebig.base import own_sources
from liebig.base.config import load, parse
from liebig.base.errors import DataError, RecipeError
from liebig.builder.build_config import BuildConfig
from liebig.builder.project_file import read_project
from liebig.builder.update import built_with
from liebig.formats import convert as convert_module, detect
from liebig.formats.convert import Converter, by_suffix, config_file, given_converters, user_converters
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.search.retriever_folder import RetrieverDescription
from liebig.stages.init import InitConfig
from tests.worlds import mixed_folder

# It says so much to stderr that it is ended before it has printed all of its text.
FLOOD = "import sys, time; print('half', flush=True); sys.stderr.write('x' * 5000); sys.stderr.flush(); time.sleep(30)"
UPPER = "import sys; print(open(sys.argv[1]).read().upper())"


def command(code, *words):
    return (sys.executable, "-c", code, *words)


def read(folder, *converters):
    """Texts by id, and the ledger."""
    ledger = Ledger(strict=False)
    options = Options(ledger=ledger, converters=by_suffix(Converter(*one) for one in converters))
    matches = detect(folder, ledger=ledger)
    records = [item.record for match in matches for item in match.items(options)]
    assert not ledger.unexplained()
    return {record.id: record for record in records}, ledger


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nA text.\n")
    (folder / "note.odd").write_bytes(b"\x00\x01\x02 words")
    return folder


def test_a_suffix_without_a_reader_is_read_by_its_command(folder):
    texts, ledger = read(folder, (".odd", command("print('from', 'a command')", "{path}")))
    assert texts["note.odd"].text == "from a command"
    assert texts["note.odd"].metadata["type"] == "odd"
    assert ledger.counts() == {"seen": 2, "read": 2, "skipped": 0, "ignored": 0}


def test_names_reach_the_command_as_one_argument_and_no_shell(folder):
    name = "$(touch hacked); a 'b' \"c\" {text}.odd"
    (folder / "note.odd").rename(folder / name)
    texts, _ = read(folder, (".odd", command("import sys; print(len(sys.argv), sys.argv[1])", "{path}")))
    assert texts[name].text == f"2 {folder / name}"
    assert not list(folder.glob("**/hacked"))


def test_the_reader_of_a_kind_comes_first(folder):
    (folder / "scan.pdf").write_bytes(mixed_folder.pdf(["", ""]))
    (folder / "text.pdf").write_bytes(mixed_folder.pdf(["The pages have text."]))
    texts, _ = read(folder, (".pdf", command(r"print('one\ftwo')", "{path}")))
    assert "have text" in texts["text.pdf"].text
    [section] = texts["scan.pdf"].sections
    assert (section.paragraphs, section.unit, section.places) == (("one", "two"), "page", (1, 2))


def test_a_command_can_write_its_text_to_a_file(folder):
    code = "import sys; print('noise'); open(sys.argv[2], 'w').write('signal')"
    texts, _ = read(folder, (".odd", command(code, "{path}", "{text}")))
    assert texts["note.odd"].text == "signal"


def test_a_packed_file_is_handed_over_unpacked(folder):
    (folder / "b.odd.gz").write_bytes(gzip.compress(b"\x00packed"))
    with zipfile.ZipFile(folder / "c.zip", "w") as archive:
        archive.writestr("d.odd", b"\x00member")
        archive.writestr("e.md", "# E\n\nText.\n")
    code = "import sys; print(open(sys.argv[1], 'rb').read()[1:].decode())"
    texts, _ = read(folder, (".odd", command(code, "{path}")))
    assert texts["b.odd"].text == "packed"
    assert texts["c.zip/d.odd"].text == "member"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit('bad\\x1b[31m scan')", r"the converter failed \(exit code 1: bad\[31m scan\)"),
        ("import os; os.kill(os.getpid(), 9)", r"exit code -9: it said nothing"),
        ("print('x' * 5000)", "(makes|prints) more than 0 MiB"),
        (FLOOD, "prints more than 0 MiB"),
        ("import time; time.sleep(60)", "took more than 0.5 s"),
        ("import os, time; os.close(1); time.sleep(60)", "took more than 0.5 s"),
    ],
)
def test_a_command_that_fails_is_listed(folder, monkeypatch, code, reason):
    monkeypatch.setattr(convert_module, "LARGEST", 4000)
    if "sleep(60)" in code:
        monkeypatch.setattr(convert_module, "SECONDS", 0.5)
    texts, ledger = read(folder, (".odd", command(code, "{path}")))
    assert list(texts) == ["a.md"]
    [error] = ledger.errors
    assert error.file == str(folder / "note.odd")
    with pytest.raises(DataError, match=reason):
        raise error


def test_a_command_that_is_not_there_or_says_nothing_is_listed(folder):
    _, ledger = read(folder, (".odd", ("no-such-program", "{path}")))
    assert "cannot be run (no-such-program" in str(ledger.errors[0])
    _, ledger = read(folder, (".odd", command("", "{path}")))
    assert list(ledger.ignored.values()) == ["no text found"]


def test_the_users_configuration_names_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_converters() == ()
    config_file().parent.mkdir()
    config_file().write_text('[convert]\n".PDF" = "ocr --out \'a b\' {path}"\n')
    assert user_converters() == (Converter(".pdf", ("ocr", "--out", "a b", "{path}")),)
    assert given_converters([".djvu=djvutxt {path}"]) == (Converter(".djvu", ("djvutxt", "{path}")),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[convert]\n".pdf" = "ocr"\n', "is not a command with a {path}"),
        ('[convert]\n".pdf" = "{path}"\n', "is not a command with a {path}"),
        ('[convert]\n".pdf" = ["ocr", "{path}"]\n', "is not a command with a {path}"),
        ('[convert]\n".pdf" = "ocr \'{path}"\n', "cannot be read"),
        ('[convert]\n"pdf" = "ocr {path}"\n', "is not a suffix"),
        ("convert = 1\n", "convert is not a table"),
        ("[other]\n", "other is not a key"),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path, monkeypatch, text, reason):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config_file().parent.mkdir()
    config_file().write_text(text)
    with pytest.raises(RecipeError) as caught:
        user_converters()
    assert reason in str(caught.value)
    assert caught.value.file == str(config_file())


def test_neither_a_folder_nor_a_recipe_nor_a_retriever_can_name_a_command(folder, tmp_path):
    hostile = {"suffix": ".md", "arguments": ["touch", "hacked", "{path}"]}
    (folder / "liebig.toml").write_text('minutes = 0\nconvert = [".odd=touch hacked {path}"]\n')
    with pytest.raises(RecipeError, match="convert names commands"):
        read_project(folder)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'paths = ["{folder}"]\n[[convert]]\nsuffix = ".odd"\narguments = ["touch", "hacked", "{{path}}"]\n'
    )
    with pytest.raises(RecipeError, match="convert"):
        load(InitConfig, recipe)
    for config, fields in ((InitConfig, {"paths": [str(folder)]}), (BuildConfig, {"sources": [str(folder)]})):
        with pytest.raises(RecipeError, match="commands come from"):
            parse(config, {**fields, "convert": [hostile]})
    before = RetrieverDescription(
        generation=1, system="bm25", collection="c", bm25="b", model="m",
        more={"sources": [str(folder)], "convert": [hostile]},
    )  # fmt: skip
    own_sources.note([str(folder)])
    assert built_with(before, tmp_path).convert == ()


def test_an_update_without_the_commands_of_the_build_is_refused(folder, tmp_path):
    before = RetrieverDescription(
        generation=1, system="bm25", collection="c", bm25="b", model="m",
        more={"sources": [str(folder)], "converted": [".odd"]},
    )  # fmt: skip
    own_sources.note([str(folder)])
    with pytest.raises(RecipeError, match=r"was built with a converter for \.odd"):
        built_with(before, tmp_path)
    given = given_converters([".odd=cat {path}"])
    assert built_with(before, tmp_path, convert=given).convert == given
