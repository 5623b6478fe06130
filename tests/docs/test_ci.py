"""The descriptions of continuous integration and of releases name what is there."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.worlds.docs_pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands() -> list[str]:
    """Every command of the workflow and of .ci/run."""
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    return [*steps, *(ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]


def test_every_target_and_script_exists():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert {"check", "test", "demo"} <= set(named) <= set(targets)
    assert ".ci/wheel" in commands()
    assert {"python .ci/wheel", "python .ci/wheel --oldest"} <= set(commands())


def test_tests_run_on_every_system_and_on_every_python_of_the_package():
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "ubuntu", "macos", "windows"]
    listed = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert matrix["python"] == listed == ["3.11", "3.12", "3.13", "3.14"]
    for job in ("tests", "wheel"):  # on Windows there is no make
        assert not [step for step in jobs[job]["steps"] if "make" in step.get("run", "").split()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits_and_rights_are_few(path):
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (\S+)(.*)", text)
    assert [
        name for name, rest in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) or " # v" not in rest
    ] == []
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_scripts_can_be_read():
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)
    for name in ("wheel", "image"):
        compile((ROOT / ".ci" / name).read_text(encoding="utf-8"), name, "exec")


def metadata(repository):
    """What hatchling makes of pyproject.toml."""
    env = {**os.environ, "LIEBIG_REPOSITORY": repository}
    command = [sys.executable, "-m", "hatchling", "metadata"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=False)


def test_the_metadata_has_the_addresses_of_the_repository_it_is_built_in():
    [build] = [
        step for step in yaml.safe_load(RELEASE.read_text(encoding="utf-8"))["jobs"]["build"]["steps"]
        if ".ci/wheel" in step.get("run", "")
    ]  # fmt: skip
    assert build["env"] == {"LIEBIG_REPOSITORY": "${{ github.server_url }}/${{ github.repository }}"}
    made = json.loads(metadata("https://example.org/team/liebig/").stdout)
    home = "https://example.org/team/liebig"
    assert made["urls"] == {
        "Homepage": home,
        "Source": home,
        "Issues": f"{home}/issues",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Documentation": f"{home}/blob/main/docs/index.md",
    }
    for url in made["urls"].values():
        assert (ROOT / url.removeprefix(home).removeprefix("/blob/main/").replace("/issues", "")).exists()
    readme = made["readme"]["text"]
    assert "](https://example.org/team/liebig/blob/main/docs/install.md)" in readme
    assert "](https://example.org/team/liebig/raw/main/docs/images/search-page.png)" in readme
    assert not re.search(r"\]\((?!https?:|#)", readme)


def test_without_a_repository_there_are_no_addresses_and_a_word_about_it():
    done = metadata("")
    assert json.loads(done.stdout).get("urls", {}) == {}
    assert json.loads(done.stdout)["readme"]["text"] == (ROOT / "README.md").read_text(encoding="utf-8")
    assert "LIEBIG_REPOSITORY is not set" in done.stderr
    assert "expected the address of a repository" in metadata("liebig").stderr


def test_the_oldest_versions_are_the_lower_bounds():
    rows = (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()[1:]
    oldest = dict(row.lower().replace("_", "-").split("==") for row in rows)
    wanted = map(Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["train"]])
    for one in wanted:
        if one.marker is None or one.marker.evaluate({"sys_platform": "linux"}):
            name = one.name.lower().replace("_", "-")
            [bound] = [each.version for each in one.specifier if each.operator == ">="]
            assert (name, one.specifier.contains(oldest[name])) == (name, True)
            assert [int(part) for part in bound.split(".")] == _padded(oldest[name], bound.count(".") + 1)


def test_an_upper_bound_says_what_breaks():
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.")[0].splitlines()
    bounded = [line for line in lines if re.match(r'\s*"[^";]*(<|==|~=)', line)]
    assert [line for line in bounded if not re.search(r"#.*break", line)] == []


def test_the_licence_of_every_package_is_listed():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("## Licences")[2]
    rows = [row.split("|")[2:4] for row in page.splitlines() if row.startswith("| ")][2:]
    for column, names in enumerate((PROJECT["dependencies"], PROJECT["optional-dependencies"]["train"])):
        listed = re.sub(r"\([^)]*\)", "", ",".join(row[column] for row in rows)).split(",")
        assert sorted(filter(None, map(str.strip, listed))) == sorted(
            Requirement(name).name for name in names
        )


def _padded(version: str, length: int) -> list[int]:
    parts = [int(part) for part in version.split(".")]
    assert not any(parts[length:]), f"{version} is newer than the bound"
    return parts[:length]


def test_only_one_module_asks_which_system_this_is():
    asks = re.compile(
        r"\bsys\.platform\b|\bos\.name\b|platform\.system\(|^import (?:fcntl|resource|pwd|grp|termios)\b",
        re.M,
    )
    sources = (ROOT / "src" / "liebig").rglob("*.py")
    found = [path.name for path in sources if asks.search(path.read_text(encoding="utf-8"))]
    assert found == ["machine.py", "workspace.py"], "versions() of a manifest names the system, too"
