"""A pipeline runs its stages in order, skips what is up to date, resumes, and rebuilds only what changed."""

from pathlib import Path

import pytest
from pydantic import Field

from liebig.base import pipeline
from liebig.base.config import Config, InputPath, inputs
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder


class WriteConfig(Config):
    text: str = Field("hello", description="What to write.")
    seed: int = 0


class CopyConfig(Config):
    source: InputPath
    others: tuple[InputPath, ...] = ()
    fail: bool = False


def write(config: WriteConfig, folder: Folder) -> None:
    folder.write_text("text", config.text)


def copy(config: CopyConfig, folder: Folder) -> None:
    if config.fail:
        raise DataError("asked to fail")
    folder.write_text("text", (config.source / "text").read_text().upper())


TABLE = {
    "write": Stage("write", WriteConfig, write, "Write.", "liebig write"),
    "copy": Stage("copy", CopyConfig, copy, "Copy.", "liebig copy"),
}
RECIPE = """
name = "two"
[stages.first]
kind = "write"
[stages.copy]
source = "@first"
"""


def go(tmp_path: Path, *overrides: str, text: str = RECIPE) -> list[str]:
    recipe = tmp_path / "r.toml"
    recipe.write_text(text)
    said: list[str] = []
    pipeline.run(pipeline.plan(TABLE, recipe, overrides, tmp_path / "out"), said.append)
    return ["skipped" if line.endswith(": up to date") else "running" for line in said]


def test_stages_run_in_order_and_a_second_run_skips_them(tmp_path):
    assert go(tmp_path) == ["running", "running"]
    assert (tmp_path / "out/copy/text").read_text() == "HELLO"
    assert go(tmp_path) == ["skipped", "skipped"]


def test_only_what_changed_is_rebuilt(tmp_path):
    go(tmp_path)
    assert go(tmp_path, "stages.first.text=other") == ["running", "running"]
    assert (tmp_path / "out/copy/text").read_text() == "OTHER"
    assert go(tmp_path, "stages.first.text=other", "stages.first.seed=1") == ["running", "skipped"]


def test_a_damaged_folder_is_made_again(tmp_path):
    go(tmp_path)
    (tmp_path / "out/first/text").write_text("damaged")
    assert go(tmp_path) == ["running", "skipped"]


def test_an_error_in_a_later_stage_keeps_the_earlier_ones(tmp_path):
    with pytest.raises(DataError):
        go(tmp_path, "stages.copy.fail=true")
    assert (tmp_path / "out/first/text").exists()
    assert not (tmp_path / "out/copy").exists()
    assert go(tmp_path) == ["skipped", "running"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no \\[stages.NAME\\] table"),
        ("[stages.a]\nkind = 'writ'", "is not a stage"),
        ("[stages.a]\nkind = 'copy'\nsource = '@b'", "not an earlier stage"),
        ("stages.a = 3", "not a table"),
        ("[stages.write]\ntextt = 'x'", "write text"),
        ("other = 1\n[stages.write]", "not a key of a pipeline"),
    ],
)
def test_a_wrong_recipe_is_refused_before_anything_runs(tmp_path, text, message):
    with pytest.raises(RecipeError, match=message):
        go(tmp_path, text=text)
    assert not (tmp_path / "out").exists()


def test_inputs_are_the_marked_paths_in_tables_and_lists(tmp_path):
    config = CopyConfig(source=Path("a"), others=(Path("b"), Path("c")))
    assert inputs(config) == {"source": Path("a"), "others.0": Path("b"), "others.1": Path("c")}
