"""Formats of other packages: found by their entry points, detected, named, and refused with a sentence."""

import itertools
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from liebig.base import extensions
from liebig.base.config import inputs, parse
from liebig.base.errors import RecipeError
from liebig.base.workspace import stage
from liebig.collection import Collection
from liebig.formats import BUILT_IN, detect, formats
from liebig.stages import convert, init

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


NUMBERS = itertools.count()
WRITER = '''
def write_notes(export):
    """notes.note."""
    export.lines("notes.note", (document.text for document in export.documents()))


NOTES'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a module with the source and the entry points given, for the time of a test."""

    def install(source, **entries):
        module = f"other_package_{next(NUMBERS)}"  # Python would not import one of the same name again
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        points = [EntryPoint(name, f"{module}:{value}", "liebig.formats") for name, value in entries.items()]
        monkeypatch.setattr(extensions, "entry_points", lambda group: points)
        formats.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    monkeypatch.undo()
    formats.cache_clear()


def run(command, config, out):
    with stage(out, kind="test", recipe=config.model_dump(mode="json"), inputs=inputs(config)) as folder:
        command.run(config, folder)


def read(out, path, **values):
    run(init, parse(init.InitConfig, {"paths": [str(path)], **values}), out)
    return [document.text for document in Collection(out).documents()]


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_table_names_every_format_as_it_names_itself():
    assert [format.name for format in formats().values()] == list(BUILT_IN)


def test_the_format_of_the_docs_is_detected_and_read_by_init(package, tmp_path):
    package(EXAMPLE, notes="NOTES")
    path = put(tmp_path / "data" / "my.note", "buy milk\ncall home\n")
    [match] = detect(path)
    assert (match.format.name, match.why) == ("notes", "A .note file")
    assert read(tmp_path / "file", path) == ["buy milk", "call home"]
    assert read(tmp_path / "folder", path.parent) == ["buy milk", "call home"]


def test_it_can_be_named(package, tmp_path):
    path = put(tmp_path / "my.txt", "buy milk\n")
    with pytest.raises(RecipeError, match="format = 'notes'"):
        parse(init.InitConfig, {"paths": [str(path)], "format": "notes"})
    package(EXAMPLE, notes="NOTES")
    assert read(tmp_path / "out", path, format="notes") == ["buy milk"]


def test_it_is_tried_after_the_built_in_ones_unless_it_names_one(package, tmp_path):
    path = put(tmp_path / "my.txt", "note: buy milk\n")
    source = EXAMPLE.replace('preview.source.suffix == ".note"', 'preview.lines[0].startswith("note:")')
    package(source, notes="NOTES")
    assert detect(path)[0].format.name == "lines"
    package(source.replace("rule=is_notes", 'before="lines", rule=is_notes'), notes="NOTES")
    assert detect(path)[0].format.name == "notes"


def test_it_can_be_written(package, tmp_path):
    source = EXAMPLE.replace("NOTES", WRITER.strip(), 1).replace("read=", "write=write_notes, read=")
    package(source, notes="NOTES")
    read(tmp_path / "collection", put(tmp_path / "my.note", "buy milk\ncall home\n"))
    config = parse(convert.ConvertConfig, {"source": str(tmp_path / "collection"), "to": "notes"})
    run(convert, config, tmp_path / "out")
    assert (tmp_path / "out" / "notes.note").read_text() == "buy milk\ncall home\n"


@pytest.mark.parametrize(
    ("source", "name", "why"),
    [
        ("NOTES = 7", "notes", "not a Format named 'notes'"),
        (EXAMPLE, "other", "not a Format named 'other'"),
        (EXAMPLE.replace("rule=", 'before="nothing", rule='), "notes", "'nothing', which is not a format"),
        ("", "notes", "cannot be loaded from other_package_"),
    ],
)
def test_one_that_cannot_be_used_is_a_sentence(package, tmp_path, source, name, why):
    package(source, **{name: "NOTES"})
    with pytest.raises(RecipeError, match=why):
        detect(put(tmp_path / "my.note", "buy milk\n"))
