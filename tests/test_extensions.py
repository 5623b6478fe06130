"""A package outside the source tree adds an objective, a format, an index back end and a command.

The package is the examples of CONTRIBUTING.md, word for word: one file and one line of entry points each. It is put
on the path of a subprocess as pip would install it, and used through the command line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(python|toml) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
GROUPS = {"liebig.methods", "liebig.formats", "liebig.indexes", "liebig.commands"}
DIARY = "".join(f"1840-03-{day:02} On day {day} barley was sown in row {day * 7}.\n" for day in range(1, 29))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that the example package is installed in, and the entry points by group."""
    folder = tmp_path_factory.mktemp("site")
    groups: dict[str, list[str]] = {}
    for language, title, text in BLOCK.findall(PAGE):
        if language == "python":
            (folder / title).parent.mkdir(exist_ok=True)
            (folder / title).write_text(text, encoding="utf-8")
            continue
        for group, entries in tomllib.loads(text)["project"]["entry-points"].items():
            groups.setdefault(group, []).extend(f"{name} = {value}" for name, value in entries.items())
    info = folder / "liebig_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: liebig-example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "\n".join(lines) + "\n\n" for group, lines in groups.items())
    )
    return folder, groups


def liebig(site: Path, home: Path, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    paths = [str(site), str(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "liebig", *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == ok, done.stderr
    return done


def test_each_extension_is_one_file_and_one_line(site):
    folder, groups = site
    assert set(groups) == GROUPS
    assert [len(lines) for lines in groups.values()] == [1, 1, 1, 1]
    assert len(list((folder / "liebig_example").glob("*.py"))) == len(GROUPS)


def test_a_package_adds_a_format_a_command_an_objective_and_an_index(site, tmp_path):
    folder, _ = site
    (tmp_path / "mine.diary").write_text(DIARY)

    read = liebig(folder, tmp_path, "init", "mine.diary", "--out", "collection")
    assert "diary" in (read.stdout + read.stderr)
    liebig(folder, tmp_path, "count", "collection", "--out", "count")
    assert json.loads((tmp_path / "count" / "count.json").read_text()) == {"documents": 28}
    assert "count" in liebig(folder, tmp_path, "--help").stdout

    liebig(folder, tmp_path, "prepare", "collection", "--tokenizer", "liebig:mini-v1", "--out", "store")
    liebig(
        folder, tmp_path, "pretrain", "objective.kind=first-word", "model.kind=folder",
        "model.path=liebig:mini-v1", 'stores=[{path="store"}]', "max_length=32", "loop.steps=2", "loop.batch=4",
        "--out", "model",
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text().splitlines()]
    assert any("first_word" in line.get("losses", {}) for line in lines)

    liebig(folder, tmp_path, "passages", "collection", "--tokenizer", "liebig:mini-v1", "--out", "passages")
    liebig(folder, tmp_path, "encode", "passages", "--model", "model/model", "--out", "vectors")
    liebig(folder, tmp_path, "index", "vectors=vectors", "index.kind=array", "--out", "index")
    hits = liebig(folder, tmp_path, "search", "index", "barley in row 49", "--texts", "passages")
    assert "1840-03-" in hits.stdout


def test_without_the_package_its_names_are_one_sentence(tmp_path):
    (tmp_path / "mine.diary").write_text(DIARY)
    said = liebig(
        tmp_path, tmp_path, "pretrain", "objective.kind=first-word", "--out", "model", ok=False
    ).stderr
    assert "first-word" in said
    assert len(said.strip().splitlines()) == 1
