"""A package outside the source tree adds two objectives, a format, an index back end and a command.

The package is the examples of CONTRIBUTING.md, word for word: one file and one line of entry points each. It is put
on the path of a process as pip would install it, and used through the command line.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from liebig.train.log import read_log
from tests.worlds.processes import run_commands, together

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(python|toml) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
GROUPS = {"liebig.methods": 2, "liebig.formats": 1, "liebig.indexes": 1, "liebig.commands": 1}
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


def liebig(site: Path, folder: Path, *commands: str) -> list[tuple[int, str]]:
    """Exit code and output of commands, run in a process of its own whose path has the package."""
    home = folder / "home"
    return together(run_commands, 1, folder, site, home, [shlex.split(command) for command in commands])[0]


def test_each_extension_is_one_file_and_one_line(site):
    folder, groups = site
    assert {group: len(lines) for group, lines in groups.items()} == GROUPS
    assert len(list((folder / "liebig_example").glob("*.py"))) == sum(GROUPS.values())


def test_a_package_adds_a_format_a_command_two_objectives_and_an_index(site, small_model, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.diary").write_text(DIARY)
    (home / "questions").mkdir()
    (home / "questions" / "queries.jsonl").write_text('{"id": "q", "text": "barley in row 49"}\n')
    start = f"model.kind=folder model.path={small_model} max_length=32 loop.steps=2 loop.batch=4"
    start += " evaluation.share=0.3 stores='[{path=\"store\"}]'"
    results = liebig(
        site[0],
        tmp_path,
        "--help",
        "init mine.diary --out collection",
        "count collection --out count",
        f"prepare collection --tokenizer {small_model} --out store",
        f"pretrain objective.kind=vector-mlm {start} --out masked",
        f"pretrain objective.kind=hardest source.kind=crops source.window=16 {start} --out model",
        f"passages collection --tokenizer {small_model} --out passages",
        "encode passages --model model/model --out vectors",
        "index vectors=vectors index.kind=array --out index",
        "retrieve questions dense=index k=3 --out found",
    )
    assert [output for code, output in results if code != 0] == []
    assert "Count the documents of a collection." in results[0][1]
    assert "mine.diary: diary (A .diary file)" in results[1][1]
    assert json.loads((home / "count" / "count.json").read_text()) == {"documents": 28}
    assert set(evaluation(home / "masked")) == {"masked", "masked_accuracy"}
    assert set(evaluation(home / "model")) == {"contrast", "gap"}
    assert json.loads((home / "index" / "index.json").read_text())["kind"] == "array"
    assert "1840-03-" in (home / "found" / "dense.trec").read_text()


def evaluation(folder: Path) -> dict[str, float]:
    """The last evaluation of a training."""
    return [line["evaluation"] for line in read_log(folder) if "evaluation" in line][-1]


def test_without_the_package_its_names_are_one_sentence(tmp_path):
    (tmp_path / "home").mkdir()
    [(code, output)] = liebig(tmp_path, tmp_path, "pretrain objective.kind=hardest --out model")
    assert code == 2
    assert "hardest" in output
    assert len(output.strip().splitlines()) == 1
